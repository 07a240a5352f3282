"""The Go client that openapi-generator generates from a running service's document.

Needs Go and Java; `make check-all` runs this, `make test` does not.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.clients.page import addressed, block, commands, run
from tests.support.environments import program, programs
from tests.support.services import Live

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

HERE: Final = Path(__file__).parent
LOCK: Final = HERE / "python/requirements.lock"
GENERATE, START = commands("openapi-generator-cli")


def test_the_script_of_the_page_prints_the_output_shown(fresh: Live, tmp_path: Path) -> None:
    for name in ("go", "java"):
        program(name)
    path = f"{programs('clients', LOCK)}:{os.environ['PATH']}"
    run(GENERATE, fresh, tmp_path, path)
    (tmp_path / "first.go").write_text(addressed(block("go"), fresh))
    again = "go vet . ./petstore && go run ."  # on a store with pets and orders
    for script in (START, again):
        assert run(script, fresh, tmp_path, path) == block("text", "replayed")
    shutil.copy(HERE / "go/first_test.go", tmp_path)
    run("go test .", fresh, tmp_path, path)
