"""Reports as JSON files, for programs to read."""

import os
import sys
from pathlib import Path

import msgspec

from petstore.contract import SettingsError


def check(file: Path) -> None:
    """Raise `SettingsError` if a report cannot be written: before a run, not after it."""
    try:
        if file.exists():
            file.open("ab").close()
        elif not os.access(file.absolute().parent, os.W_OK | os.X_OK):
            file.open("xb").close()  # says why not
    except OSError as error:
        raise SettingsError(f"--json {file}: {error.strerror}") from None


def write(file: Path | str, report: object) -> None:
    """Write a report to a file, or to standard output if that is "-"."""
    text = msgspec.json.format(msgspec.json.encode(report)) + b"\n"
    if file == "-":
        sys.stdout.buffer.write(text)
    else:
        Path(file).write_bytes(text)
