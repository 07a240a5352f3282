"""A clock that can be set while a service runs, without touching that of the machine."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """The clock of services that are started within `used`; it is wrong by `seconds`.

    It needs a C compiler; without one, `works` is False and the clock stays right.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self._library = directory / "clock.so"
        self.works = bool(compiler := shutil.which("cc"))
        self.set(0)
        if compiler:
            flags = ("-shared", "-fPIC", "-O2", "-o", self._library)
            subprocess.run([compiler, *flags, SOURCE, "-ldl"], check=True)

    def set(self, seconds: int) -> None:
        """Set by how many seconds it is wrong, at once and for all services that use it."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))
        self.seconds = seconds

    @contextmanager
    def used(self) -> Iterator[None]:
        """Make processes that are started within the block use this clock."""
        preloaded = {"LD_PRELOAD": str(self._library), "TORTURE_CLOCK": str(self._file)}
        with mock.patch.dict(os.environ, preloaded if self.works else {}):
            yield
