"""Rules for request bodies and lines of an import that JSON itself does not have."""

import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import Any, Final

from petstore.text.phrases import shorten

_BRACKET: Final = re.compile(rb"[\[\]{}]")

MAX_DEPTH: Final = 200
"""The maximum depth of nested arrays and objects."""


def check_depth(content: bytes) -> None:
    """Refuse deep nesting; the depth that msgspec accepts depends on the version of Python.

    Raises `ValueError`.
    """
    if len(content) <= MAX_DEPTH:
        return
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        return
    # Backslashes occur in strings only. Without escaped quotes, every second part is a string.
    parts = content.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    depth = 0
    for bracket in _BRACKET.findall(b"".join(parts[::2])):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"expected at most {MAX_DEPTH} levels of nesting")


def check_members(text: str) -> None:
    """Refuse an object that repeats a name (RFC 8259, section 4: unpredictable).

    Raises `ValueError`.
    """
    json.loads(text, object_pairs_hook=_check_names, parse_int=str, parse_float=str)


def _check_names(members: list[tuple[str, Any]]) -> None:
    names = set()
    for name, _ in members:
        if name in names:
            raise ValueError(f"expected each member once, but `{shorten(name)}` is repeated")
        names.add(name)


def why_malformed(content: bytes, error: Exception) -> str:
    """Return why text cannot be decoded.

    error -- what the decoder raised, which does not say that the encoding is the reason
    """
    if content.startswith(BOM_UTF8):
        return "it begins with a byte order mark; expected UTF-8 without one"
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "it is UTF-16; expected UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return "expected UTF-8"
    return shorten(str(error), 200)
