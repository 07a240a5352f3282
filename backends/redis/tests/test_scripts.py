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
    declared = {outcome.name for outcome in Outcome} | {"MAX_ID", "RUN", "ID_RANGES"}
    assert used == declared | {"ARGV"}


def test_a_script_is_given_the_keys_that_it_names() -> None:
    known = {name: one for name, one in vars(Scripts()).items() if isinstance(one, Script)}
    assert sorted(f"{name}.lua" for name in known) == [
        name for name in files() if not name.startswith(("shared/", "upgrade_"))
    ]
    for name, script in known.items():
        assert set(re.findall(r"key\.(\w+)", code(f"{name}.lua"))) <= set(script.keys), name
