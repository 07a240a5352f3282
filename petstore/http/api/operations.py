"""What operators and developers need: outside /v1 and without a key."""

import asyncio
import gzip
import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from typing import Final

from litestar import Controller, MediaType, get
from litestar.params import FromPath

from petstore.contract import PetQuery, StorageError
from petstore.http.api.reference import PARTS, render_page
from petstore.http.errors import SERVICE_STOPPING, name_of, not_found, unavailable
from petstore.http.headers import JSON, Header
from petstore.http.request import Response, ServiceRequest

READY_SECONDS: Final = 1
"""The time limit for the storage to respond; after that ``/readyz`` is 503."""

_PARTS: Final = {
    "reference.css": "text/css",
    "reference.js": "text/javascript",
    "favicon.svg": "image/svg+xml",
}
"""What the reference page loads, and its media types."""
_LINK: Final = re.compile(f'({"|".join(map(re.escape, _PARTS))})(?=")')
_ZERO: Final = re.compile(rb"q=0(\.0*)?")

_CACHEABLE: Final = {"cacheable": True}
_NO_CACHE: Final[Header] = (b"cache-control", b"no-cache")
_IMMUTABLE: Final[Header] = (b"cache-control", b"public, max-age=31536000, immutable")

# The page loads only what this service serves.
_PAGE_HEADERS: Final[tuple[Header, ...]] = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
            b" connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"referrer-policy", b"no-referrer"),
)


class OperationsController(Controller):
    """Liveness, readiness, the OpenAPI document and the interactive reference."""

    path = "/"

    @get("/", operation_id="root", media_type=MediaType.TEXT, status_code=302)
    async def root(self, request: ServiceRequest) -> Response[str]:
        """Redirect to the reference."""
        return Response("", [(b"location", f"{request.service.root_path}/docs".encode())])

    @get("/livez", operation_id="livez", media_type=MediaType.TEXT)
    async def livez(self) -> str:
        """Show that the process runs. Never uses the storage."""
        return "ok\n"

    @get("/readyz", operation_id="readyz", media_type=MediaType.TEXT)
    async def readyz(self, request: ServiceRequest) -> str:
        """Show that the storage responds and the service is not stopping; otherwise 503."""
        service = request.service
        if service.draining:
            raise unavailable(SERVICE_STOPPING)
        try:
            async with asyncio.timeout(READY_SECONDS):
                await service.repository.list_pets(PetQuery(0, 1))
        except (StorageError, TimeoutError) as error:
            reason = str(error) or "the storage did not respond in time"
            service.storage_health.not_ready(reason)
            response = unavailable("The storage does not respond.")
            response.reason = name_of(error)
            raise response from None
        return "ok\n"

    @get("/openapi.json", operation_id="openapi", opt=_CACHEABLE)
    async def document(self, request: ServiceRequest) -> Response[bytes]:
        """Return the OpenAPI document."""
        return await _validated(request, request.service.document, JSON, _NO_CACHE)

    @get("/docs", operation_id="docs", opt=_CACHEABLE)
    async def reference(self, request: ServiceRequest) -> Response[bytes]:
        """Return the page of the interactive reference."""
        page = await asyncio.to_thread(_page, request.service.document, request.service.dev)
        return await _validated(request, page, "text/html", _NO_CACHE, *_PAGE_HEADERS)

    @get("/docs/{name:str}", operation_id="docsAsset", opt=_CACHEABLE)
    async def asset(self, request: ServiceRequest, name: FromPath[str]) -> Response[bytes]:
        """Return a part of the reference page, for good if the URL has its version.

        With another version, it comes from the page of another release, during an update.
        """
        if name not in _PARTS:
            raise not_found("Path")
        part = await asyncio.to_thread(_part, name)
        current = request.scope["query_string"] == b"v=" + _version(part).encode()
        return await _validated(request, part, _PARTS[name], _IMMUTABLE if current else _NO_CACHE)


async def _validated(
    request: ServiceRequest, content: bytes, media_type: str, *headers: Header
) -> Response[bytes]:
    """Return the content, compressed if the client accepts that, or 304 if the client has it.

    The entity tags are compared weakly (RFC 9110, section 13.1.2).
    """
    sent = request.scope["headers"]
    compressed = _accepts_gzip(_items(sent, b"accept-encoding"))
    content, etag = await asyncio.to_thread(_encoded, content, compressed)
    own = [*headers, (b"etag", etag), (b"vary", b"accept-encoding")]
    known = _items(sent, b"if-none-match")
    if b"*" in known or etag in [tag.removeprefix(b"W/") for tag in known]:
        return Response(b"", own, 304)
    if compressed:
        own.append((b"content-encoding", b"gzip"))
    own.append((b"content-type", media_type.encode()))
    return Response(content, own)


@cache
def _encoded(content: bytes, compressed: bool) -> tuple[bytes, bytes]:  # noqa: FBT001 - called in a thread
    """Return a form of the content, and the entity tag of this form."""
    if compressed:
        content = gzip.compress(content, mtime=0)
    return content, f'"{_version(content)}"'.encode()


@cache
def _version(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


def _items(headers: Iterable[Header], name: bytes) -> list[bytes]:
    """Return the items of a list in a header, which may be repeated."""
    values = [value for field, value in headers if field == name]
    return [item.strip() for item in b",".join(values).split(b",")]


def _accepts_gzip(codings: list[bytes]) -> bool:
    """Return whether an ``Accept-Encoding`` names gzip, and not to exclude it."""
    for coding in codings:
        name, _, weight = coding.lower().partition(b";")
        if name.strip() == b"gzip":
            return not _ZERO.fullmatch(weight.strip())
    return False


@cache
def _page(document: bytes, dev: bool) -> bytes:  # noqa: FBT001 - called in a thread
    return _linked(render_page(document, dev=dev))


@cache
def _part(name: str) -> bytes:
    return _linked((PARTS / name).read_text())


def _linked(text: str) -> bytes:
    """Return a page or a part of it with the versions of the parts that it refers to."""
    return _LINK.sub(lambda link: f"{link[1]}?v={_version(_part(link[1]))}", text).encode()
