"""The Python client that openapi-python-client makes of the document of a running service.

The generator has an environment of its own: it needs pydantic, and Litestar behaves differently
where that can be imported. `make check-all` runs this, `make test` does not.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.clients.readme import ROOT, addressed, block, commands, run
from tests.live import Live

HERE: Final = Path(__file__).parent / "python"
LOCK: Final = HERE / "requirements.lock"
PLACE: Final = ROOT / "build/clients/python"
PATH: Final = f"{PLACE / 'bin'}:{os.environ['PATH']}"
GENERATE, START = commands("openapi-python-client")


@pytest.fixture(scope="module")
def generator() -> None:
    """Install the generator, if that has not been done since the lock file changed."""
    installed = PLACE / "installed"
    if not installed.exists() or installed.stat().st_mtime < LOCK.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], check=True)
        pip = (PLACE / "bin/pip", "install", "-q", "--disable-pip-version-check")
        subprocess.run([*pip, "--require-hashes", "-r", LOCK], check=True)
        installed.touch()


@pytest.fixture
def client(generator: None, fresh: Live, tmp_path: Path) -> Path:
    """Generate the client; return the directory that it is in."""
    run(f"{GENERATE} --fail-on-warning", fresh, tmp_path, PATH)
    return tmp_path


def test_the_readme_prints_what_it_says(client: Path, fresh: Live) -> None:
    (client / "first.py").write_text(addressed(block("python"), fresh))
    assert run(START, fresh, client, PATH) == block("text", "listed")
    run(START, fresh, client, PATH)  # in a store with animals and orders, too


def test_a_client_walks_through_the_interface(client: Path, fresh: Live) -> None:
    walk = HERE / "walk.py"
    # Silent about the generated code itself, which is not as strict.
    mypy = f"{sys.executable} -m mypy --strict --follow-imports=silent"
    run(f"{mypy} {walk}", fresh, client, PATH)
    run(f"PYTHONPATH=. python {walk} {fresh.url} $KEY", fresh, client, PATH)
