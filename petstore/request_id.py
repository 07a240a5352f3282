"""The id under which a request is known to its client, in every answer and in the log."""

import re
import secrets
from collections.abc import Iterable
from itertools import count
from typing import Final

_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_process: Final = secrets.token_hex(6)
_numbers: Final = count(1)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the client's own request id, if it is well formed, or a fresh one.

    headers -- the request's header fields, names in lower case
    """
    for name, value in headers:
        if name == b"x-request-id" and _WELL_FORMED.fullmatch(value):
            return value
    return f"{_process}-{next(_numbers):x}".encode()
