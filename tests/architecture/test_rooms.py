"""The rooms of the package, and which of them may import which."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import ROOT

PETSTORE = ROOT / "petstore"
PLUGINS = sorted((ROOT / "backends").glob("*/petstore_*/"))
TEST_FILES = sorted((*ROOT.glob("tests/**/*.py"), *ROOT.glob("backends/*/tests/**/*.py")))
FILES = [*sorted(PETSTORE.rglob("*.py")), *ROOT.glob("backends/*/petstore_*/**/*.py"), *TEST_FILES]

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


def imported(file: Path) -> Iterator[str]:
    """Yield the full names of all that a file imports, anywhere in it: modules, or parts of one.

    Relative imports begin with a dot.
    """
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import():
                yield from (name.name for name in node.names)
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                yield from (f"{module}.{name.name}" for name in node.names)
            case ast.Call(
                func=ast.Name(name) | ast.Attribute(attr=name), args=[ast.Constant(str(module)), *_]
            ) if name in ("import_module", "__import__"):
                yield module


def name_of(file: Path) -> str:
    """Return the full name of a module."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "backends" and parts[2] != "tests":
        parts = parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


IMPORTS = {name_of(file): sorted(imported(file)) for file in FILES}


def modules(name: str) -> set[str]:
    """Return the modules of this repository that a module imports."""
    found = set()
    for target in IMPORTS[name]:
        part = target
        while part and part not in IMPORTS:  # it is a class, a function or a constant
            part = part.rpartition(".")[0]
        found.add(part)
    return found - {name, ""}


def room_of(module: str) -> str:
    """Return the room, or the top-level module, that a module of petstore belongs to."""
    return [*module.split("."), "__init__"][1]


def find_circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules of which each imports the next one, and the last the first, if there are."""
    while leaves := {module for module, names in graph.items() if not names & graph.keys()}:
        graph = {module: names for module, names in graph.items() if module not in leaves}
    path: list[str] = []
    module = min(graph, default="")
    while module and module not in path:
        path.append(module)
        module = min(graph[module] & graph.keys())
    return path[path.index(module) :] if module else []


OWN = [name for name in IMPORTS if name.split(".")[0] == "petstore"]


@pytest.mark.parametrize("module", OWN)
def test_a_room_imports_only_allowed_rooms(module: str) -> None:
    room = room_of(module)
    for name in modules(module):
        if name != "petstore" and name in OWN:
            assert room_of(name) in ALLOWED[room] | {room}, (
                f"{module} imports {name}, but {room} may import only:"
                f" {', '.join(sorted(ALLOWED[room])) or 'nothing'} (CONTRIBUTING.md, the map)."
                " Move what is needed to a room that both may import, or pass it as an argument"
            )


def test_contributing_shows_the_directions() -> None:
    lines = re.findall(r"^(\w+) +<-  (.+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    shown = {room: set(importers.split(", ")) for room, importers in lines}
    for room in ("config", "observability", "http"):
        importers = {importer for importer, allowed in ALLOWED.items() if room in allowed}
        assert shown[room] == importers - {"cli"}, f"mend the line of {room} in CONTRIBUTING.md"


def test_the_top_level_has_rooms_and_no_other_modules() -> None:
    files = {file.name for file in PETSTORE.glob("*.py")}
    rooms = {file.name for file in PETSTORE.iterdir() if file.is_dir() and any(file.glob("*.py"))}
    assert not files - TOP_LEVEL, "move the module into the room that it belongs to"
    assert not rooms - ROOMS, "a new room needs a row in ALLOWED, here, and one on the map"
    assert files == TOP_LEVEL
    assert rooms == ROOMS


@pytest.mark.parametrize(
    "folder",
    sorted({file.parent for file in PETSTORE.glob("*/**/*.py")} - {PETSTORE / "conformance"}),
    ids=lambda folder: str(folder.relative_to(PETSTORE)),
)
def test_the_init_of_a_room_is_one_sentence(folder: Path) -> None:
    init = folder / "__init__.py"
    assert init.exists(), "add an __init__.py that says in one sentence what the room is for"
    content = ast.parse(init.read_text())
    assert len(content.body) == 1, "nothing but the sentence: import from the room's modules"
    assert re.fullmatch(r"(?:(?!\. ).)+\.", ast.get_docstring(content) or ""), (
        "one sentence, one line"
    )


def test_there_are_no_circular_imports() -> None:
    circle = find_circle({module: modules(module) for module in IMPORTS})
    assert not circle, (
        f"{' imports '.join([*circle, *circle[:1]])}. Move what both need to a module of its own"
    )


def test_imports_are_absolute() -> None:
    found = {name for names in IMPORTS.values() for name in names if name.startswith(".")}
    relative = [module for module, names in IMPORTS.items() if not found.isdisjoint(names)]
    assert not relative, f"{relative} import {sorted(found)}: write the full name"


@pytest.mark.parametrize("module", OWN)
def test_nothing_imports_a_plugin(module: str) -> None:
    plugins = [name for name in IMPORTS[module] if name.startswith(("petstore_", "backends"))]
    assert not plugins, "a plugin is found by its entry point: see config/discovery.py"


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_imports_only_the_contract_of_petstore(plugin: Path) -> None:
    for file in plugin.rglob("*.py"):
        for name in imported(file):
            top, _, rest = name.partition(".")
            if top.startswith("petstore") and top != plugin.name:
                assert (top, rest.split(".")[0]) == ("petstore", "contract"), (
                    f"{file} imports {name}: of petstore, a plugin may import the contract only"
                )


def test_the_contract_imports_only_the_standard_library_and_msgspec() -> None:
    names = {name.split(".")[0] for name in imported(PETSTORE / "contract.py")}
    assert names == {"abc", "collections", "contextlib", "datetime", "enum", "typing", "msgspec"}


@pytest.mark.parametrize("module", IMPORTS)
def test_nothing_imports_a_test_file(module: str) -> None:
    for name in IMPORTS[module]:
        parts = name.split(".")
        assert not [part for part in parts if part.startswith("test_") or part == "conftest"], (
            f"{module} imports {name}: move what tests share to tests/support, or, for the tests of"
            " one backend, to a module beside them"
        )
