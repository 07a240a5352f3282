"""The composition root: settings and a backend in, the application out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial

from litestar import Litestar
from litestar.datastructures import State
from litestar.types import ASGIApp
from msgspec import Struct

from petstore import backends, openapi
from petstore.api import ServiceController
from petstore.api.body import StrictRequest
from petstore.api.operations import OperationsController
from petstore.api.pets import PetsController
from petstore.api.store import StoreController
from petstore.auth import Keys, guard
from petstore.cors import Cors
from petstore.edge import Edge
from petstore.limits import InFlight, Limiter, RateLimit, in_flight_guard, rate_guard
from petstore.service import Service
from petstore.settings import Settings


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
    guards = [guard(keys)]
    if settings.rate_limit:
        guards.append(rate_guard(Limiter(RateLimit.parse(settings.rate_limit))))
    guards.append(in_flight_guard(InFlight(settings.max_in_flight)))
    for group in groups:
        group.guards = guards

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
        request_class=StrictRequest,
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    metrics = None
    if settings.metrics_listen:
        from petstore.metrics.counting import Metrics  # noqa: PLC0415 - see petstore.metrics

        metrics = Metrics()
    asgi: ASGIApp = Edge(application, service, metrics)
    if settings.cors_origins:
        asgi = Cors(asgi, settings.origins)
    return App(asgi, service)


def document(root: str) -> bytes:
    """Return the OpenAPI document of the service under a public prefix."""
    return openapi.encode(_groups(Service(root)), root)


def _groups(service: Service) -> list[type[ServiceController]]:
    """Return the controllers of the interface: what is under /v1, and behind a key."""
    return [PetsController.of(service), StoreController.of(service)]
