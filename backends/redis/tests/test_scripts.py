"""The scripts alone, without a server: what each answers, step by step."""

from collections.abc import Callable

import pytest
from fakeredis import FakeRedis
from petstore_redis import scripts
from petstore_redis.scripts import Scripts, keys

Run = Callable[..., list[object]]
NO_RETRY = ("", "", "", "")
TOKEN, OTHER = b"\0" * 31 + b"\xff", b"\n" * 32
HEAD, TAIL = b'{"status":"available","id":', b',"name":"Rex","categoryId":7}'
ORDER, REST = b'{"status":"placed","id":', b',"petId":1,"placedAt":"2026-11-21T09:30:00Z"}'


@pytest.fixture
def run() -> Run:
    """Return what runs a script on the keys of one partition of an empty store."""
    server, known, names = FakeRedis(), Scripts(guard=False), keys("test", 0)

    def run(name: str, *arguments: object) -> list[object]:
        script = getattr(known, name)
        given = [names[key] for key in script.keys]
        result: list[object] = server.eval(script.text, len(given), *given, *arguments)
        return result

    return run


def test_an_animal_is_created_once_for_each_token(run: Run) -> None:
    retry = (TOKEN, OTHER, 100, 200)
    assert run("create_pet", 1, 0, HEAD, TAIL, *NO_RETRY) == [scripts.DONE, b"1"]
    assert run("create_pet", 1, 0, HEAD, TAIL, *retry)[:2] == [scripts.DONE, b"2"]
    assert run("create_pet", 1, 0, HEAD, TAIL, *retry)[:2] == [scripts.REPLAYED, b"2"]
    other = (TOKEN, TOKEN, 199, 300)
    assert run("create_pet", 1, 0, HEAD, TAIL, *other) == [scripts.TOKEN_REUSED]
    later = (TOKEN, TOKEN, 200, 300)
    assert run("create_pet", 1, 0, HEAD, TAIL, *later)[:2] == [scripts.DONE, b"3"]


def test_partitions_give_out_ids_in_turn(run: Run) -> None:
    found = [run("create_pet", 16, 5, HEAD, TAIL, *NO_RETRY)[1] for _ in range(3)]
    assert found == [b"6", b"22", b"38"]


def test_an_order_reserves_closes_and_gives_back(run: Run) -> None:
    place = ("place_order", 1, 0, ORDER, REST, 1, *NO_RETRY)
    assert run(*place) == [scripts.NOT_FOUND]
    run("create_pet", 1, 0, HEAD, TAIL, *NO_RETRY)
    assert run(*place)[:2] == [scripts.DONE, b"1"]
    assert run(*place) == [scripts.CONFLICT]
    cancelled = run("update_order", 1, "cancelled", "available")
    assert cancelled == [scripts.DONE, ORDER.replace(b"placed", b"cancelled") + b"1" + REST]
    assert run("update_order", 1, "cancelled", "available") == cancelled
    assert run("update_order", 1, "completed", "sold") == [scripts.CONFLICT]
    assert run("update_order", 9, "completed", "sold") == [scripts.NOT_FOUND]
    assert run(*place)[:2] == [scripts.DONE, b"2"]
    assert run("update_order", 2, "completed", "sold")[0] == scripts.DONE
    assert run(*place) == [scripts.CONFLICT]
