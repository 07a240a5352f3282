"""The TypeScript client that openapi-typescript makes of the document of a running service.

Needs Node.js and npm; `make check-all` runs this, `make test` does not. Updating what is
locked: in tests/clients/typescript,
  npm install --save-exact --package-lock-only --omit-lockfile-registry-resolved=true NAME@VERSION
openapi-typescript 7 asks for TypeScript 5.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.readme import addressed, block, commands, run
from tests.live import Live

HERE: Final = Path(__file__).parent / "typescript"
PATH: Final = os.environ["PATH"]
NPM_CI: Final = (
    *("npm", "ci", "--prefix", HERE, "--ignore-scripts", "--no-audit", "--no-fund"),
    *("--no-update-notifier", "--loglevel=error"),
)
GENERATE, START = commands("openapi-typescript")


@pytest.fixture(scope="module")
def modules() -> Path:
    """Install what the lock file says, if that has not been done since it changed."""
    if missing := [name for name in ("node", "npm") if shutil.which(name) is None]:
        reason = f"not installed: {' and '.join(missing)}"
        if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    place = HERE / "node_modules"
    installed, lock = place / ".package-lock.json", HERE / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run(NPM_CI, check=True)
    return place


@pytest.fixture
def client(modules: Path, fresh: Live, tmp_path: Path) -> Path:
    """Generate the client; return the directory that it is in."""
    (tmp_path / "node_modules").symlink_to(modules)
    assert "⚠" not in run(f"{GENERATE} 2>&1", fresh, tmp_path, PATH), "the generator's warnings"
    return tmp_path


def test_the_readme_prints_what_it_says(client: Path, fresh: Live) -> None:
    (client / "first.mts").write_text(addressed(block("ts"), fresh))
    assert run(START, fresh, client, PATH) == block("text", "listed")
    run(START, fresh, client, PATH)  # in a store with animals and orders, too


def test_a_client_walks_through_the_interface(client: Path, fresh: Live) -> None:
    (client / "walk.mts").write_text(addressed((HERE / "walk.mts").read_text(), fresh))
    run(START.replace("first", "walk"), fresh, client, PATH)
