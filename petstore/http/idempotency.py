"""Safe retries: the ``Idempotency-Key`` header as a token of the storage contract.

The header is that of draft-ietf-httpapi-idempotency-key-header, but its value is used as it is:
any visible ASCII characters, not the quoted string of a structured field.
"""

import hashlib
import re
from typing import Any, Final

import msgspec

from petstore.contract import IdempotencyToken
from petstore.http.errors import invalid
from petstore.http.request import ServiceRequest

KEY_PATTERN: Final = "[!-~]{1,255}"
_KEY: Final = re.compile(KEY_PATTERN.encode())


def to_token(request: ServiceRequest, body: object) -> IdempotencyToken | None:
    """Return the token of a request, or None if it has no ``Idempotency-Key``.

    body -- the decoded body

    Raises `ApiError` (400) for a key that is malformed or sent twice.
    """
    scope: Any = request.scope
    key: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            if key is not None or not _KEY.fullmatch(value):
                raise invalid("Idempotency-Key: expected once, 1 to 255 visible ASCII characters.")
            key = value
    if key is None:
        return None
    # Neither a client's name nor an operation contains a NUL, so different triples stay different.
    identity = f"{scope['auth']}\0{scope['route_handler'].operation_id}\0".encode() + key
    now, until = request.service.token_clock.read()
    return IdempotencyToken(
        value=hashlib.sha256(identity).digest(),
        fingerprint=hashlib.sha256(msgspec.json.encode(body)).digest(),
        now=now,
        until=until,
    )
