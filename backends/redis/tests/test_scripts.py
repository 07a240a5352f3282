"""The Lua files: what they name is what Python declares, and their comments say what they do."""

import re

from petstore_redis.scripts import LUA, Outcome, Script, Scripts


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
