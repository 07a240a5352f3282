"""The clients of docs/clients.md behind a gateway whose errors are not the service's.

Needs what the tests of each client need; `make check-all` runs this, `make test` does not.
"""

import os
import re
from pathlib import Path
from typing import Final

import pytest

from tests.clients.gateway import FAULTS, Gateway, gateway
from tests.clients.page import block, commands, run
from tests.support.environments import node_modules, program, programs
from tests.support.interface import ORDERS, PETS
from tests.support.services import Live

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

HERE: Final = Path(__file__).parent
LOCK: Final = HERE / "python/requirements.lock"
SCRIPTS: Final = {
    "petstore.py": block("python", "class Petstore:"),
    "petstore.mts": block("ts", "class Petstore"),
    "first.py": block("python", "petstore_client"),
    "first.mts": block("ts", "openapi-fetch"),
    "first.go": block("go"),
}
COMMANDS: Final = {
    "petstore.py": commands("petstore.py"),
    "petstore.mts": commands("petstore.mts"),
    "first.py": commands("openapi-python-client"),
    "first.mts": commands("openapi-typescript"),
    "first.go": commands("openapi-generator-cli"),
}
NOT_SAID: Final = "JSON|KeyError|undefined|: TypeError: (?!terminated)"
"""What a client that relies on the service's body says instead of the status."""


class Script:
    """A script of the page behind a gateway, ready to run in a directory."""

    def __init__(self, name: str, gateway: Gateway, directory: Path) -> None:
        if name == "first.go":
            program("go")
            program("java")
        if name.endswith("mts"):
            (directory / "node_modules").symlink_to(node_modules(HERE / "typescript"))
        self._live, self._directory = gateway.live, directory
        self._path = f"{programs('clients', LOCK)}:{os.environ['PATH']}"
        text = SCRIPTS[name].replace("http://127.0.0.1:8000", gateway.url)
        (directory / name).write_text(text)
        *before, self._last = " && ".join(COMMANDS[name]).split(" && ")
        for command in before:
            self._shell(command)

    def _shell(self, command: str) -> str:
        return run(command, self._live, self._directory, self._path)

    def run(self) -> str:
        """Run the script, which succeeds; return its output."""
        return self._shell(self._last)

    def fail(self) -> str:
        """Run the script, which fails; return its output."""
        return self._shell(f"! {self._last} 2>&1")

    def give_up_at_once(self) -> None:
        """Let the script make one attempt only."""
        file = self._directory / self._last.split()[-1]
        file.write_text(re.sub("attempts( ?= ?)8", r"attempts\g<1>1", file.read_text()))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_client_repeats_what_a_gateway_lost_or_says_what_it_got(
    name: str, fresh: Live, tmp_path: Path
) -> None:
    with gateway(fresh) as broken:
        script = Script(name, broken, tmp_path)
        if name.startswith("petstore"):
            for times, fault in enumerate(FAULTS, 1):
                broken.lose(fault)
                assert script.run() == block("text", "ordered"), fault
                assert len(broken.requests) == 3, "create, list, order"
                assert not broken.early
                stored = [len(fresh.client.get(path).json()) for path in (PETS, ORDERS)]
                assert stored == [3 * times, times]
            script.give_up_at_once()
        for fault in FAULTS:
            broken.lose(fault)
            said = script.fail()
            reason = "peer closed|terminated|unexpected EOF" if fault == "cut" else rf"\b{fault}\b"
            assert re.search(reason, said), said
            assert not re.search(NOT_SAID, said), said
