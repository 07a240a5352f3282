"""What the workers know of their store together, and that one which is lost stays refused."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest
from petstore_memory import MemoryRepository

from petstore.contract import Expected, PetQuery, Repository, UnavailableError, WrongStoreError
from petstore.store import watched as watched_module
from petstore.store.shared import SharedStore, shared_store_bytes
from petstore.store.watched import watched
from tests.support.repositories import again


def test_each_worker_reads_the_last_note_of_all() -> None:
    memory = bytearray(shared_store_bytes(3))
    workers = [SharedStore(memory, number, 3) for number in range(3)]
    assert workers[0].read() == []
    for number in range(5):
        workers[1].write(b"one" * number)
        workers[2].write(b"two")
    replaced = SharedStore(memory, 1, 3)
    assert replaced.read() == [b"one" * 4, b"two"]
    replaced.write(b"new")
    assert workers[0].read() == [b"new", b"two"]


def test_a_worker_that_is_killed_while_it_writes_leaves_the_note_before() -> None:
    memory = bytearray(shared_store_bytes(1))
    shared = SharedStore(memory)
    shared.write(b"first")
    shared.write(b"second")
    at = memory.index(b"second")
    memory[at : at + 3] = b"thi"
    assert SharedStore(memory).read() == [b"first"]


class Losing:
    """Three workers of a backend whose checks and openings raise an error, once one is set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.opened = self.checked = 0
        self._memory = bytearray(shared_store_bytes(3))
        self.used = dict[int, Repository]()

    def worker(self, number: int) -> AbstractAsyncContextManager[None]:
        """Return the store of a worker, not open yet."""
        shared = SharedStore(self._memory, number, 3)

        def use(repository: Repository) -> None:
            self.used[number] = repository

        def check() -> None:
            self.checked += 1

        return watched(self._open, Expected(), shared, use, check)

    @asynccontextmanager
    async def _open(self, expected: Expected) -> AsyncIterator[Repository]:
        losing = self

        class Lost(MemoryRepository):
            async def check(self) -> None:
                if losing.error is not None:
                    raise losing.error

        if self.error is not None:
            raise self.error
        self.opened += 1
        assert expected.notes is not None
        expected.notes.write(b"1")
        yield Lost()

    async def all_refuse(self, reason: str) -> None:
        """Check that all workers refuse the store for this reason; an empty one: all serve it."""
        for repository in self.used.values():
            found = ""
            try:
                await repository.list_pets(PetQuery(0, 1))
            except WrongStoreError as error:
                found = str(error)
            assert found == reason


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Losing:
    monkeypatch.setattr(watched_module, "CHECK_SECONDS", 0.01)
    return Losing()


async def test_a_lost_store_stays_refused_by_all_workers_and_is_not_opened_again(
    losing: Losing, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as workers:
        for number in range(2):
            await workers.enter_async_context(losing.worker(number))
        for error in (UnavailableError("later"), ValueError("of the backend"), None):
            losing.error = error
            await again(lambda: losing.all_refuse(""), AssertionError)
        losing.error = WrongStoreError("lost")
        await again(lambda: losing.all_refuse("lost"), AssertionError)
        losing.error = None
        await workers.enter_async_context(losing.worker(2))
        assert len(losing.used) == 3
        await losing.all_refuse("lost")
    assert losing.opened == 2
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("lost; nothing is served until the service is restarted") == 1


async def test_a_worker_that_finds_the_store_lost_as_it_opens_it_tells_the_others(
    losing: Losing,
) -> None:
    async with losing.worker(0):
        assert losing.checked == 1
        losing.error = WrongStoreError("older")
        async with losing.worker(1):
            losing.error = None
            await again(lambda: losing.all_refuse("older"), AssertionError)


async def test_the_first_worker_that_finds_another_store_does_not_start(losing: Losing) -> None:
    losing.error = WrongStoreError("another one")
    with pytest.raises(WrongStoreError, match="another one"):
        async with losing.worker(0):
            pass
