"""The documentation is complete. The other files of this folder test that it works."""

import re
from pathlib import Path

import pytest

from petstore.config import discovery
from petstore.config.errors import PREFIX
from petstore.config.settings import Settings, setting_names
from petstore.http.errors import STATUS
from tests.support.documents import README, ROOT

FOLDERS = ("", "backends/", "backends/*/", "docs/", "docs/decisions/", "docker/", "benchmarks/")
OPERATING = (ROOT / "docs/operating.md").read_text()


def test_every_setting_is_documented() -> None:
    for name in [*setting_names(Settings, PREFIX), f"{PREFIX}CONFIG"]:
        assert f"| `{name}` |" in OPERATING


def test_no_setting_in_the_documentation_is_unknown() -> None:
    known = {*setting_names(Settings, PREFIX), f"{PREFIX}CONFIG"}
    sqlite = discovery.find("sqlite").backend.settings
    known |= set(setting_names(sqlite, f"{PREFIX}SQLITE_"))
    assert set(re.findall(r"PETSTORE_[A-Z_]+[A-Z]", README + OPERATING)) <= known


def test_every_error_code_is_in_the_readme() -> None:
    for code, status in STATUS.items():
        assert f"| `{code}` | {int(status)} |" in README


@pytest.mark.parametrize(
    "file",
    [file for folder in FOLDERS for file in ROOT.glob(f"{folder}*.md")],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_links_between_files_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target


@pytest.mark.parametrize("file", sorted(ROOT.glob("docs/decisions/*.md")), ids=lambda f: f.name)
def test_a_decision_record_has_at_most_40_lines(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 40
