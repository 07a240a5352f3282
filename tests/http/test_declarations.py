"""What the service declares with Litestar has an effect: the routes are compiled from it.

Litestar's own dispatch serves no request, so any other option would be ignored.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from litestar.config.app import AppConfig

import petstore.http
from petstore.http.routes import Routes

IMPORTS: Final = {
    # What the routes are compiled from.
    *("Controller", "Litestar", "Router", "get", "post", "put", "patch", "delete"),
    *("AppConfig", "FromPath", "JSONBody", "MediaType"),
    # What has no effect on a request: types, and what the routes read.
    *("ASGIApp", "Guard", "HTTPRoute", "HTTPRouteHandler", "Receive", "Send"),
}
OPTIONS: Final = {
    # What is served, and the life of the application.
    *("path", "route_handlers", "lifespan"),
    # What a request meets.
    *("guards", "request_max_body_size", "status_code", "media_type", "opt"),
    # What the OpenAPI document says.
    *("operation_id", "summary", "description", "tags", "deprecated"),
}
DECLARING: Final = {"AppConfig", "Litestar", "Router", "get", "post", "put", "patch", "delete"}
PATH: Final = re.compile(r"[a-z/._]*(\{[a-z_]+:str\})?")
REMEDY: Final = "has no effect: do it in the handler, in a guard, or in petstore/http/service.py"


def declared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what is imported from Litestar, and each option, with its line, that has no effect."""
    for node in ast.walk(tree):
        names: list[str | None] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("litestar"):
            names = [alias.name for alias in node.names if alias.name not in IMPORTS]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("litestar")]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DECLARING:
            names = [keyword.arg for keyword in node.keywords if keyword.arg not in OPTIONS]
            texts = [path.value for path in node.args if isinstance(path, ast.Constant)]
            names += [
                f"{path!r}, but for one parameter of type str at its end,"
                for path in texts
                if not PATH.fullmatch(str(path))
            ]
        elif isinstance(node, ast.ClassDef) and "Controller" in map(ast.unparse, node.bases):
            assigned = [part for part in node.body if isinstance(part, ast.Assign)]
            targets = [ast.unparse(target) for part in assigned for target in part.targets]
            names = [name for name in targets if name not in OPTIONS]
        yield from ((node.lineno, f"{name} {REMEDY}") for name in names)  # type: ignore[attr-defined] # each of these has a line


def test_every_option_that_is_declared_has_an_effect() -> None:
    for path in Path(petstore.http.__path__[0]).rglob("*.py"):
        found = [f"{path}:{line}: {text}" for line, text in declared(ast.parse(path.read_text()))]
        assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from litestar.di import Provide", "Provide"),
        ("from litestar import Request, get", "Request"),
        ("import litestar.middleware", "litestar.middleware"),
        ("AppConfig(route_handlers=[], middleware=[])", "middleware"),
        ("Router('/', route_handlers=[], after_request=None)", "after_request"),
        ("@get('/', cache=True)\nasync def show(): ...", "cache"),
        ("@get('/', **more)\nasync def show(): ...", "None"),
        (
            "@get('/{a:int}')\nasync def show(): ...",
            "'/{a:int}', but for one parameter of type str at its end,",
        ),
        ("class Pets(Controller):\n    path = '/'\n    dependencies = {}", "dependencies"),
    ],
)
def test_one_that_has_none_is_named_with_what_to_do(source: str, name: str) -> None:
    assert [text for _, text in declared(ast.parse(source))] == [f"{name} {REMEDY}"]


def test_what_litestar_would_import_in_vain_is_left_out_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = "litestar.plugins.opentelemetry"
    monkeypatch.delitem(sys.modules, plugin, raising=False)
    Routes(AppConfig())
    assert plugin not in sys.modules
    assert importlib.import_module(plugin)  # it can still be imported
