"""The runbook has every alert, and every line that the running service may log."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.documents import ROOT

RUNBOOK = (ROOT / "docs/runbook.md").read_text()
LINES = "\n".join(re.findall(r"`([^`]+)`", RUNBOOK))
ERRORS = {"StorageError", "UnavailableError", "UnusableError", "WrongStoreError"}
"""What a request may raise; the service logs its message."""


def template(node: ast.expr) -> str:
    """Return a message as the runbook writes it: with dots for what varies."""
    match node:
        case ast.Constant(str(text)):
            return re.sub(r"%[a-z]", "…", text)
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


def messages() -> Iterator[str]:
    """Return a phrase of each message of the service and the backends: its first of three words."""
    files = [*ROOT.glob("petstore/**/*.py"), *ROOT.glob("backends/*/petstore_*/*.py")]
    for file in files:
        if "transfer" not in file.parts:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and (found := message(node)) is not None:
                    phrases = re.split(r"[…:;,.()]+", template(found))
                    longest = max(phrases, key=len)
                    phrase = next((each for each in phrases if len(each.split()) > 2), longest)
                    if phrase.strip():
                        yield phrase.strip()


@pytest.mark.parametrize("text", sorted(set(messages())))
def test_each_line_of_the_log_is_in_the_runbook(text: str) -> None:
    assert text in LINES


def test_each_alert_is_in_the_runbook_and_refers_to_it() -> None:
    rules = (ROOT / "docker/alerts.yaml").read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    section = RUNBOOK.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == alerts
    links = re.findall(r"runbook: (\S+)", rules)
    assert links == [f"docs/runbook.md#{alert.lower()}" for alert in alerts]
