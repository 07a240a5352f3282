"""Commands as they are sent. What never changes in a frequent one is packed once, at the start."""

from typing import Any

import hiredis


def pack(*parts: bytes | str | int) -> bytes:
    """Return a packed command."""
    packer: Any = hiredis.pack_command  # its stub knows tuples of one part only
    packed: bytes = packer(parts)
    return packed


def template(*parts: str | int | None) -> bytes:
    """Return a packed command with a gap, for the operator %, where a part is None.

    A gap takes two values, as `sized` returns them: ``template("GET", None) % (3, b"key")``.
    """
    packed = (
        pack(part).partition(b"\r\n")[2].replace(b"%", b"%%")
        if part is not None
        else b"$%d\r\n%b\r\n"
        for part in parts
    )
    return b"*%d\r\n" % len(parts) + b"".join(packed)


def sized(*arguments: bytes) -> tuple[int | bytes, ...]:
    """Return arguments for a template: each after its length."""
    return tuple([value for argument in arguments for value in (len(argument), argument)])
