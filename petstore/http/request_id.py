"""The id under which client and operator find a request: in its response and in the log."""

import re
import secrets
from collections.abc import Iterable
from itertools import count
from typing import Final

from petstore.http.headers import Header

_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_process: Final = secrets.token_hex(6).encode()
_numbers: Final = count(1)


def request_id(headers: Iterable[Header]) -> bytes:
    """Return the client's ``X-Request-Id`` if it is well-formed, otherwise a new id.

    headers -- the headers of the request
    """
    for name, value in headers:
        if name == b"x-request-id" and _WELL_FORMED.fullmatch(value):
            return value
    return b"%b-%x" % (_process, next(_numbers))
