"""Fixtures of the HTTP tests."""

from collections.abc import Iterator

import pytest

from tests.support.services import Live


@pytest.fixture
def still_healthy(service: Live) -> Iterator[None]:
    """Check after the test that the service still responds and has logged no exception."""
    begin = service.log.stat().st_size
    yield
    assert service.client.get("/v1/pets").status_code == 200
    with service.log.open("rb") as log:
        log.seek(begin)
        assert b"Traceback" not in log.read()
