"""What operators and developers need: outside /v1 and without a key."""

import asyncio
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

_CACHEABLE: Final = {"cacheable": True}
_NO_CACHE: Final[Header] = (b"cache-control", b"no-cache")

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
        return _validated(request, request.service.document, JSON)

    @get("/docs", operation_id="docs", opt=_CACHEABLE)
    async def reference(self, request: ServiceRequest) -> Response[bytes]:
        """Return the page of the interactive reference."""
        page = await asyncio.to_thread(_page, request.service.document)
        return _validated(request, page, "text/html", *_PAGE_HEADERS)

    @get("/docs/{name:str}", operation_id="docsAsset", opt=_CACHEABLE)
    async def asset(self, request: ServiceRequest, name: FromPath[str]) -> Response[bytes]:
        """Return a part of the reference page."""
        if name not in _PARTS:
            raise not_found("Path")
        return _validated(request, await asyncio.to_thread(_part, name), _PARTS[name])


def _validated(
    request: ServiceRequest, content: bytes, media_type: str, *headers: Header
) -> Response[bytes]:
    """Return the content, or 304 if the client has it.

    The entity tags are compared weakly (RFC 9110, section 13.1.2).
    """
    own = [_NO_CACHE, *headers, (b"etag", etag := _entity_tag(content))]
    values = [value for name, value in request.scope["headers"] if name == b"if-none-match"]
    known = [tag.strip().removeprefix(b"W/") for tag in b",".join(values).split(b",")]
    if b"*" in known or etag in known:
        return Response(b"", own, 304)
    return Response(content, [*own, (b"content-type", media_type.encode())])


@cache
def _entity_tag(content: bytes) -> bytes:
    return f'"{sha256(content).hexdigest()[:32]}"'.encode()


@cache
def _page(document: bytes) -> bytes:
    return render_page(document).encode()


@cache
def _part(name: str) -> bytes:
    return (PARTS / name).read_bytes()
