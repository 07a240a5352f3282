"""The house: who may import whom, and that no file outgrows its room."""

import ast
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import petstore

ROOT = Path(__file__).parent.parent
PETSTORE = ROOT / "petstore"
BACKENDS = sorted((ROOT / "backends").glob("*/petstore_*/"))

PLACES = ("petstore", "backends", "tests", "benchmarks", "docker", "docs")
WRITTEN = (".css", ".go", ".js", ".md", ".mts", ".py", ".yaml")

# module -> the modules of the house that it may import, beside those below the same name
ALLOWED: dict[str, set[str]] = {
    "contract": set(),
    "settings": set(),
    "service": {"contract"},
    "deprecation": set(),
    "errors": {"contract"},
    "paging": {"errors"},
    "log": {"settings"},
    "backends": {"contract", "settings"},
    "auth": {"errors"},
    "openapi": {"contract", "deprecation", "errors", "openapi_texts", "paging"},
    "openapi_texts": set(),
    "request_id": set(),
    "edge": {
        "api",
        "contract",
        "deprecation",
        "errors",
        "headers",
        "limits",
        "log",
        "metrics",
        "request_id",
        "service",
    },
    "cors": {"headers"},
    "headers": set(),
    "limits": {"errors", "headers"},
    "metrics": {"settings"},
    "tracing": set(),
    "api": {"contract", "deprecation", "errors", "paging", "service", "settings"},
    "protocol": {"errors", "headers", "log", "request_id"},
    "app": {
        "api",
        "auth",
        "backends",
        "cors",
        "edge",
        "metrics",
        "openapi",
        "limits",
        "service",
        "settings",
    },
    "configuration": {"auth", "backends", "settings"},
    "server": {"app", "protocol", "service", "settings", "tracing"},
    "workers": {"app", "configuration", "contract", "log", "metrics", "server", "settings"},
    "startup": {"app", "configuration", "limits", "metrics", "server", "settings", "workers"},
    "conformance": {"contract"},
    "moving": {"configuration", "contract", "paging", "settings"},
    "cli": {
        "app",
        "auth",
        "backends",
        "configuration",
        "conformance",
        "contract",
        "log",
        "moving",
        "settings",
        "startup",
    },
    "__main__": {"cli"},
    "__init__": set(),
}


def imported(file: Path) -> set[str]:
    """Return the full names of the modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            found |= {f"{module}.{name.name}" for name in node.names} | {module}
    return found


def rooms(file: Path) -> set[str]:
    """Return the modules of petstore that a file imports."""
    names = {name.split(".")[1] for name in imported(file) if name.startswith("petstore.")}
    return {
        name for name in names if (PETSTORE / name).exists() or (PETSTORE / f"{name}.py").exists()
    }


@pytest.mark.parametrize("file", sorted(PETSTORE.rglob("*.py")), ids=lambda file: file.stem)
def test_a_module_imports_only_what_it_may(file: Path) -> None:
    name = file.relative_to(PETSTORE).parts[0].removesuffix(".py")
    assert rooms(file) <= ALLOWED[name] | {name}


@pytest.mark.parametrize("file", sorted(PETSTORE.rglob("*.py")), ids=lambda file: file.stem)
def test_nothing_imports_a_plugin(file: Path) -> None:
    assert not [name for name in imported(file) if name.startswith("petstore_")]


@pytest.mark.parametrize("place", BACKENDS, ids=lambda place: place.name)
def test_a_plugin_imports_the_contract_and_nothing_else_of_petstore(place: Path) -> None:
    for file in place.rglob("*.py"):
        assert rooms(file) <= {"contract"}, file


def test_the_contract_imports_the_standard_library_and_msgspec_only() -> None:
    names = {name.split(".")[0] for name in imported(PETSTORE / "contract.py")}
    assert names == {"abc", "collections", "contextlib", "datetime", "enum", "typing", "msgspec"}


def test_no_file_has_over_300_lines() -> None:
    files = [*ROOT.glob("*.md"), *(f for place in PLACES for f in (ROOT / place).rglob("*.*"))]
    mine = [f for f in files if f.suffix in WRITTEN and "node_modules" not in f.parts]
    assert len(mine) > 200
    assert not [str(f) for f in mine if len(f.read_text().splitlines()) > 300]


def test_the_version_of_all_distributions_stands_in_one_place() -> None:
    for file in [ROOT / "pyproject.toml", *ROOT.glob("backends/*/pyproject.toml")]:
        project = tomllib.loads(file.read_text())
        path = file.parent / project["tool"]["hatch"]["version"]["path"]
        assert project["project"]["dynamic"] == ["version"]
        assert path.resolve() == PETSTORE / "__init__.py"
        assert version(project["project"]["name"]) == petstore.__version__
