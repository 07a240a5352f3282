"""What the workers know of their store together, and how a lost one is served again, or not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from petstore_memory import MemoryRepository

from petstore.contract import Expected, PetQuery, Repository, WrongStoreError
from petstore.http import store
from petstore.http.store import SharedStore, WatchedStore, shared_store_bytes
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
    """Opens repositories that can be lost, and opened again unless the reason is left."""

    def __init__(self, *, notes: bool) -> None:
        self.error: Exception | None = None
        self.seen: list[Expected] = []
        self._writes_notes = notes

    @asynccontextmanager
    async def open(self, expected: Expected) -> AsyncIterator[Repository]:
        self.seen.append(expected)
        if self.error is not None:
            raise self.error
        if self._writes_notes and expected.notes is not None:
            expected.notes.write(b"1")
        losing = self

        class Lost(MemoryRepository):
            async def check(self) -> None:
                if losing.error is not None:
                    raise losing.error

        yield Lost()


async def test_a_worker_that_starts_does_not_take_back_that_the_store_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "CHECK_SECONDS", 0.01)
    backend, used = Losing(notes=True), list[Repository]()
    shared = SharedStore(bytearray(shared_store_bytes(1)))

    @asynccontextmanager
    async def open_(expected: Expected) -> AsyncIterator[Repository]:
        async with backend.open(expected) as repository:
            shared.lost = "lost"  # another worker has found that
            yield repository

    async with WatchedStore(open_, Expected(), shared, used.append, None).opened():
        await asyncio.sleep(0.1)
        with pytest.raises(WrongStoreError, match="lost"):
            await used[-1].list_pets(PetQuery(0, 1))


@pytest.mark.parametrize("notes", [True, False])
async def test_a_store_that_is_lost_is_opened_again_by_backends_that_write_notes(
    monkeypatch: pytest.MonkeyPatch, *, notes: bool
) -> None:
    monkeypatch.setattr(store, "CHECK_SECONDS", 0.01)
    memory = bytearray(shared_store_bytes(2))
    backend, used = Losing(notes=notes), dict[int, Repository]()
    workers = [
        WatchedStore(
            backend.open,
            Expected(),
            SharedStore(memory, number, 2),
            lambda repository, number=number: used.update({number: repository}),  # type: ignore[misc]
            None,
        )
        for number in range(2)
    ]

    async def all_raise(reason: str) -> None:
        for repository in used.values():
            found = ""
            try:
                await repository.list_pets(PetQuery(0, 1))
            except WrongStoreError as error:
                found = str(error)
            assert found == reason

    async with workers[0].opened(), workers[1].opened():
        await all_raise("")
        backend.error = WrongStoreError("lost")
        await again(lambda: all_raise("lost"), AssertionError)
        if notes:
            backend.error = WrongStoreError("changed")
            await again(lambda: all_raise("changed"), AssertionError)
        backend.error = None
        if notes:
            await again(lambda: all_raise(""), AssertionError)
            assert any(expected.unchanged and not expected.create for expected in backend.seen)
        else:
            await asyncio.sleep(0.1)
            await all_raise("lost")
            assert len(backend.seen) == 2
