"""Safe retries: what ``Idempotency-Key`` becomes for the repository.

The header is that of the IETF draft draft-ietf-httpapi-idempotency-key-header, but its value is
taken as it stands: any visible characters, not the quoted string of a structured field.
"""

import hashlib
import re
from math import ceil, floor
from typing import Any, Final

import msgspec
from litestar import Request

from petstore.contract import Retry
from petstore.errors import invalid
from petstore.service import Service

RETRY_SECONDS: Final = 24 * 60 * 60
"""For how long a write is remembered under its key."""

MAX_KEY: Final = 255
"""How many characters a key may have."""

_KEY: Final = re.compile(rb"[!-~]{1,%d}" % MAX_KEY)


def to_retry(request: Request[Any, Any, Any], service: Service, body: object) -> Retry | None:
    """Return what makes this request one that can be repeated, or None if it has no key.

    service -- asked for the time
    body -- what the body says, decoded

    Raises `ApiError` (400) for a key that is malformed or given twice.
    """
    keys = [value for name, value in request.scope["headers"] if name == b"idempotency-key"]
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise invalid(f"Idempotency-Key: expected once, 1 to {MAX_KEY} visible ASCII characters.")
    handler: Any = request.scope["route_handler"]
    # Neither a client's name nor an operation holds a NUL, so no two triples look the same.
    token = f"{request.auth}\0{handler.operation_id}\0".encode() + keys[0]
    now = service.clock().timestamp()
    return Retry(
        token=hashlib.sha256(token).digest(),
        fingerprint=hashlib.sha256(msgspec.json.encode(body)).digest(),
        now=floor(now),
        until=ceil(now) + RETRY_SECONDS,
    )
