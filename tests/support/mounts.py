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
    if os.geteuid() != 0:
        missing("only root may mount a file system")
    target = folder.with_name(f"{folder.name}-read-only")
    target.mkdir()
    if subprocess.run([program("mount"), "--bind", folder, target], check=False).returncode:
        missing("a file system cannot be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)
        yield target
    finally:
        subprocess.run(["umount", "--lazy", target], check=True)
        target.rmdir()
