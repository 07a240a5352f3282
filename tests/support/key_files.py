"""Key files, and how to replace one that a service watches."""

import hashlib
from pathlib import Path


def key_line(name: str, key: str) -> str:
    """Return the line of a key file for a client's key."""
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}"


def replace(file: Path, content: bytes | None) -> None:
    """Replace a file atomically, so that nobody reads half of it; remove it if content is None."""
    if content is None:
        file.unlink()
    else:
        new = file.with_name("new")
        new.write_bytes(content)
        new.replace(file)
