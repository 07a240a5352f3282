"""The composition root: settings and a backend in, the application out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from mmap import mmap
from typing import Any

from litestar import Litestar, Router
from litestar.config.app import AppConfig
from litestar.types import ASGIApp
from msgspec import Struct

from petstore.config.loading import Configuration
from petstore.contract import Access, Expected, Repository
from petstore.http.api.operations import OperationsController
from petstore.http.api.orders import OrdersController
from petstore.http.api.pets import PetsController
from petstore.http.cors import Cors
from petstore.http.guards import key_guard, rate_guard, read_only_guard, slot_guard
from petstore.http.headers import Header
from petstore.http.limits import RateLimiter, SharedCounters, shared_counters_bytes
from petstore.http.openapi.document import encode_document
from petstore.http.request import ServiceState
from petstore.http.routes import API_PREFIX, Guard, Routes
from petstore.http.service import Service
from petstore.http.shares import Shares
from petstore.observability.storage_health import StorageHealth
from petstore.observability.tracing import Tracing
from petstore.store.shared import SharedStore, shared_store_bytes
from petstore.store.watched import watched


class Application(Struct, frozen=True):
    """The application, ready for a server.

    asgi -- what to serve
    state -- what the server reads and sets
    reject -- returns headers and body of the 400 for a malformed request
    tick -- called about once a second with the number of open connections
    """

    asgi: ASGIApp
    state: ServiceState
    reject: Callable[[str, list[Header], dict[str, Any] | None], tuple[list[Header], bytes]]
    tick: Callable[[int], None]


Shared = tuple[SharedStore, SharedCounters]
"""What the workers of a service share: what they know of the store, and counts of requests."""


def create_app(configuration: Configuration, shared: Shared | None = None) -> Application:
    """Build the application; it opens its storage in its lifespan and closes it there.

    shared -- what several workers share; None if there is one
    """
    settings, keys = configuration.settings, configuration.keys
    shared_store, counters = shared or (
        SharedStore(bytearray(shared_store_bytes(1))),
        SharedCounters(memoryview(mmap(-1, shared_counters_bytes()))),
    )
    tracing = Tracing.from_environment()
    metrics = None
    if settings.metrics_listen is not None:
        from petstore.observability.metrics import Metrics  # noqa: PLC0415 - see metrics_port

        metrics = Metrics(read_only=settings.read_only)
        keys.on_reload = metrics.keys_reloaded

    # Guards run in this order: the rate limit needs the client that the key belongs to, and a
    # request that is refused must not hold a slot.
    guards: list[Guard] = [key_guard(keys)]
    if settings.rate_limit is not None:
        guards.append(rate_guard(RateLimiter(settings.rate_limit, counters)))
    if settings.read_only:
        guards.append(read_only_guard)
    guards.append(slot_guard)

    def use(repository: Repository) -> None:
        state.repository = metrics.observe_calls(repository) if metrics else repository

    access = Access.READ if settings.read_only else Access.CREATE
    store = watched(
        partial(configuration.plugin.backend.open, configuration.storage),
        Expected(settings.store, access, settings.workers),
        shared_store,
        use,
        metrics.storage_checked if metrics else lambda: None,
    )

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(store)
            except Exception as error:
                state.startup_error = error  # the server raises it, to be reported in one line
                raise
            stack.callback(asyncio.create_task(keys.watch()).cancel)
            yield

    routes = Routes(
        AppConfig(
            route_handlers=[api_router(guards), OperationsController],
            lifespan=[lifespan],
            request_max_body_size=settings.max_body_bytes,
        ),
        settings.root_path,
    )
    state = ServiceState(
        settings.root_path,
        encode_document(routes.operations, settings.root_path),
        Shares(settings.max_in_flight, settings.max_body_bytes),
        StorageHealth(metrics),
    )
    service = Service(
        routes,
        state,
        cors=Cors(routes.allow, settings.cors_origins) if settings.cors_origins else None,
        metrics=metrics,
        trace_id=tracing.trace_id if tracing else None,
    )
    asgi = tracing.wrap(service) if tracing else service
    tick = metrics.tick if metrics else lambda _: None
    return Application(asgi, state, service.reject, tick)


def api_router(guards: Sequence[Guard] = ()) -> Router:
    """Return the router of the interface: everything below /v1."""
    return Router(API_PREFIX, route_handlers=[PetsController, OrdersController], guards=guards)


def document(root_path: str) -> bytes:
    """Return the OpenAPI document of the service under a public prefix, without an application."""
    config = AppConfig(route_handlers=[api_router()], request_max_body_size=None)
    return encode_document(Routes(config, root_path).operations, root_path)
