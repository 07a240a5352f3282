"""What operators and developers need: outside /v1 and without a key."""

import asyncio
import gzip
import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from litestar import Controller, MediaType, Response, get
from litestar.params import FromPath
from litestar.types import Scope

from petstore.contract import StorageError
from petstore.http.errors import not_found, unavailable
from petstore.http.state import get_state

READY_SECONDS: Final = 1
"""The time limit for the storage to respond; after that ``/readyz`` is 503."""

# The parts of the reference page: our own, in the folder beside this file, and Swagger UI's.
_OWN: Final = {
    "reference.css": "text/css",
    "operations.css": "text/css",
    "reference.js": "text/javascript",
    "favicon.svg": "image/svg+xml",
}
_SWAGGER_UI: Final = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_TYPES: Final = _OWN | _SWAGGER_UI
_ZERO: Final = re.compile(rb"q=0(\.0*)?")

# The page loads only what this service serves; Swagger UI draws its icons from data: images.
_PAGE_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}


class OperationsController(Controller):
    """Liveness, readiness, the OpenAPI document and the interactive reference."""

    path = "/"

    @get("/", operation_id="root", media_type=MediaType.TEXT, status_code=302)
    async def root(self, scope: Scope) -> Response[str]:
        """Redirect to the reference."""
        return Response("", headers={"location": f"{get_state(scope).root_path}/docs"})

    @get("/livez", operation_id="livez", media_type=MediaType.TEXT)
    async def livez(self) -> str:
        """Show that the process runs. Never uses the storage."""
        return "ok\n"

    @get("/readyz", operation_id="readyz", media_type=MediaType.TEXT)
    async def readyz(self, scope: Scope) -> str:
        """Show that the storage responds and the service is not stopping; otherwise 503."""
        state = get_state(scope)
        if state.draining:
            raise unavailable("The service is stopping.")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await state.repository.list_pets(0, 1, None)
        except (StorageError, TimeoutError) as error:
            reason = str(error) or "the storage did not respond in time"
            state.storage_health.not_ready(reason)
            raise unavailable("The storage does not respond.") from None
        return "ok\n"

    @get("/openapi.json", operation_id="openapi", media_type="application/json")
    async def document(self, scope: Scope) -> bytes:
        """Return the OpenAPI document."""
        return await asyncio.to_thread(get_state(scope).document)

    @get("/docs", operation_id="docs", media_type=MediaType.HTML)
    async def reference(self) -> Response[bytes]:
        """Return the page of the interactive reference."""
        return Response(await asyncio.to_thread(_own, "index.html"), headers=_PAGE_HEADERS)

    @get("/docs/{name:str}", operation_id="docsAsset", media_type=MediaType.TEXT)
    async def asset(self, scope: Scope, name: FromPath[str]) -> Response[bytes]:
        """Return a part of the reference page, compressed if the client accepts that."""
        if name not in _TYPES:
            raise not_found("Path")
        sent = _join(scope["headers"])
        compressed = _accepts_gzip(sent.get(b"accept-encoding", b""))
        content, etag = await asyncio.to_thread(_asset, name, compressed)
        headers = {
            "cache-control": "no-cache" if name in _OWN else "public, max-age=86400",
            "etag": etag,
            "vary": "accept-encoding",
        }
        known = [
            tag.strip() for tag in sent.get(b"if-none-match", b"").decode("latin-1").split(",")
        ]
        if "*" in known or etag in [tag.removeprefix("W/") for tag in known]:
            return Response(b"", headers=headers, status_code=304)  # RFC 9110, section 13.1.2
        if compressed:
            headers["content-encoding"] = "gzip"
        return Response(content, media_type=_TYPES[name], headers=headers)


@cache
def _asset(name: str, compressed: bool) -> tuple[bytes, str]:  # noqa: FBT001 - called in a thread
    """Return a part of the page, and the entity tag of this form of it."""
    content = _own(name) if name in _OWN else _swagger_ui(name)
    if compressed:
        content = gzip.compress(content, mtime=0)
    return content, f'"{sha256(content).hexdigest()[:32]}"'


def _join(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by name; the values of a repeated one are joined by commas."""
    joined: dict[bytes, bytes] = {}
    for name, value in headers:
        joined[name] = joined[name] + b"," + value if name in joined else value
    return joined


def _accepts_gzip(accepted: bytes) -> bool:
    """Return whether an ``Accept-Encoding`` names gzip, and not to exclude it."""
    for coding in accepted.lower().split(b","):
        name, _, weight = coding.partition(b";")
        if name.strip() == b"gzip":
            return not _ZERO.fullmatch(weight.strip())
    return False


@cache
def _own(name: str) -> bytes:
    """Read one of our own parts of the page."""
    return (Path(__file__).parent / "page" / name).read_bytes()


def _swagger_ui(name: str) -> bytes:
    """Read a file of Swagger UI from the distribution that contains it, which is not imported."""
    spec = find_spec("swagger_ui")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the distribution swagger-ui-py is not installed")
    return (Path(spec.origin).parent / "static" / name).read_bytes()
