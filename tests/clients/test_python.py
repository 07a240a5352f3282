"""The Python client that openapi-python-client makes of the document of a running service.

The generator has an environment of its own: it needs pydantic, and Litestar behaves differently
where that can be imported. `make check-all` runs this, `make test` does not.
"""

import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.clients.readme import addressed, block, commands, run
from tests.live import Live
from tests.locked import programs

HERE: Final = Path(__file__).parent / "python"
LOCK: Final = HERE / "requirements.lock"
GENERATE, START = commands("openapi-python-client")


@pytest.fixture(scope="module")
def path() -> str:
    """Install the generator; return a PATH on which it is the first."""
    return f"{programs('clients', LOCK)}:{os.environ['PATH']}"


@pytest.fixture
def client(path: str, fresh: Live, tmp_path: Path) -> Path:
    """Generate the client; return the directory that it is in."""
    run(f"{GENERATE} --fail-on-warning", fresh, tmp_path, path)
    return tmp_path


def test_the_readme_prints_what_it_says(client: Path, fresh: Live, path: str) -> None:
    (client / "first.py").write_text(addressed(block("python"), fresh))
    assert run(START, fresh, client, path) == block("text", "listed")
    run(START, fresh, client, path)  # in a store with animals and orders, too


def test_a_client_walks_through_the_interface(client: Path, fresh: Live, path: str) -> None:
    walk = HERE / "walk.py"
    # Silent about the generated code itself, which is not as strict.
    mypy = f"{sys.executable} -m mypy --strict --follow-imports=silent"
    run(f"{mypy} {walk}", fresh, client, path)
    run(f"PYTHONPATH=. python {walk} {fresh.url} $KEY", fresh, client, path)
