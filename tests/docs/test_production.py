"""The README's commands to clone and to run in production work when they are followed literally.

They start in an empty directory. Only the port, the address of the git repository and the Python
that creates the environment are replaced. pip uses the package index that is configured.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from petstore import exit_status
from tests.support.documents import README, ROOT
from tests.support.ports import free_port
from tests.support.transcripts import differences, follow, section, steps
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

PRODUCTION: Final = section("## Running in production")
STEPS: Final = steps(PRODUCTION)
CLONE: Final = re.findall(r"^\$ ((?:git clone|cd) .+)$", README, re.MULTILINE)
SECONDS: Final = 5 * HANG_SECONDS

NOT_COPIED: Final = shutil.ignore_patterns(
    *(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "node_modules")
)
GIT: Final = ("git", "-c", "user.name=test", "-c", "user.email=test@example.test")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a git repository of the checkout as it is, with uncommitted changes."""
    origin = tmp_path_factory.mktemp("origin") / "petstore"
    shutil.copytree(ROOT, origin, ignore=NOT_COPIED)
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "As it is")):
        subprocess.run([*GIT, *command], cwd=origin, check=True)
    return origin


def test_production_works_when_followed_literally(repository: Path, tmp_path: Path) -> None:
    commands = "\0".join([*CLONE, *(step.command for step in STEPS)])
    assert commands.count("git clone ... ") == 1
    commands = commands.replace("git clone ... ", f"git clone -q '{repository}' ")
    commands = commands.replace("python3 -m venv", f"'{Path(sys.executable).resolve()}' -m venv")
    commands = commands.replace("127.0.0.1:8000", f"127.0.0.1:{free_port()}")
    environ = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PETSTORE_", "PYTHON")) and name != "VIRTUAL_ENV"
    }
    # Keep out the environment of the tests, and install nothing outside the new environment.
    own = str(Path(sys.prefix) / "bin")
    environ["PATH"] = ":".join(part for part in environ["PATH"].split(":") if part != own)
    environ["PIP_REQUIRE_VIRTUALENV"] = "1"
    environ["PIP_LOG"] = str(tmp_path / "pip.log")
    outcomes = follow(commands.split("\0"), tmp_path, environ, SECONDS)

    shop = tmp_path / "shop"
    log = shop / "petstore.log"
    assert [outcome.status for outcome in outcomes] == [0] * len(outcomes), log.read_text()
    del outcomes[: len(CLONE)]
    for step, outcome in zip(STEPS, outcomes, strict=True):
        if step.shown:
            assert differences(step.shown, outcome.printed) == []
    installed, key, checked, *_ = outcomes
    assert re.search(r"^sqlite  petstore-sqlite ", installed.printed, re.MULTILINE)
    assert key.printed == ""
    (said,) = re.findall(r"The last two lines\s+begin with `(.+)` and `(.+)`", PRODUCTION)
    assert tuple(line.split()[0] for line in checked.printed.splitlines()[-2:]) == said
    assert '"client":"shop-frontend"' in log.read_text()
    assert re.fullmatch(r"shop-frontend:[0-9a-f]{64}\n", (shop / "keys").read_text())
    for file in ("keys", "pets.sqlite", "petstore.log"):
        assert (shop / file).stat().st_mode & 0o077 == 0, file
    said = (tmp_path / "pip.log").read_text()
    assert "Installing build dependencies" not in said
    collected = set(re.findall(r" Collecting (\S+)", said))
    locks = ("requirements.lock", "docker/requirements-build.lock")
    pinned = "\n".join((ROOT / lock).read_text() for lock in locks)
    assert collected
    assert collected <= {*re.findall(r"^([a-z]\S+==\S+) ", pinned, re.MULTILINE)}


def test_every_exit_status_is_in_the_readme() -> None:
    table = section("### Exit statuses")
    statuses = {value for value in vars(exit_status).values() if type(value) is int}
    assert {exit_status.CONFIGURATION, exit_status.UNAVAILABLE} <= statuses
    for status in (0, *statuses):
        assert f"\n| {status} | " in table
