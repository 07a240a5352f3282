"""The scripts of docs/clients.md, with the clients that are generated for some of them.

The generator of the Python client has its own environment: it needs pydantic, and Litestar behaves
differently if it can import that.
"""

import os
import re
from pathlib import Path
from typing import Final

from tests.clients.page import block, commands, run
from tests.support.environments import node_modules, program, programs
from tests.support.services import Live

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
WARNING: Final = {"first.py": " --fail-on-warning", "first.mts": " 2>&1"}
"""What makes a generator fail, or print, where it has a warning."""


class Script:
    """A script in a directory, ready to run, as a reader of the page has it.

    url -- the address that it has, if not that of the service
    """

    def __init__(self, name: str, live: Live, directory: Path, url: str = "") -> None:
        if name == "first.go":
            program("go")
            program("java")
        if name.endswith("mts"):
            (directory / "node_modules").symlink_to(node_modules(HERE / "typescript"))
        self._live, self._directory = live, directory
        self._path = f"{programs('clients', LOCK)}:{os.environ['PATH']}"
        text = SCRIPTS[name].replace("http://127.0.0.1:8000", url or live.url)
        (directory / name).write_text(text)
        *before, self._last = " && ".join(COMMANDS[name]).split(" && ")
        for command in before:
            more = WARNING.get(name, "") if command == COMMANDS[name][0] else ""
            assert "⚠" not in self.shell(command + more)

    def shell(self, command: str) -> str:
        """Run a command, which succeeds, beside the script; return its output."""
        return run(command, self._live, self._directory, self._path)

    def run(self) -> str:
        """Run the script, which succeeds; return its output."""
        return self.shell(self._last)

    def fail(self) -> str:
        """Run the script, which fails; return its output."""
        return self.shell(f"! {self._last} 2>&1")

    def give_up_at_once(self) -> None:
        """Let the script make one attempt only."""
        file = self._directory / self._last.split()[-1]
        file.write_text(re.sub("attempts( ?= ?)8", r"attempts\g<1>1", file.read_text()))
