"""The documentation is complete. The other files of this folder test that it works."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from petstore_conformance.harness.kit import sentences
from petstore_postgres.schema import LOCK_SECONDS
from petstore_sqlite.schema import WAL_LIMIT

from petstore.config import discovery
from petstore.config.addresses import Address
from petstore.config.errors import PREFIX
from petstore.config.keys import MAX_CLIENTS
from petstore.config.loading import MIN_KEY_CHARACTERS, configure
from petstore.config.settings import Settings, settings_of
from petstore.http.clock import RECORD_SECONDS
from petstore.http.errors import ErrorCode
from petstore.http.shares import LARGE_BODIES_BYTES, UNREAD_BYTES
from petstore.observability.output import MAX_WAITING_BYTES
from petstore.server.connection import MAX_DISCARDED_BYTES, REQUEST_SECONDS
from petstore.server.parser import MAX_HEAD_BYTES
from petstore.server.request_head import MAX_HEADERS
from petstore.server.send_backlog import RESPONSE_SECONDS
from tests.support.documents import README, ROOT, blocks

FOLDERS = ("", "backends/", "backends/*/", "docs/", "docs/decisions/", "docker/", "benchmarks/")
OPERATING = (ROOT / "docs/operating.md").read_text()

RESULTS = (ROOT / "benchmarks/RESULTS.md").read_text()
GET, PAGE, _, CREATE = re.findall(
    r"\(([\d.]+)\)", RESULTS[RESULTS.index("| petstore, log line off |") :].partition("\n")[0]
)
"""CPU over that of the raw function, of the first table."""


@pytest.mark.parametrize("backend", [None, "sqlite", "redis", "postgres"])
def test_every_setting_is_documented_with_its_default(backend: str | None) -> None:
    type_: type[Struct] = Settings
    prefix, file = PREFIX, "docs/operating.md"
    if backend is not None:
        type_ = discovery.find(backend).backend.settings
        prefix, file = f"{PREFIX}{backend.upper()}_", f"backends/{backend}/README.md"
    text = (ROOT / file).read_text()
    for setting in settings_of(type_, prefix):
        assert f"\n| `{setting.name}` | {shown(setting.default)} " in text, setting.name


def test_the_setting_of_the_toml_file_is_documented() -> None:
    assert f"\n| `{PREFIX}CONFIG` | none " in OPERATING


def shown(default: object) -> str:
    """Return a default as the tables of settings show it."""
    match default:
        case msgspec.NODEFAULT:
            return "required"
        case None | "" | ():
            return "none"
        case str() | Address():
            return f"`{default}`"
        case _:
            return json.dumps(default)


def test_no_setting_in_the_documentation_is_unknown() -> None:
    sqlite = discovery.find("sqlite")
    settings = settings_of(Settings, PREFIX) + settings_of(sqlite.backend.settings, sqlite.prefix)
    known = {*(setting.name for setting in settings), f"{PREFIX}CONFIG"}
    assert set(re.findall(r"PETSTORE_[A-Z_]+[A-Z]", README + OPERATING)) <= known


def test_the_example_of_a_file_of_settings_is_accepted(tmp_path: Path) -> None:
    (example,) = blocks(OPERATING, "toml")
    file = tmp_path / "petstore.toml"
    file.write_text(example)
    assert configure({"PETSTORE_CONFIG": str(file)}, {}, keyless=True).warnings == ()


def test_every_error_code_is_in_the_readme() -> None:
    for code in ErrorCode:
        assert f"| `{code}` | {int(code.status)} |" in README


@pytest.mark.parametrize(
    ("page", "promise"),
    [
        ("SECURITY.md", f"At most {MAX_HEAD_BYTES >> 10} KiB and {MAX_HEADERS} headers in a head"),
        ("SECURITY.md", f"A request has {REQUEST_SECONDS:g} seconds to arrive."),
        (
            "SECURITY.md",
            f"nothing of its response for {RESPONSE_SECONDS:g} seconds is disconnected",
        ),
        ("SECURITY.md", f"Unread responses take at most {UNREAD_BYTES >> 20} MiB per worker."),
        ("docs/operating.md", f"discarded up to {MAX_DISCARDED_BYTES >> 20} MiB so that"),
        ("docs/operating.md", f"share {LARGE_BODIES_BYTES >> 20} MiB per worker"),
        ("docs/operating.md", f"each has at least {MIN_KEY_CHARACTERS} characters"),
        ("docs/operating.md", f"may have up to {MAX_CLIENTS:,} different names"),
        ("docs/operating.md", f"it buffers {MAX_WAITING_BYTES >> 20} MiB, then drops lines"),
        ("docs/operating.md", f"takes effect once within {RECORD_SECONDS // 3600} hours"),
        ("README.md", f"keep a contract of {len(sentences())} clauses"),
        (
            "README.md",
            f"a get costs {GET} of a raw ASGI function on uvicorn, a page {PAGE}, a create",
        ),
        ("README.md", f", a create {CREATE}."),
        ("docker/README.md", f"nothing has been sent for {Settings().keep_alive_seconds} seconds"),
        ("backends/sqlite/README.md", f"truncate it to at most {WAL_LIMIT >> 20} MiB"),
        ("backends/postgres/README.md", f"It waits for a table for {LOCK_SECONDS} s at most"),
    ],
)
def test_a_figure_in_a_promise_is_that_of_the_code(page: str, promise: str) -> None:
    assert promise in " ".join((ROOT / page).read_text().split())


@pytest.mark.parametrize("page", ["sql", "keyvalue"])
def test_the_clauses_that_a_kind_of_backend_may_break_are_in_the_contract(page: str) -> None:
    text = (ROOT / f"backends/{page}.md").read_text()
    named = set(re.findall(r"\[([a-z-]+)\]", text))
    assert len(named) > 20
    assert named <= sentences().keys()


def test_the_index_of_the_decisions_has_the_title_of_each() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text()
    files = sorted(folder.glob("0*.md"))
    titles = [
        re.split("# |[.] ", file.read_text().split("\n")[0], maxsplit=2)[1:] for file in files
    ]
    rows = [
        f"| {n} | [{title}]({file.name}) |" for (n, title), file in zip(titles, files, strict=True)
    ]
    assert re.findall(r"^\| \d.*$", index, re.MULTILINE) == rows


@pytest.mark.parametrize(
    "file",
    [
        *("README.md", "CONTRIBUTING.md", "conformance/README.md", "docker/README.md"),
        *("docs/operating.md", "docker/Dockerfile", "Makefile"),
    ],
)
def test_nothing_is_installed_without_a_hash_or_built_with_unpinned_tools(file: str) -> None:
    text = (ROOT / file).read_text().replace("\\\n", "")
    pip = r"(?:(?<!\(BIN\)/)pip(?: --python \S+)? (?:install|wheel)|\$\(PIP\)) "
    commands = re.findall(pip + r"([^`&\n]+)", text)
    assert commands
    for command in commands:
        first, second, *_ = command.split()
        assert first == "--require-hashes" or (
            first == "--no-deps" and second in {"--no-build-isolation", "--no-index"}
        ), command


def test_every_lock_file_has_hashes_and_allows_wheels_only() -> None:
    locks = re.findall(r" -o (\S+\.lock)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"requirements.lock", "docker/requirements-build.lock"} <= {*locks}
    for lock in locks:
        option, *pins = re.split(r"\n(?=[a-z])", (ROOT / lock).read_text())
        assert option.strip() == "--only-binary :all:", lock
        assert pins
        assert all(" --hash=sha256:" in pin for pin in pins), lock


def anchors(text: str) -> set[str]:
    """Return the names by which links refer to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "file",
    [file for folder in FOLDERS for file in ROOT.glob(f"{folder}*.md")],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_links_between_files_lead_somewhere(file: Path) -> None:
    prose = re.sub("^```.*?^```", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, section in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)", prose):
        linked = file.parent / target if target else file
        assert linked.exists(), target
        assert not section or section in anchors(linked.read_text()), (target, section)
