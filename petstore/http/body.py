"""Request bodies: the content type, the size limit, and strict decoding."""

import re
from collections.abc import Awaitable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET

from petstore.http.errors import NOT_JSON, ApiError, ErrorCode, invalid
from petstore.http.request import ServiceRequest
from petstore.http.shares import SMALL_BODY_BYTES
from petstore.text.mismatch import explain
from petstore.text.strict_json import check_depth, check_members, why_malformed

_JSON: Final = re.compile(rb"application/json[ \t]*(;.*)?", re.IGNORECASE)

# JSON is UTF-8 and has no charset parameter (RFC 8259), but charset=utf-8 does no harm.
_CHARSET: Final = re.compile(rb';[ \t]*charset=(?!"?utf-8"?[ \t]*(;|$))', re.IGNORECASE)

_OF_A_NAME: Final = re.compile(r"(unknown member|expected each member once)\b.*", re.DOTALL)


def read_body(request: ServiceRequest, limit: int) -> bytes | Awaitable[bytes]:
    """Return the body of a request as it was sent, or what must be awaited for it.

    limit -- the maximum length in bytes

    Raises `ApiError`: 415 for a body that is compressed or not declared as JSON (RFC 9110, section
    15.5.16), 413 for a body over the limit (section 15.5.14), 400 for an incomplete body, 503 for
    a large one while too many are in flight.
    """
    declared = _check_head(request.scope, limit)
    take = getattr(request.send, "take_body", None)
    body: bytes | None = None if take is None else take(SMALL_BODY_BYTES)
    if body is None:  # it is large, or has not arrived yet
        return _receive(request, declared, limit)
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _receive(request: ServiceRequest, declared: int, limit: int) -> bytes:
    """Return a body, of which at most one message beyond the limit is held.

    Memory is acquired for a large body: at once, or as it comes if it is chunked.
    """
    bodies, client = request.service.shares.bodies, request.scope.get("auth", "")
    acquired, acquire_over = 0, limit
    if limit > SMALL_BODY_BYTES:
        acquire_over = SMALL_BODY_BYTES
    parts, size, more = [], 0, True
    try:
        if declared > acquire_over:
            bodies.acquire(client, declared)
            acquired, acquire_over = declared, limit
        while more:
            message: Any = await request.receive()
            if message["type"] == "http.disconnect":
                raise invalid("body: incomplete.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > acquire_over:
                if size > limit:
                    raise _too_large(limit)
                bodies.acquire(client, size - acquired)
                acquired = size
    finally:
        if acquired:
            bodies.release(client, acquired)
    return b"".join(parts)


def _check_head(scope: Any, limit: int) -> int:
    """Return the declared length, or 0. Refuse a body that is not declared as plain JSON.

    A refusal says what is accepted (RFC 9110, section 15.5.16; RFC 5789, section 2.2).
    """
    types, encoded, length = [], False, 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            types.append(value)
        elif name == b"content-length":
            length = int(value.lstrip(b"0") or 0)  # `int` takes at most 4,300 digits
        elif name == b"content-encoding":
            encoded = encoded or value.lower() != b"identity"
    type_ = types[0] if len(types) == 1 else b""
    if type_ != b"application/json" and (not _JSON.fullmatch(type_) or _CHARSET.search(type_)):
        name = "accept-patch" if scope["method"] == "PATCH" else "accept"
        raise ApiError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, NOT_JSON, {name: "application/json"})
    if encoded:
        message = "Content-Encoding: not supported; send the body uncompressed."
        codings = {"accept-encoding": "identity"}
        raise ApiError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, message, codings)
    if length > limit:
        raise _too_large(limit)
    return length


def decode(content: bytes, type_: Any) -> Any:
    """Decode JSON (RFC 8259) strictly: UTF-8, limited depth, no repeated member, no type coercion.

    Raises `ApiError` (400) that names the field and the values it accepts.
    """
    try:
        check_depth(content)
        text = content.decode()  # msgspec does not check the values that it skips
        decoder, required, optional = _decoder(type_)
        value = decoder.decode(content)
        # Each member has a colon. If there are no more colons than fields that were sent, none is
        # repeated. If there are more, as with the name "Rex: the dog", look closer.
        colons = content.count(b":") - required
        for name in optional:
            if getattr(value, name) is not UNSET:
                colons -= 1
        if colons:
            check_members(text)
    except UnicodeDecodeError:
        raise invalid("body: expected UTF-8.") from None
    except msgspec.ValidationError as error:
        raise _invalid(explain(error, type_, "body")) from None
    except msgspec.DecodeError as error:
        if not content:
            raise invalid("body: expected JSON, but it is empty.") from None
        raise invalid(f"body: expected JSON: {why_malformed(content, error)}.") from None
    except ValueError as error:
        raise _invalid(f"body: {error}") from None
    return value


@cache
def _decoder(type_: Any) -> tuple[msgspec.json.Decoder[Any], int, tuple[str, ...]]:
    """Return the decoder of a type, how many fields it requires, and those that may be unset."""
    struct = isinstance(type_, type) and issubclass(type_, msgspec.Struct)
    fields = msgspec.structs.fields(type_) if struct else ()
    optional = tuple(field.name for field in fields if field.default is UNSET)
    return msgspec.json.Decoder(type_), sum(field.required for field in fields), optional


def _invalid(what: str) -> ApiError:
    """Return a 400; the log does not get the name of a member that the client has made up."""
    reason = _OF_A_NAME.sub(r"\1", what)
    return invalid(f"{what}.", f"{reason}.")


def _too_large(limit: int) -> ApiError:
    return ApiError(ErrorCode.PAYLOAD_TOO_LARGE, f"body: expected at most {limit} bytes.")
