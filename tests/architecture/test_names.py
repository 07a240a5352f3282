"""Names: public ones are unique, and there is one version."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version

import petstore
from tests.support.documents import ROOT

SOURCES = [*ROOT.glob("petstore/**/*.py"), *ROOT.glob("backends/*/petstore_*/**/*.py")]
SOURCES += ROOT.glob("conformance/petstore_conformance/**/*.py")


def defined(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the classes and constants that statements define, except type variables."""
    for node in statements:
        match node:
            case ast.ClassDef(name):
                yield name
            case ast.Assign(targets, value) if not ast.unparse(value).startswith("TypeVar("):
                names = [part for target in targets for part in ast.walk(target)]
                yield from (part.id for part in names if isinstance(part, ast.Name))
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr()):
                yield name
            case ast.If() | ast.Try():
                handlers = node.handlers if isinstance(node, ast.Try) else []
                bodies = [node.body, node.orelse, *(handler.body for handler in handlers)]
                yield from {name for body in bodies for name in defined(body)}


def test_no_two_public_classes_or_constants_share_a_name() -> None:
    places = defaultdict(list)
    for file in SOURCES:
        for name in defined(ast.parse(file.read_text()).body):
            if name[0].isupper():
                places[name].append(str(file.relative_to(ROOT)))
    assert len(places) > 150
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice, "rename one, begin it with _ if its module alone uses it, or import the other"


def test_a_name_is_imported_from_the_module_that_defines_it() -> None:
    passed_on = []
    for file in SOURCES:
        if file.name == "__init__.py":  # that of a public package passes on its own classes
            continue
        body = ast.parse(file.read_text()).body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.asname for node in imports for name in node.names if name.name == name.asname}
        if names or "__all__" in defined(body):
            passed_on.append(str(file.relative_to(ROOT)))
    assert not passed_on, "import a name from the module that defines it, where it is needed"


def test_the_version_of_all_distributions_is_in_one_file() -> None:
    for file in [
        ROOT / "pyproject.toml",
        *ROOT.glob("*/pyproject.toml"),
        *ROOT.glob("backends/*/pyproject.toml"),
    ]:
        project = tomllib.loads(file.read_text())
        path = file.parent / project["tool"]["hatch"]["version"]["path"]
        assert project["project"]["dynamic"] == ["version"]
        assert path.resolve() == ROOT / "petstore" / "__init__.py"
        assert version(project["project"]["name"]) == petstore.__version__
