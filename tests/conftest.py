"""Fixtures: running services.

`service` is one process for the whole run, `start` starts further ones, `fresh` is a service with
an empty store in a thread of this process, which takes a few milliseconds. PETSTORE_TEST_BACKEND
chooses the backend of `service` and `fresh`, PETSTORE_TEST_WORKERS the workers of `service`.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from tests.support.services import BACKEND, Live, Start, in_thread, place, process

# pytest rewrites anyio, which brings a plugin, while it is imported. In the thread of a service
# CPython 3.11 may fail to parse it (python/cpython#106905), so all of it is imported here.
anyio.run(anyio.sleep, 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a service with flags and settings; all stop after the test."""
    with ExitStack() as stack:
        count = 0

        def start(*flags: str, **settings: str) -> Live:
            nonlocal count
            count += 1
            directory = tmp_path / f"service-{count}"
            directory.mkdir()
            return stack.enter_context(process(directory, *flags, **settings))

        yield start


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Run one service for all tests; its store keeps the pets of earlier tests."""
    directory = tmp_path_factory.mktemp("service")
    settings = {
        "backend": BACKEND,
        "workers": os.environ.get("PETSTORE_TEST_WORKERS", "1"),
        **place(BACKEND, directory),
    }
    with process(directory, drain_seconds="0", **settings) as live:
        yield live


@pytest.fixture
def fresh() -> Iterator[Live]:
    """Run a service with an empty store in a thread of this process."""
    with in_thread() as live:
        yield live
