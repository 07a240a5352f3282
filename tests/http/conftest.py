"""Fixtures of the HTTP tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import Live


@pytest.fixture
def still_healthy(service: Live) -> Iterator[None]:
    """Check after the test that the service still responds and has logged no exception."""
    assert service.process is not None
    log = Path(f"/proc/{service.process.pid}/fd/2")
    begin = log.stat().st_size
    yield
    assert service.client.get("/v1/pets").status_code == 200
    assert b"Traceback" not in log.read_bytes()[begin:]
