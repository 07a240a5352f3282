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
    assert b"Traceback" not in service.log.read_bytes()[begin:]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what takes six seconds, and what each backend's own kit says every time."""
    for item in items:
        if item.nodeid.endswith("TestService::test_a_page_shows_what_was_stored_during_the_call"):
            item.add_marker(pytest.mark.slow)
