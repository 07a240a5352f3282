"""The tools that tests run: installed programs, and packages from PyPI and npm.

With PETSTORE_REQUIRE_SERVICES=1 a test fails, instead of being skipped, if a tool is missing.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from tests.support.waiting import HANG_SECONDS

BUILD: Final = Path(__file__).parents[2] / "build"


def programs(name: str, lock: Path) -> Path:
    """Return the directory of the programs in an environment with the packages of a lock file.

    The environment is build/NAME.
    """
    directory = BUILD / name

    def install() -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
        pip = (directory / "bin/pip", "install", "-q", "--disable-pip-version-check")
        subprocess.run([*pip, "--require-hashes", "-r", lock], check=True)

    _install(directory / "installed", lock, install, Path(f"{directory}.lock"))
    return directory / "bin"


def node_modules(directory: Path) -> Path:
    """Return node_modules of a directory, with the packages of its package-lock.json."""
    for name in ("node", "npm"):
        program(name)
    modules = directory / "node_modules"

    def install() -> None:
        command = "npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier"
        command += " --loglevel=error --prefix"
        subprocess.run([*command.split(), directory], check=True)

    locked = BUILD / f"{directory.name}-npm.lock"
    _install(modules / "installed", directory / "package-lock.json", install, locked)
    return modules


def _install(installed: Path, lock: Path, install: Callable[[], None], locked: Path) -> None:
    """Install the packages of a lock file, unless that was done since it changed.

    Of several processes that ask for it at once, one does it and the others wait.
    """
    locked.parent.mkdir(parents=True, exist_ok=True)
    with locked.open("w") as installing:
        fcntl.flock(installing, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            install()
            installed.touch()


def program(*names: str, path: str | None = None) -> str:
    """Return the path of the first of these programs that is installed, or skip the test."""
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    return missing(f"not installed: {' or '.join(names)}")


def captured(
    command: Sequence[str | Path], seconds: float = HANG_SECONDS, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its status is; return that and its output.

    more -- as of `subprocess.run`
    """
    return subprocess.run(
        command, timeout=seconds, capture_output=True, text=True, check=False, **more
    )


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where services are required."""
    if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
