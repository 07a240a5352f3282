"""The repository's files, and the executed blocks of its documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.environments import captured
from tests.support.services import environment

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a text in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def bash(script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the installed commands on the PATH, no settings, and more variables."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return captured(["bash", "-c", script], env=environment() | {"PATH": path} | more)
