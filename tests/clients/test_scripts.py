"""The scripts of docs/clients.md: those with generated clients, and the short ones.

Needs Node.js and npm, Go and Java; `make check-all` runs this, `make test` does not. To update the
lock file of TypeScript, in tests/clients/typescript:
  npm install --save-exact --package-lock-only --omit-lockfile-registry-resolved=true NAME@VERSION
openapi-typescript 7 requires TypeScript 5.
"""

import shutil
from pathlib import Path

import pytest

from tests.clients.page import addressed, block
from tests.clients.scripts import COMMANDS, HERE, Script
from tests.support.services import Live, Start

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.mark.parametrize("name", ["first.py", "first.mts", "first.go"])
def test_a_script_with_a_generated_client_prints_the_output_shown(
    name: str, fresh: Live, tmp_path: Path
) -> None:
    script = Script(name, fresh, tmp_path)
    for _ in range(2):  # the second time on a store with pets and orders
        assert script.run() == block("text", "replayed")
    if name == "first.go":
        shutil.copy(HERE / "go/first_test.go", tmp_path)
        script.shell("go vet . ./petstore && go test .")


def test_a_typed_client_walks_through_the_interface(fresh: Live, tmp_path: Path) -> None:
    script = Script("first.mts", fresh, tmp_path)
    walk = (HERE / "typescript/walk.mts").read_text()
    (tmp_path / "walk.mts").write_text(addressed(walk, fresh))
    script.shell(COMMANDS["first.mts"][1].replace("first", "walk"))


@pytest.mark.parametrize("name", ["petstore.py", "petstore.mts"])
def test_a_short_client_waits_and_repeats(name: str, start: Start, tmp_path: Path) -> None:
    live = start(rate_limit="3/s")
    assert Script(name, live, tmp_path).run() == block("text", "ordered")
    assert '"status":429' in live.log.read_text()
