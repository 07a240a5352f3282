"""Request bodies: the content type, the size limit, and strict decoding."""

import json
import re
import sys
from functools import cache
from typing import Any, Final

import msgspec
from litestar import Request
from msgspec import UNSET

from petstore.config.errors import shorten
from petstore.http.errors import ApiError, ErrorCode, invalid
from petstore.http.headers import Header
from petstore.http.limits import SMALL_BODY_BYTES

_JSON: Final = re.compile(rb"application/json[ \t]*(;.*)?", re.IGNORECASE)

# JSON is UTF-8 and has no charset parameter (RFC 8259), but charset=utf-8 does no harm.
_CHARSET: Final = re.compile(rb';[ \t]*charset=(?!"?utf-8"?[ \t]*(;|$))', re.IGNORECASE)
_ENUM: Final = "Invalid enum value"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")

MAX_DEPTH: Final = 200
"""The maximum depth of nested arrays and objects in a body."""


class StrictRequest(Request[Any, Any, Any]):
    """Litestar's request with a strict body: JSON of the handler's `data` type, or an error.

    Litestar's own path first calls `body`, to see whether there is one, and then `json`.
    """

    _content: bytes | None = None

    async def body(self) -> bytes:
        """Return the body as it was sent. Raises `ApiError` as `read` does."""
        if self._content is None:
            limit = body_limit(self.scope["route_handler"])
            self._content = await read(self.scope, self.receive, limit)
        return self._content

    async def json(self) -> Any:
        """Return the body, decoded strictly as the handler's `data` type.

        Raises `ApiError` as `body` does, and 400 for a body that does not match the type.
        """
        handler: Any = self.scope["route_handler"]
        return decode(await self.body(), handler.parsed_data_field.annotation)


def body_limit(handler: Any) -> int:
    """Return the maximum length of a body in bytes; Litestar's None is no limit."""
    limit: int | None = handler.resolve_request_max_body_size()
    return sys.maxsize if limit is None else limit


async def read(scope: Any, receive: Any, limit: int) -> bytes:
    """Return the body of a request as it was sent. Holds at most one message beyond the limit.

    limit -- the maximum length in bytes

    Raises `ApiError`: 415 for a body that is compressed or not declared as JSON (RFC 9110, section
    15.5.16), 413 for a body over the limit (section 15.5.14), 400 for an empty or incomplete body,
    503 for a large one while too many are in flight.
    """
    declared = _check_head(scope["headers"])
    if declared > limit:
        raise _too_large(limit)
    # Memory is acquired for a large body: at once, or as it comes if it is chunked.
    acquired, acquire_over = 0, limit
    if limit > SMALL_BODY_BYTES and (in_flight := scope.get("slot")):
        acquire_over = SMALL_BODY_BYTES
    parts, size, more = [], 0, True
    try:
        if declared > acquire_over:
            in_flight.acquire_bytes(declared)
            acquired, acquire_over = declared, limit
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise invalid("body: incomplete.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > acquire_over:
                if size > limit:
                    raise _too_large(limit)
                in_flight.acquire_bytes(size - acquired)
                acquired = size
    finally:
        if acquired:
            in_flight.release_bytes(acquired)
    if not size:
        raise invalid("body: expected JSON, but it is empty.")
    return b"".join(parts)


def _check_head(headers: list[Header]) -> int:
    """Return the declared length, or 0. Refuse a body that is not declared as plain JSON."""
    types, encoded, length = [], False, 0
    for name, value in headers:
        if name == b"content-type":
            types.append(value)
        elif name == b"content-length":
            length = int(value)
        elif name == b"content-encoding":
            encoded = encoded or value.lower() != b"identity"
    if types != [b"application/json"] and not _is_json(types):
        raise _unsupported("Content-Type: expected application/json.")
    if encoded:
        raise _unsupported("Content-Encoding: not supported; send the body uncompressed.")
    return length


def _is_json(types: list[bytes]) -> bool:
    return len(types) == 1 and bool(_JSON.fullmatch(types[0])) and not _CHARSET.search(types[0])


def decode(content: bytes, type_: Any) -> Any:
    """Decode JSON (RFC 8259) strictly: UTF-8, limited depth, no repeated member, no type coercion.

    Raises `ApiError` (400) that names the field and the values it accepts.
    """
    _check_depth(content)
    try:
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
            json.loads(text, object_pairs_hook=_check_members, parse_int=str, parse_float=str)
    except UnicodeDecodeError:
        raise invalid("body: expected UTF-8.") from None
    except msgspec.ValidationError as error:
        raise invalid(f"body: {_expected(str(error), type_)}.") from None
    except msgspec.DecodeError as error:
        raise invalid(f"body: expected JSON. {shorten(str(error), 200)}.") from None
    return value


def _check_depth(content: bytes) -> None:
    """Refuse deep nesting; the depth that msgspec accepts depends on the version of Python."""
    if len(content) <= MAX_DEPTH:
        return
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", content)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise invalid(f"body: expected at most {MAX_DEPTH} levels of nesting.")


def _check_members(members: list[tuple[str, Any]]) -> None:
    """Refuse an object that repeats a name (RFC 8259, section 4: unpredictable)."""
    names = set()
    for name, _ in members:
        if name in names:
            raise invalid(f"body: expected each member once, but `{shorten(name)}` is repeated.")
        names.add(name)


@cache
def _decoder(type_: Any) -> tuple[msgspec.json.Decoder[Any], int, tuple[str, ...]]:
    """Return the decoder of a type, how many fields it requires, and those that may be unset."""
    struct = isinstance(type_, type) and issubclass(type_, msgspec.Struct)
    fields = msgspec.structs.fields(type_) if struct else ()
    optional = tuple(field.name for field in fields if field.default is UNSET)
    return msgspec.json.Decoder(type_), sum(field.required for field in fields), optional


def _expected(message: str, type_: Any) -> str:
    """Add the accepted values, which msgspec leaves out for enumerations; shorten the rest."""
    problem, at, path = message.rpartition(" - at ")
    if problem.startswith(_ENUM):
        field = next(f for f in msgspec.structs.fields(type_) if path == f"`$.{f.encode_name}`")
        values = ", ".join(f"`{value}`" for value in _enum_values(field.type))
        problem = f"Expected one of {values}"
    return shorten(f"{problem}{at}{path}", 300)


def _enum_values(hint: Any) -> list[str]:
    schema = msgspec.json.schema(hint)
    return [value for part in schema["$defs"].values() for value in part["enum"]]


def _unsupported(message: str) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, message)


def _too_large(limit: int) -> ApiError:
    return ApiError(ErrorCode.PAYLOAD_TOO_LARGE, f"body: expected at most {limit} bytes.")
