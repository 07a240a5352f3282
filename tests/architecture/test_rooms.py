"""The rooms of the package, and which of them may import which."""

import ast
from pathlib import Path

import pytest

from tests.support.documents import ROOT

PETSTORE = ROOT / "petstore"
PLUGINS = sorted((ROOT / "backends").glob("*/petstore_*/"))
FILES = sorted(PETSTORE.rglob("*.py"))
TEST_FILES = sorted((*ROOT.glob("tests/**/*.py"), *ROOT.glob("backends/*/tests/*.py")))

TOP_LEVEL = {"__init__.py", "__main__.py", "cli.py", "contract.py"}
ROOMS = {"config", "conformance", "http", "observability", "server", "transfer"}

# room or top-level module -> those that it may import; a plugin may import the contract only
ALLOWED: dict[str, set[str]] = {
    "contract": set(),
    "config": {"contract"},
    "conformance": {"contract"},
    "observability": {"config", "contract"},
    "http": {"config", "contract", "observability"},
    "server": {"config", "contract", "http", "observability"},
    "transfer": {"config", "contract", "http"},
    "cli": {"contract", *ROOMS},
    "__main__": {"cli"},
    "__init__": set(),
}


def imported(file: Path) -> set[str]:
    """Return the full names of the modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            found |= {f"{module}.{name.name}" for name in node.names} | {module}
    return found


def name_of(file: Path) -> str:
    """Return the full name of a module of petstore."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): imported(file) for file in FILES}


def room_of(module: str) -> str:
    """Return the room, or the top-level module, that a module of petstore belongs to."""
    return [*module.split("."), "__init__"][1]


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_allowed_rooms(module: str) -> None:
    room = room_of(module)
    of_petstore = {name for name in MODULES[module] if name in MODULES and name != "petstore"}
    assert {room_of(name) for name in of_petstore} <= ALLOWED[room] | {room}


def test_the_top_level_has_no_other_modules_and_every_room_has_a_sentence() -> None:
    assert {file.name for file in PETSTORE.glob("*.py")} == TOP_LEVEL
    assert {file.parent.name for file in PETSTORE.glob("*/__init__.py")} == ROOMS
    for room in ROOMS - {"conformance"}:
        (sentence,) = ast.parse((PETSTORE / room / "__init__.py").read_text()).body
        assert isinstance(sentence, ast.Expr)
        assert "\n" not in ast.literal_eval(sentence.value)


def test_there_are_no_circular_imports() -> None:
    graph = {module: names & (MODULES.keys() - {module}) for module, names in MODULES.items()}
    while leaves := {module for module, names in graph.items() if not names & graph.keys()}:
        graph = {module: names for module, names in graph.items() if module not in leaves}
    assert not graph


@pytest.mark.parametrize("module", MODULES)
def test_nothing_imports_a_plugin(module: str) -> None:
    assert not [name for name in MODULES[module] if name.startswith("petstore_")]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_imports_only_the_contract_of_petstore(plugin: Path) -> None:
    for file in plugin.rglob("*.py"):
        names = {name for name in imported(file) if name.split(".")[0] == "petstore"}
        assert all(name.startswith("petstore.contract") for name in names), file


def test_the_contract_imports_only_the_standard_library_and_msgspec() -> None:
    names = {name.split(".")[0] for name in imported(PETSTORE / "contract.py")}
    assert names == {"abc", "collections", "contextlib", "datetime", "enum", "typing", "msgspec"}


@pytest.mark.parametrize("file", TEST_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_imports_a_test_file(file: Path) -> None:
    parts = {part for name in imported(file) for part in name.split(".")[:-1]}
    modules = {name.rpartition(".")[2] for name in imported(file) if name.startswith("tests.")}
    assert not [name for name in parts | modules if name.startswith("test_") or name == "conftest"]
