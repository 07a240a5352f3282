"""What holds for all tests: neither a busy machine nor a run in the background is a failure."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.waiting import PATIENCE

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell makes what runs in its background ignore these; programs inherit that, but no handler.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

os.environ.pop("PYTHONUNBUFFERED", None)  # what commands print is in buffers, as it is for users
os.environ.setdefault("PYTEST_TIMEOUT", f"{600 * PATIENCE}")  # read by pytest-timeout


LONG = {
    "test_a_page_shows_what_was_stored_during_the_call": "TestValkey TestPostgres",
    "test_any_number_of_items_is_restored": "TestValkey TestPostgres",
    "test_the_work_of_calls_does_not_grow_with_the_store": "TestPostgres",
    "test_two_scratch_locations_share_nothing": "TestPostgres",
    "test_two_processes_share_a_location": "TestValkey TestPostgres",
    "test_what_was_acknowledged_survives_a_kill": "TestValkey TestPostgres",
}
"""Clauses of the kit that take seconds of CPU, and where they are slow: elsewhere they are not."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what takes long."""
    for item in items:
        class_ = getattr(item.parent, "name", "")
        if class_ in LONG.get(getattr(item, "originalname", ""), "").split():
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = inspect.signature(test).parameters
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def environment_is_left_as_it_was() -> Iterator[None]:
    """Refuse a test that leaves variables to the processes of later tests."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for variables in (before, after):
        variables.pop("PYTEST_CURRENT_TEST", None)
    if after != before:
        raise AssertionError(dict(after.items() ^ before.items()))
