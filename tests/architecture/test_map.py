"""The map in CONTRIBUTING.md is that of the code: packages, modules, directions and names."""

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.documents import ROOT

CONTRIBUTING: Final = (ROOT / "CONTRIBUTING.md").read_text()
MAP: Final = CONTRIBUTING.partition("## The map")[2].partition("\n## ")[0]
PARAGRAPHS: Final = re.findall(r"^\*\*An? ([\w ]+)\.\*\* (.*?)\n\n", MAP, re.MULTILINE | re.DOTALL)
PETSTORE: Final = ROOT / "petstore"
PACKAGES: Final = [
    PETSTORE / package
    for package in ("config", "http", "observability", "server", "store", "text", "transfer")
]


def test_the_map_has_all_that_is_in_petstore() -> None:
    for file in PETSTORE.iterdir():
        if file.name not in ("__init__.py", "__main__.py", "__pycache__", "py.typed"):
            assert f"  {file.name}" in MAP, f"{file.name} is not on the map in CONTRIBUTING.md"


def test_the_map_names_every_module_of_a_package() -> None:
    missing = []
    for package in PACKAGES:
        (line,) = re.findall(rf"^  {package.name}/ (.*(?:\n {{10,}}.*)*)", MAP, re.MULTILINE)
        named = set(re.findall(r"\w+", line))
        missing += [file for file in package.glob("[!_]*") if file.stem not in named]
    assert not missing


def test_the_map_shows_which_packages_import_which() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers = tools["importlinter"]["contracts"][0]["layers"]
    assert "\n".join(layers[1:]) in MAP


def test_there_is_a_paragraph_for_each_subject() -> None:
    subjects = ["request", "page", "order", "record", "second", "stop", "store", "share"]
    assert [subject for subject, _ in PARAGRAPHS] == [*subjects, "setting", "error"]


def defined(statements: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield the names of classes, their methods and functions."""
    for node in statements:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from defined(node.body, f"{node.name}.")


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Return the names of all classes, methods and functions of petstore."""
    trees = [ast.parse(file.read_text()) for file in PETSTORE.rglob("*.py")]
    return {name.removeprefix("Repository.") for tree in trees for name in defined(tree.body)}


@pytest.mark.parametrize(("subject", "text"), PARAGRAPHS)
def test_a_paragraph_names_files_and_functions_that_exist(
    subject: str, text: str, known: set[str]
) -> None:
    interface = {"Link", "Retry-After", "limit", "cursor", "/readyz"}
    for name in set(re.findall(r"`([^`]+)`", text)) - interface:
        if name.endswith(".py") or "/" in name:
            assert (PETSTORE / name).exists(), f"{name}: there is no such file in petstore/"
        else:
            assert name in known, f"{name} is not defined in petstore/"
