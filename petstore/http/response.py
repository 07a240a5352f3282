"""What a handler returns, and the headers that all responses of an operation have."""

from functools import cache
from typing import Final, Generic, TypeVar

from msgspec import Struct

from petstore.http.deprecation import Deprecation
from petstore.http.headers import DEFAULT_HEADERS, NO_SNIFF, Header

Content = TypeVar("Content")

CLOSE: Final[Header] = (b"connection", b"close")


class Response(Struct, Generic[Content]):
    """What a handler returns if its content does not say everything.

    headers -- beside those of every response of the operation, names in lower case; it is changed
    status -- from 200 to 599; None for that of the operation
    media_type -- None for that of the operation
    """

    content: Content
    headers: list[Header] = []
    status: int | None = None
    media_type: str | None = None


class FixedHeaders(Struct, frozen=True):
    """Headers that do not change from response to response.

    cacheable -- whether the handler adds its own instead of `DEFAULT_HEADERS`
    headers -- as ASGI represents them
    encoded -- as HTTP/1.1 writes them: each on a line, after the line break of the line before
    """

    cacheable: bool
    headers: list[Header]
    encoded: bytes


@cache
def fixed_headers(
    media_type: str,
    root_path: str = "",
    deprecation: Deprecation | None = None,
    *,
    cacheable: bool = False,
) -> FixedHeaders:
    """Return the headers that all responses of one media type of an operation have.

    media_type -- empty for a response without content
    root_path -- the public prefix of the service
    deprecation -- that of the operation
    cacheable -- whether the handler adds its own instead of `DEFAULT_HEADERS`
    """
    headers: list[Header] = [(b"content-type", media_type.encode())] if media_type else []
    headers += [NO_SNIFF, *(() if cacheable else DEFAULT_HEADERS)]
    if deprecation is not None:
        headers += deprecation.headers(root_path)
    encoded = b"".join([b"\r\n%b: %b" % header for header in headers])
    return FixedHeaders(cacheable, headers, encoded)
