"""File systems that are mounted for a test, which only root may do."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.environments import missing, program


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """Yield another folder, by which what is in this one can only be read, also by root."""
    with _mounted(folder.with_name(f"{folder.name}-read-only"), "--bind", folder) as target:
        subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)
        yield target


@contextmanager
def small_disk(target: Path) -> Iterator[Path]:
    """Make a folder on a disk of its own, of 128 KiB."""
    with _mounted(target, "-t", "tmpfs", "-o", "size=128k", "none"):
        yield target


@contextmanager
def _mounted(target: Path, *arguments: str | Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        missing("only root may mount a file system")
    target.mkdir()
    if subprocess.run([program("mount"), *arguments, target], check=False).returncode:
        missing("a file system cannot be mounted here")
    try:
        yield target
    finally:
        subprocess.run(["umount", "--lazy", target], check=True)
        target.rmdir()
