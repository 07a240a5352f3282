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

os.environ.setdefault("PYTEST_TIMEOUT", f"{600 * PATIENCE}")  # read by pytest-timeout


OVERLAP = "::test_a_page_shows_what_was_stored_during_the_call"
LONG = (f"TestService{OVERLAP}", f"TestValkey{OVERLAP}")
"""Tests that take seconds of CPU; every run of the kit on the other backends tests the same."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what takes long."""
    for item in items:
        if item.nodeid.endswith(LONG):
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
