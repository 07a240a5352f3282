"""The composition root: settings and a backend in, the application out."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.types import ASGIApp
from msgspec import Struct

from petstore import backends, errors, openapi
from petstore.api import ServiceController
from petstore.api.body import StrictRequest
from petstore.api.operations import OperationsController
from petstore.api.pets import PetsController
from petstore.api.store import StoreController
from petstore.auth import Keys, guard
from petstore.edge import Edge
from petstore.service import Service
from petstore.settings import Settings

_log = logging.getLogger("petstore")


class App(Struct, frozen=True):
    """The application, ready for a server: what to serve, and what the server tells it."""

    asgi: ASGIApp
    service: Service


def create_app(settings: Settings, plugin: backends.Plugin, storage: Struct, keys: Keys) -> App:
    """Build the application; it opens its storage in its lifespan and closes it there.

    plugin, storage -- the chosen backend and its settings
    keys -- the API keys to let in
    """
    service = Service(settings.root_path)
    groups = _groups(service)
    service.document = cache(partial(openapi.encode, groups, service.root))
    guarded = guard(keys)
    for group in groups:
        group.guards = [guarded]

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                service.repository = await stack.enter_async_context(plugin.backend.open(storage))
            except Exception as error:
                service.failure = error  # the server raises it where it is told in one line
                raise
            watcher = asyncio.create_task(keys.watch())
            try:
                yield
            finally:
                watcher.cancel()

    application = Litestar(
        route_handlers=[*groups, OperationsController.of(service)],
        lifespan=[lifespan],
        state=State({"service": service}, deep_copy=False),  # for hooks outside the controllers
        exception_handlers={Exception: _answer},
        request_class=StrictRequest,
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    return App(Edge(application, service), service)


def document(root: str) -> bytes:
    """Return the OpenAPI document of the service under a public prefix."""
    return openapi.encode(_groups(Service(root)), root)


def _groups(service: Service) -> list[type[ServiceController]]:
    """Return the controllers of the interface: what is under /v1, and behind a key."""
    return [PetsController.of(service), StoreController.of(service)]


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Turn any exception of a request into its answer; log what the client is not told."""
    answer = errors.to_api_error(error)
    if answer.code.status >= 500 and not isinstance(error, errors.ApiError):
        request_id = request.scope["request_id"].decode()  # type: ignore[typeddict-item]
        unexpected = error if answer.code is errors.Code.INTERNAL_ERROR else None
        _log.error(
            "%s",
            error or type(error).__name__,
            exc_info=unexpected,
            extra={"request_id": request_id},
        )
    return Response(
        errors.body(answer),
        status_code=answer.code.status,
        headers=answer.headers,
        media_type="application/json",
    )
