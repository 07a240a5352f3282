"""What operators and developers need: outside /v1 and without a key."""

import asyncio
import logging
from functools import cache
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

_log = logging.getLogger("petstore")

# The parts of the reference page: our own, in the folder beside this file, and Swagger UI's.
_OWN: Final = {
    "reference.css": "text/css",
    "operations.css": "text/css",
    "reference.js": "text/javascript",
    "favicon.svg": "image/svg+xml",
}
_SWAGGER_UI: Final = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}

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
            _log.warning("not ready: %s", str(error) or "the storage did not respond in time")
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
    async def asset(self, name: FromPath[str]) -> Response[bytes]:
        """Return a part of the reference page."""
        if name in _OWN:
            content = await asyncio.to_thread(_own, name)
            return Response(content, media_type=_OWN[name])
        if name in _SWAGGER_UI:
            content = await asyncio.to_thread(_swagger_ui, name)
            headers = {"cache-control": "public, max-age=86400"}
            return Response(content, media_type=_SWAGGER_UI[name], headers=headers)
        raise not_found("Path")


@cache
def _own(name: str) -> bytes:
    """Read one of our own parts of the page."""
    return (Path(__file__).parent / "page" / name).read_bytes()


@cache
def _swagger_ui(name: str) -> bytes:
    """Read a file of Swagger UI from the distribution that contains it, which is not imported."""
    spec = find_spec("swagger_ui")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the distribution swagger-ui-py is not installed")
    return (Path(spec.origin).parent / "static" / name).read_bytes()
