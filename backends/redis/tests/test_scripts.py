"""The scripts alone, without a server: what each returns, step by step."""

import re
from collections.abc import Callable

import pytest
from fakeredis import FakeRedis
from petstore_redis.scripts import LUA, Outcome, Script, Scripts, keys

Run = Callable[..., list[object]]
NO_TOKEN = ("", "", "", "")
TOKEN, OTHER = b"\0" * 31 + b"\xff", b"\n" * 32
HEAD, TAIL = b'{"status":"available","id":', b',"name":"Rex","categoryId":7}'
ORDER, REST = b'{"status":"placed","id":', b',"petId":1,"placedAt":"2026-11-21T09:30:00Z"}'


@pytest.fixture
def run() -> Run:
    """Return a function that runs a script on the keys of one partition of an empty store."""
    server, known, names = FakeRedis(), Scripts(guard=False), keys("test", 0)
    server.hset(names["meta"], "store", "s")

    def run(name: str, *arguments: object, place: tuple[int, int] = (1, 0)) -> list[object]:
        script = getattr(known, name)
        given = [names[key] for key in script.keys]
        result: list[object] = server.eval(script.text, len(given), *given, *arguments, *place, "s")
        return result

    return run


def code(name: str) -> str:
    """Return the Lua of a file without its comments."""
    return re.sub(r"--.*", "", LUA.joinpath(name).read_text("utf-8"))


def files() -> list[str]:
    """Return the names of all Lua files, relative to their folder."""
    shared = [f"shared/{file.name}" for file in LUA.joinpath("shared").iterdir()]
    return sorted([*shared, *(file.name for file in LUA.iterdir() if file.is_file())])


def test_lua_uses_each_outcome_and_constant_of_the_header_and_no_others() -> None:
    used = {
        name
        for file in files()
        for name in re.findall(r"\b[A-Z][A-Z_]+\b", re.sub(r"'[^']*'", "", code(file)))
    }
    declared = {outcome.name for outcome in Outcome} | {"MAX_ID", "RUN", "ID_RANGES", "GUARD"}
    assert used == declared | {"ARGV"}


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_the_same_number_in_lua(outcome: Outcome) -> None:
    script = Scripts().create_store
    header = script.text.partition("local key")[0]
    assert FakeRedis().eval(f"{header}return {outcome.name}", 0) == outcome.value


def test_no_outcome_is_written_as_a_number() -> None:
    for file in files():
        assert not re.search(r"return \{\s*\d", code(file)), file


def test_the_header_comment_of_a_script_lists_the_outcomes_that_it_returns() -> None:
    for file in files():
        text = LUA.joinpath(file).read_text("utf-8")
        assert text.startswith("-- "), file
        if "/" in file:
            continue
        comment = "\n".join(line for line in text.splitlines() if line.startswith("--"))
        assert "-- ARGV: " in comment, file
        assert "-- Returns " in comment, file
        returned = {name for name in Outcome.__members__ if re.search(rf"\{{{name}\b", code(file))}
        if "check_token" in code(file):
            returned |= {"REPLAYED", "TOKEN_REUSED"}
        assert returned == {n for n in Outcome.__members__ if f"{{{n}" in comment}, file


def test_a_script_is_given_the_keys_that_it_names() -> None:
    known = {name: one for name, one in vars(Scripts()).items() if isinstance(one, Script)}
    assert sorted(f"{name}.lua" for name in known) == [
        name for name in files() if not name.startswith(("shared/", "upgrade_"))
    ]
    for name, script in known.items():
        assert set(re.findall(r"key\.(\w+)", code(f"{name}.lua"))) <= set(script.keys), name


def test_a_pet_is_created_once_for_each_token(run: Run) -> None:
    token = (TOKEN, OTHER, 100, 200)
    assert run("create_pets", HEAD, TAIL, *NO_TOKEN) == [Outcome.DONE, [Outcome.DONE, b"1"]]
    again = run("create_pets", *2 * (HEAD, TAIL, *token), HEAD, TAIL, *NO_TOKEN)
    replayed = [Outcome.REPLAYED, b"2", b"200"]
    assert again == [Outcome.DONE, [Outcome.DONE, b"2"], replayed, [Outcome.DONE, b"3"]]
    assert run("create_pets", HEAD, TAIL, *token) == [Outcome.DONE, replayed]
    other = (TOKEN, TOKEN, 199, 300)
    assert run("create_pets", HEAD, TAIL, *other) == [Outcome.DONE, [Outcome.TOKEN_REUSED]]
    later = (TOKEN, TOKEN, 200, 300)
    assert run("create_pets", HEAD, TAIL, *later) == [Outcome.DONE, [Outcome.DONE, b"4"]]


def test_partitions_assign_ids_in_turn(run: Run) -> None:
    _, *results = run("create_pets", *3 * (HEAD, TAIL, *NO_TOKEN), place=(16, 5))
    assert results == [[Outcome.DONE, pet_id] for pet_id in (b"6", b"22", b"38")]


def test_an_order_reserves_its_pet_until_it_is_cancelled_or_completed(run: Run) -> None:
    place = ("place_order", ORDER, REST, 1, *NO_TOKEN)
    assert run(*place) == [Outcome.NOT_FOUND]
    run("create_pets", HEAD, TAIL, *NO_TOKEN)
    assert run(*place)[:2] == [Outcome.DONE, b"1"]
    assert run(*place) == [Outcome.CONFLICT]
    cancelled = run("update_order", 1, "cancelled", "available")
    assert cancelled == [Outcome.DONE, ORDER.replace(b"placed", b"cancelled") + b"1" + REST]
    assert run("update_order", 1, "cancelled", "available") == cancelled
    assert run("update_order", 1, "completed", "sold") == [Outcome.CONFLICT]
    assert run("update_order", 9, "completed", "sold") == [Outcome.NOT_FOUND]
    assert run(*place)[:2] == [Outcome.DONE, b"2"]
    assert run("update_order", 2, "completed", "sold")[0] == Outcome.DONE
    assert run(*place) == [Outcome.CONFLICT]
