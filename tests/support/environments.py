"""The tools that tests run: installed programs, and packages in virtual environments of their own.

With PETSTORE_REQUIRE_SERVICES=1 a test fails, instead of being skipped, if a tool is missing.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

import pytest

BUILD: Final = Path(__file__).parents[2] / "build"


def programs(name: str, lock: Path, build: Path = BUILD) -> Path:
    """Return the directory of the programs in an environment with the packages of a lock file.

    The environment is build/NAME; it is created again when the lock file has changed. Of several
    processes that ask for it at once, one creates it and the others wait.
    """
    directory = build / name
    installed = directory / "installed"
    build.mkdir(parents=True, exist_ok=True)
    with Path(f"{directory}.lock").open("w") as creating:
        fcntl.flock(creating, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
            pip = (directory / "bin/pip", "install", "-q", "--disable-pip-version-check")
            subprocess.run([*pip, "--require-hashes", "-r", lock], check=True)
            installed.touch()
    return directory / "bin"


def program(*names: str, path: str | None = None) -> str:
    """Return the path of the first of these programs that is installed, or skip the test."""
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    return missing(f"not installed: {' or '.join(names)}")


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where services are required."""
    if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
