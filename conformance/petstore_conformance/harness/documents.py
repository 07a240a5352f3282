"""Reports as JSON files, for programs to read."""

import sys
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from petstore.contract import SettingsError


def check(file: Path) -> None:
    """Raise `SettingsError` if a report cannot be written: before a run, not after it."""
    try:
        if file.exists():
            file.open("ab").close()
        TemporaryFile(dir=file.resolve().parent).close()
    except OSError as error:
        raise SettingsError(f"--json {file}: {error.strerror}") from None


def write(file: Path | str, report: object) -> None:
    """Write a report to a file, at once and completely, or to standard output if that is "-"."""
    text = msgspec.json.format(msgspec.json.encode(report)) + b"\n"
    path = Path(file).resolve()
    if file == "-":
        sys.stdout.buffer.write(text)
    elif path.exists() and not path.is_file():  # a pipe or a device
        path.write_bytes(text)
    else:
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(text)
        new.replace(path)
