"""The runbook has every alert, and the lines that the running service may log, word for word."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.documents import ROOT
from tests.support.promtool import ALERTS, RULES

RUNBOOK = (ROOT / "docs/runbook.md").read_text()
FILES = [*ROOT.glob("petstore/**/*.py"), *ROOT.glob("backends/*/petstore_*/*.py")]
ERRORS = {"StorageError", "UnavailableError", "UnusableError", "WrongStoreError"}
"""What a request may raise; the service logs its message."""


def template(node: ast.expr) -> str:
    """Return a message as the runbook writes it: with dots for what varies."""
    match node:
        case ast.Constant(str(text)):
            return re.sub(r"%[.\d]*[a-z]", "…", text)
        case ast.JoinedStr(parts):
            return "".join(template(part) for part in parts)
        case ast.BinOp(left, ast.Add(), right):
            return template(left) + template(right)
    return "…"


def message(call: ast.Call) -> ast.expr | None:
    """Return the message of a call that logs, or makes an error, or a thread that logs."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    function, arguments = keywords.get("target", call.func), call.args
    if function is not call.func and isinstance(given := keywords.get("args"), ast.Tuple):
        arguments = given.elts
    logs = re.fullmatch(r"_log\.(info|warning|error|exception)", ast.unparse(function))
    makes = isinstance(function, ast.Name) and function.id in ERRORS
    return arguments[0] if arguments and (logs or makes) else None


def shape(text: str) -> str:
    """Return a line without the name of the storage before it and what varies after it."""
    text = re.sub("(NAME|sqlite at …|…)+", "…", text)
    return re.sub(r"^(…[:;]? )+| ?[…:]+$|^…$", "", text)


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    """Return all parts of the code of the service and its backends."""
    trees = [ast.parse(file.read_text()) for file in FILES if "transfer" not in file.parts]
    return [node for tree in trees for node in ast.walk(tree)]


def lines() -> Iterator[str]:
    """Return the lines in the first columns of the tables."""
    log = RUNBOOK.partition("\n## The log\n")[2]
    for cell in re.findall(r"^\| (`.*?`) \|", log, re.MULTILINE):
        yield from (line for line in map(shape, re.findall("`([^`]+)`", cell)) if line)


def test_each_line_of_the_log_is_in_the_runbook(nodes: list[ast.AST]) -> None:
    # Word for word; the runbook may leave out what follows a colon or the end of a clause.
    calls = [found for node in nodes if isinstance(node, ast.Call) and (found := message(node))]
    said = {text for call in calls if re.search(r"\w", text := shape(template(call)))}
    assert len(said) > 50
    for text in said:
        rests = [text.removeprefix(line) for line in lines() if text.startswith(line)]
        assert any(re.match("$| ?[…:;,.(]", rest) for rest in rests), text


def test_each_line_of_the_runbook_is_in_the_code(nodes: list[ast.AST]) -> None:
    code = "\n".join({template(node) for node in nodes if isinstance(node, ast.expr)})
    for line in lines():
        assert re.search(re.escape(line).replace("…", ".+"), code), line


def test_each_alert_is_in_the_runbook_and_refers_to_it() -> None:
    section = RUNBOOK.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == ALERTS
    links = re.findall(r"runbook: (\S+)", RULES)
    assert links == [f"docs/runbook.md#{alert.lower()}" for alert in ALERTS]
