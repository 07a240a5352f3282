"""Environments of their own for tools that the tests run, and that the service never meets."""

import subprocess
import sys
from pathlib import Path
from typing import Final

BUILD: Final = Path(__file__).parent.parent / "build"


def programs(name: str, lock: Path) -> Path:
    """Return the directory of the programs of an environment that holds what a lock file says.

    It is made in build/NAME, unless that has been done since the lock file changed.
    """
    place = BUILD / name
    installed = place / "installed"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = (place / "bin/pip", "install", "-q", "--disable-pip-version-check")
        subprocess.run([*pip, "--require-hashes", "-r", lock], check=True)
        installed.touch()
    return place / "bin"
