"""The documentation is executed, and leaves nothing out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from petstore.errors import Code
from petstore.settings import PREFIX, Settings, setting_names
from tests.live import Live, environment

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FOLDERS = ("", "backends/", "backends/*/", "docs/", "docs/decisions/", "docker/", "benchmarks/")
OPERATING = (ROOT / "docs/operating.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
CURL = [block for block in BLOCKS if block.startswith("curl")]
COMMANDS = [line for block in BLOCKS if block not in CURL for line in block.splitlines()]


def bash(script: str, **more: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        env=environment() | {"PATH": path} | more,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_requests_of_the_readme_work(fresh: Live) -> None:
    def answer(block: str) -> str:
        run = bash(block.replace("http://127.0.0.1:8000", fresh.url), KEY=fresh.key)
        assert run.returncode == 0, run.stderr
        return re.sub(r'("placedAt":)"[^"]+"', r'\1"2026-11-21T09:30:00.123456Z"', run.stdout)

    answers = [answer(block) for block in CURL]
    statuses = [text.split()[1] for text in answers]
    assert statuses == ["201", "200", "200", "201", "409", "200"]
    shown = re.findall(r"^```http\n(HTTP/1.1 (?!200).*?)^```", README, re.MULTILINE | re.DOTALL)
    for example, answered in zip(shown, (answers[0], *answers[3:5]), strict=True):
        for line in example.splitlines():
            assert line in answered.splitlines(), "the answer that the README shows"
    assert "\ndeprecation: " in answers[2]
    assert "\nsunset: " in answers[2]
    assert '"status":"completed"' in answers[5]


def test_the_order_of_the_readme_can_be_sent_again(fresh: Live) -> None:
    script = "\n".join([CURL[0], CURL[3], CURL[3]])
    run = bash(script.replace("http://127.0.0.1:8000", fresh.url), KEY=fresh.key)
    _, first, again = run.stdout.split("HTTP/1.1 ")[1:]
    assert "\nidempotency-replayed: true\n" in again
    assert "\nidempotency-replayed" not in first
    assert again.splitlines()[-1] == first.splitlines()[-1]


def test_the_links_of_the_readme_look_as_shown(fresh: Live) -> None:
    for _ in range(51):
        body = {"name": "n", "categoryId": 1, "status": "available"}
        fresh.client.post("/v1/pets", json=body)
    answer = fresh.client.get("/v1/pets?status=available&limit=50")
    assert f"link: {answer.headers['link']}\n" in README


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_readme_work(line: str) -> None:
    line = line.replace("0.0.0.0:8000", "127.0.0.1:0")
    if "serve" in line:
        line = f"timeout --signal=TERM --preserve-status 3 {line}"
    run = bash(line, PETSTORE_BACKEND="memory", PETSTORE_API_KEYS="k", PETSTORE_DRAIN_SECONDS="0")
    assert run.returncode == 0, run.stderr


def test_every_setting_is_documented() -> None:
    for name in [*setting_names(Settings, PREFIX), f"{PREFIX}CONFIG"]:
        assert f"| `{name}` |" in OPERATING


def test_no_setting_in_the_documentation_is_unknown() -> None:
    known = {*setting_names(Settings, PREFIX), f"{PREFIX}CONFIG"}
    assert set(re.findall(r"PETSTORE_[A-Z_]+[A-Z]", README + OPERATING)) <= known


def test_every_error_code_is_in_the_readme() -> None:
    for row in Code:
        assert f"| `{row.code}` | {int(row.status)} |" in README


@pytest.mark.parametrize(
    "file",
    [file for folder in FOLDERS for file in ROOT.glob(f"{folder}*.md")],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_links_between_files_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target


@pytest.mark.parametrize("file", sorted(ROOT.glob("docs/decisions/*.md")), ids=lambda f: f.name)
def test_a_decision_record_has_40_lines_at_most(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 40


def test_the_rooms_on_the_map_are_the_rooms_of_the_house() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for file in (ROOT / "petstore").iterdir():
        if file.name not in ("__init__.py", "__pycache__", "py.typed"):
            assert file.name in contributing, file.name
