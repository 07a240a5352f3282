"""What import-linter cannot say of the packages: no circles, their sentences, what tests import."""

import ast
import re
from graphlib import TopologicalSorter
from typing import Final

import grimp

from tests.support.documents import ROOT

PETSTORE: Final = ROOT / "petstore"
KIT: Final = ROOT / "conformance" / "petstore_conformance"
PLUGINS: Final = [folder.name for folder in ROOT.glob("backends/*/petstore_*/")]
GRAPH: Final = grimp.build_graph(
    "petstore", "petstore_conformance", *PLUGINS, include_external_packages=True
)


def test_there_are_no_circular_imports() -> None:
    # Mend one by moving what both modules need to a module of its own.
    imports = {module: GRAPH.find_modules_directly_imported_by(module) for module in GRAPH.modules}
    TopologicalSorter(imports).prepare()


def test_the_contract_imports_only_the_standard_library_and_msgspec() -> None:
    names = GRAPH.find_modules_directly_imported_by("petstore.contract")
    assert names == {"abc", "collections", "contextlib", "datetime", "enum", "typing", "msgspec"}


def test_the_init_of_a_package_is_one_sentence() -> None:
    folders = {file.parent for file in PETSTORE.glob("*/**/*.py")}
    folders |= {file.parent for file in KIT.glob("*/*.py")}
    assert len(folders) > 5
    wrong = []
    for folder in folders:
        body = ast.parse((folder / "__init__.py").read_text()).body
        match body:
            case [ast.Expr(ast.Constant(str(text)))] if re.fullmatch(r"(?:(?!\. ).)+\.", text):
                pass
            case _:
                wrong.append(folder.name)
    assert not wrong, "one line that says what the package is for; import from its modules"


def test_nothing_imports_a_test_file() -> None:
    importing = re.compile(r"^\s*(from|import) .*\b(test_\w+|conftest)\b", re.MULTILINE)
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("backends/**/*.py"), *PETSTORE.rglob("*.py")]
    files += ROOT.glob("conformance/**/*.py")
    assert len(files) > 250
    wrong = [str(file) for file in files if importing.search(file.read_text())]
    assert not wrong, "move what tests share to tests/support, or to a module beside a plugin's"
