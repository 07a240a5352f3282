"""Recordings of what processes write and sync below one folder: the shim, and the log it writes."""

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.environments import program

OPEN, WRITE, TRUNCATE, SYNC, SYNCED, RENAME, UNLINK, MARK = "owtsSrum"
"""The kinds of records. A sync has two: where it begins, and where it has succeeded."""

TRUNCATED: Final = 1
DIRECTORY: Final = 2
APPENDED: Final = -1

_MAGIC: Final = b"\xffRECORD\xff"
_HEADER: Final = struct.Struct("<8sQqiIc7x")


class Record(NamedTuple):
    """A call of a process, or a mark.

    inode -- of the file; 0 where the data names it
    offset -- of a write, or APPENDED; the size that a file is truncated to; what OPEN found: four
        times the size of the file, and TRUNCATED or DIRECTORY
    thread -- the thread that made the call
    data -- what was written; the path below the folder that was opened or unlinked; both paths of
        a rename, with a NUL between; the mark
    """

    kind: str
    inode: int
    offset: int
    thread: int
    data: bytes


class Log:
    """The file that the shim appends records to, and the program marks.

    folder -- what is recorded: everything below this folder
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder.resolve()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def mark(self, data: bytes) -> None:
        """Append a mark: everything that the caller has done before comes before it."""
        header = _HEADER.pack(_MAGIC, 0, 0, 0, len(data), MARK.encode())
        os.write(self._descriptor, header + data)

    def environment(self, *, die: int = 0, delay: int = 0) -> dict[str, str]:
        """Return the variables that make a program record what it does.

        die -- kill its process group before each process's sync of this number; 0: never
        delay -- how many microseconds longer each sync takes
        """
        return {
            "LD_PRELOAD": str(shim()),
            "CUTS_FOLDER": str(self.folder),
            "CUTS_LOG": str(self.path),
            "CUTS_DIE": str(die),
            "CUTS_DELAY": str(delay),
        }


def read(path: Path) -> list[Record]:
    """Return the records in the file of a log."""
    return list(_parse(path.read_bytes()))


def _parse(log: bytes) -> Iterator[Record]:
    position = 0
    while position + _HEADER.size <= len(log):
        magic, inode, offset, thread, length, kind = _HEADER.unpack_from(log, position)
        assert magic == _MAGIC, f"no record at {position}"
        begin, end = position + _HEADER.size, position + _HEADER.size + length
        if log[end : end + len(_MAGIC)] in (_MAGIC, b"") and end <= len(log):
            yield Record(kind.decode(), inode, offset, thread, log[begin:end])
            position = end
        else:  # its process was killed before it made the call
            position = log.find(_MAGIC, position + 1)
            if position < 0:
                return


@cache
def shim() -> Path:
    """Compile the shim; return its path. Skips the test if there is no C compiler."""
    compiler = program("cc", "gcc", "clang")
    # It is loaded by later processes of this one, and removed when this one ends.
    directory = tempfile.TemporaryDirectory(prefix="petstore-shim-")
    _kept.append(directory)
    library = Path(directory.name) / "shim.so"
    source = Path(__file__).with_name("shim.c")
    flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, "-o", library, source, "-ldl"], check=True)
    return library


_kept: Final[list["tempfile.TemporaryDirectory[str]"]] = []


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """Return a new directory, in memory if there is such a place: nothing here needs a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return tempfile.TemporaryDirectory(prefix="petstore-cuts-", dir=memory if usable else None)
