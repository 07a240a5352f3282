"""Safe retries: the ``Idempotency-Key`` header as a token of the storage contract.

The header is that of draft-ietf-httpapi-idempotency-key-header, but its value is used as it is:
any visible ASCII characters, not the quoted string of a structured field.
"""

import hashlib
import re
from typing import Final

import msgspec

from petstore.contract import IdempotencyToken
from petstore.http.errors import invalid
from petstore.http.request import ServiceRequest

MAX_KEY: Final = 255
"""The maximum length of a key in characters."""

_KEY: Final = re.compile(rb"[!-~]{1,%d}" % MAX_KEY)


def to_token(request: ServiceRequest, body: object) -> IdempotencyToken | None:
    """Return the token of a request, or None if it has no ``Idempotency-Key``.

    body -- the decoded body

    Raises `ApiError` (400) for a key that is malformed or sent twice.
    """
    keys = [value for name, value in request.scope["headers"] if name == b"idempotency-key"]
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise invalid(f"Idempotency-Key: expected once, 1 to {MAX_KEY} visible ASCII characters.")
    # Neither a client's name nor an operation contains a NUL, so different triples stay different.
    operation = request.route_handler.operation_id
    identity = f"{request.auth}\0{operation}\0".encode() + keys[0]
    now, until = request.service.token_clock.read()
    return IdempotencyToken(
        value=hashlib.sha256(identity).digest(),
        fingerprint=hashlib.sha256(msgspec.json.encode(body)).digest(),
        now=now,
        until=until,
    )
