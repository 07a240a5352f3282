"""A store of several partitions of which some were emptied: it is not opened as if it were new.

Otherwise ids of pets that were lost would be assigned again. A first start that was interrupted
looks alike but for the mark that each partition gets once all exist.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from petstore_redis.masters import Masters

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.stores import fresh, opened
from petstore.contract import UnavailableError
from tests.support.repositories import REX, make_token, pets, refused
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

SIZE = 3
GIVE_UP = "HSET {{{prefix}:1}}:meta schema 2 partitions {size} id_range 123456"


def create(
    place: Server, prefix: str, tokens: range = range(2 * SIZE), **settings: float
) -> list[int]:
    """Open the store and add a pet for each token, each partition in turn; return their ids."""

    async def run() -> list[int]:
        async with opened(place, prefix=prefix, partitions=SIZE, **settings) as repository:
            made = [await repository.create_pet(REX, make_token(n)) for n in tokens]
            return [receipt.id for receipt in made]

    return asyncio.run(run())


def stored(place: Server, prefix: str) -> list[int]:
    async def run() -> list[int]:
        async with opened(place, prefix=prefix, partitions=SIZE) as repository:
            return [pet.id for pet in await pets(repository)]

    return asyncio.run(run())


def keys(server: Server, prefix: str, partition: int | str = "*") -> list[str]:
    return sorted(server.call("KEYS", f"{{{prefix}:{partition}}}:*"))


def empty(server: Server, prefix: str, partition: int) -> None:
    server.call("DEL", *keys(server, prefix, partition))


def refusal(place: Server, prefix: str) -> str:
    return refused(opened(place, prefix=prefix, partitions=SIZE))


@pytest.mark.parametrize("lost", [(0,), (1, 2)])
@pytest.mark.parametrize("pets", [0, 2 * SIZE])
def test_a_store_with_an_emptied_partition_is_refused(
    valkey: Server, lost: tuple[int, ...], pets: int
) -> None:
    prefix = fresh()
    create(valkey, prefix, range(pets))
    for partition in lost:
        empty(valkey, prefix, partition)
    before = keys(valkey, prefix)
    assert refusal(valkey, prefix) == (
        f"redis at redis://127.0.0.1:{valkey.port} has nothing of partition {lost[0]}"
        f" ({{{prefix}:{lost[0]}}}:meta), but other partitions of the store exist: it was"
        ' emptied, or has lost its data. Restore its data, or read "An emptied partition" in the'
        " README of petstore-redis"
    )
    assert keys(valkey, prefix) == before


def test_a_store_from_before_the_mark_is_refused_too_and_gets_it_if_it_is_whole(
    valkey: Server,
) -> None:
    prefix = fresh()
    metas = [f"{{{prefix}:{partition}}}:meta" for partition in range(SIZE)]
    made = create(valkey, prefix)
    for meta in metas:
        assert valkey.call("HDEL", meta, "complete") == 1
    assert stored(valkey, prefix) == sorted(made)
    assert [valkey.call("HGET", meta, "complete") for meta in metas] == ["1"] * SIZE
    for meta in metas:
        valkey.call("HDEL", meta, "complete")
    empty(valkey, prefix, 1)
    assert "has nothing of partition 1" in refusal(valkey, prefix)


def test_a_first_start_that_is_interrupted_anywhere_is_continued_by_the_next(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Interruption(monkeypatch, 1000)
    create(valkey, fresh(), range(0))
    monkeypatch.undo()
    assert whole.calls == 4 * SIZE  # each partition is checked, created, marked, tried
    for commands in range(whole.calls):
        prefix = fresh()
        Interruption(monkeypatch, commands)
        with pytest.raises(UnavailableError, match="interrupted"):
            create(valkey, prefix, timeout_seconds=PATIENCE)  # it then tries TLS for as long
        monkeypatch.undo()
        assert len(create(valkey, prefix)) == 2 * SIZE
        empty(valkey, prefix, commands % SIZE)
        assert "has nothing of partition" in refusal(valkey, prefix)


class Interruption:
    """Lets the first commands of a start pass, and none after them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, commands: int) -> None:
        self.calls = 0
        send: Callable[..., Any] = Masters.send

        async def interrupted(*arguments: Any, **named: bool) -> Any:
            self.calls += 1
            if self.calls > commands:
                raise UnavailableError("interrupted")
            return await send(*arguments, **named)

        monkeypatch.setattr(Masters, "send", interrupted)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_emptied_partition_can_be_given_up_and_no_id_is_assigned_again(
    tmp_path: Path, *, restarted: bool
) -> None:
    """As the README says. A server that was restarted assigns ids of an id range of its own."""
    with single(tmp_path, *AOF) as server:
        prefix = fresh()
        made = create(server, prefix)
        if restarted:
            server.restart()
            made += create(server, prefix, range(50, 50 + 2 * SIZE))
        empty(server, prefix, 1)
        server.call(*GIVE_UP.format(prefix=prefix, size=SIZE).split())
        kept = [pet for pet in made if (pet - 1) % SIZE != 1]
        assert stored(server, prefix) == sorted(kept)
        assert len(made) - len(kept) == len(made) // SIZE
        added = create(server, prefix, range(100, 100 + 3 * SIZE))
        assert not {*made} & {*added}
        assert any((pet - 1) % SIZE == 1 for pet in added)
