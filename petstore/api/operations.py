"""What operators and developers ask for, outside /v1 and without a key."""

import asyncio
import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from litestar import MediaType, Response, get
from litestar.params import FromPath

from petstore.api import ServiceController
from petstore.contract import StorageError
from petstore.errors import not_found, unavailable

READY_SECONDS: Final = 1
"""How long the storage may take to show that it answers."""

_log = logging.getLogger("petstore")

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pet store service</title>
<link rel="icon" href="docs/favicon-32x32.png" type="image/png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/reference.js"></script>
</body>
</html>
"""

_SCRIPT: Final = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
});
"""

_ASSETS: Final = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}

_NO_SNIFF: Final = {"x-content-type-options": "nosniff"}

# The page runs only what this service serves; Swagger UI draws its icons from data: images.
_PAGE_HEADERS: Final = _NO_SNIFF | {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}


class OperationsController(ServiceController):
    """Liveness, readiness, the OpenAPI document and the interactive reference."""

    path = "/"

    @get("/livez", media_type=MediaType.TEXT)
    async def livez(self) -> str:
        """Say that the process runs. Never touches the storage."""
        return "ok\n"

    @get("/readyz", media_type=MediaType.TEXT)
    async def readyz(self) -> str:
        """Say that the storage answers and the service is not about to stop, or answer 503."""
        if self.service.draining:
            raise unavailable("The service is stopping.")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.service.repository.list_pets(0, 1, None)
        except (StorageError, TimeoutError) as error:
            _log.warning("not ready: %s", error or "the storage does not answer in time")
            raise unavailable("The storage does not answer.") from None
        return "ok\n"

    @get("/openapi.json", media_type="application/json")
    async def document(self) -> bytes:
        """Return the OpenAPI document."""
        return await asyncio.to_thread(self.service.document)

    @get("/docs", media_type=MediaType.HTML)
    async def reference(self) -> Response[str]:
        """Return the page of the interactive reference."""
        return Response(_PAGE, headers=_PAGE_HEADERS)

    @get("/docs/{name:str}", media_type=MediaType.TEXT)
    async def asset(self, name: FromPath[str]) -> Response[bytes]:
        """Return a part of the reference page."""
        if name == "reference.js":
            return Response(_SCRIPT.encode(), media_type="text/javascript", headers=_NO_SNIFF)
        if name not in _ASSETS:
            raise not_found("This path")
        content = await asyncio.to_thread(_asset, name)
        headers = _NO_SNIFF | {"cache-control": "public, max-age=86400"}
        return Response(content, media_type=_ASSETS[name], headers=headers)


@cache
def _asset(name: str) -> bytes:
    """Read a file of Swagger UI out of the distribution that carries it, without importing that."""
    spec = find_spec("swagger_ui")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the distribution swagger-ui-py is not installed")
    return (Path(spec.origin).parent / "static" / name).read_bytes()
