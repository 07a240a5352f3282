"""Names: public ones are unique, keys of the ASGI scope are declared, there is one version."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import petstore
from petstore.http.scope import RequestScope
from tests.support.documents import ROOT

SOURCES = [*ROOT.glob("petstore/**/*.py"), *ROOT.glob("backends/*/petstore_*/**/*.py")]

# The keys of the ASGI specification that are used.
ASGI_KEYS = {
    "extensions",
    "headers",
    "method",
    "path",
    "query_string",
    "raw_path",
    "type",
    "http_version",
}


def public_names(file: Path) -> Iterator[str]:
    """Yield the public classes and constants that a module defines, except type variables."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = ast.unparse(node.value)
            for target in targets:
                if isinstance(target, ast.Name) and not value.startswith("TypeVar("):
                    yield target.id


def test_no_two_public_classes_or_constants_share_a_name() -> None:
    places = defaultdict(list)
    for file in SOURCES:
        for name in public_names(file):
            if name[0].isupper():
                places[name].append(str(file.relative_to(ROOT)))
    assert len(places) > 150
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_key_of_the_scope_is_declared() -> None:
    used = set()
    for file in SOURCES:
        used |= set(re.findall(r'\bscope(?:\[|\.get\(|\.pop\()"(\w+)"', file.read_text()))
    declared = RequestScope.__required_keys__ | RequestScope.__optional_keys__
    assert {"request_id", "rate_limit", "slot"} <= used
    assert used - ASGI_KEYS <= declared
    documented = set(re.findall(r"^ *([a-z_, ]+) --", RequestScope.__doc__ or "", re.MULTILINE))
    documented = {key for line in documented for key in line.split(", ")}
    assert used - ASGI_KEYS <= documented


def test_the_version_of_all_distributions_is_in_one_file() -> None:
    for file in [ROOT / "pyproject.toml", *ROOT.glob("backends/*/pyproject.toml")]:
        project = tomllib.loads(file.read_text())
        path = file.parent / project["tool"]["hatch"]["version"]["path"]
        assert project["project"]["dynamic"] == ["version"]
        assert path.resolve() == ROOT / "petstore" / "__init__.py"
        assert version(project["project"]["name"]) == petstore.__version__
