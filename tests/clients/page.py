"""The blocks of docs/clients.md, run literally except for the address and the key."""

import re
from pathlib import Path
from typing import Final

from tests.support.documents import ROOT, blocks
from tests.support.environments import captured
from tests.support.services import Live, environment
from tests.support.waiting import HANG_SECONDS

CLIENTS: Final = (ROOT / "docs/clients.md").read_text()
SECONDS: Final = 2 * HANG_SECONDS


def block(language: str, containing: str = "") -> str:
    """Return the one block of the page in a language that contains a text."""
    (chosen,) = [text for text in blocks(CLIENTS, language) if containing in text]
    return chosen


def commands(containing: str) -> list[str]:
    """Return the commands of a block without the first: tests install from lock files instead."""
    return re.findall(r"^\$ (.+)$", block("console", containing), re.MULTILINE)[1:]


def addressed(text: str, live: Live) -> str:
    """Return a text of the page with the address of a service."""
    return text.replace("http://127.0.0.1:8000", live.url)


def run(script: str, live: Live, directory: Path, path: str) -> str:
    """Run a script with the key of a service in a directory; return its standard output."""
    env = environment() | {"PATH": path, "KEY": live.key}
    done = captured(["bash", "-euc", addressed(script, live)], SECONDS, cwd=directory, env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
