"""The composition root: settings and a backend in, the application out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from typing import Any

from litestar import Litestar, Router
from litestar.types import ASGIApp, Guard
from msgspec import Struct

from petstore.config.discovery import Plugin
from petstore.config.keys import Keys
from petstore.config.settings import Settings
from petstore.http.api.operations import OperationsController
from petstore.http.api.orders import OrdersController
from petstore.http.api.pets import PetsController
from petstore.http.auth import key_guard
from petstore.http.body import StrictRequest
from petstore.http.cors import Cors
from petstore.http.fast_path import FastPath
from petstore.http.headers import API_PREFIX, Header
from petstore.http.limits import InFlight, RateLimit, RateLimiter, in_flight_guard, rate_guard
from petstore.http.malformed import reject_malformed
from petstore.http.middleware import ServiceMiddleware
from petstore.http.openapi.document import encode_document
from petstore.http.options import propagate
from petstore.http.state import ServiceState
from petstore.observability.storage_health import StorageHealth
from petstore.observability.tracing import Tracing


class Application(Struct, frozen=True):
    """The application, ready for a server.

    asgi -- what to serve
    state -- what the server reads and sets
    reject -- returns headers and body of the 400 for a malformed request
    """

    asgi: ASGIApp
    state: ServiceState
    reject: Callable[[str, list[Header], dict[str, Any] | None], tuple[list[Header], bytes]]


def create_app(settings: Settings, plugin: Plugin, storage: Struct, keys: Keys) -> Application:
    """Build the application; it opens its storage in its lifespan and closes it there.

    plugin, storage -- the chosen backend and its settings
    keys -- the valid API keys

    Raises `UnsupportedOptionError` if the fast path does not honor a handler or an option.
    """
    state = ServiceState(settings.root_path)
    state.document = cache(partial(encode_document, api_router(), state.root_path))

    # Guards run in this order: the rate limit needs the client that the key belongs to, and a
    # request that is refused must not hold a slot.
    guards: list[Guard] = [
        key_guard(keys),
        *_rate_guards(settings),
        in_flight_guard(InFlight(settings.max_in_flight, settings.max_body_bytes)),
    ]

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                state.repository = await stack.enter_async_context(plugin.backend.open(storage))
            except Exception as error:
                state.startup_error = error  # the server raises it, to be reported in one line
                raise
            watcher = asyncio.create_task(keys.watch())
            try:
                yield
            finally:
                watcher.cancel()

    application = FastPath(
        Litestar(
            route_handlers=[api_router(guards), OperationsController],
            lifespan=[lifespan],
            request_class=StrictRequest,
            request_max_body_size=settings.max_body_bytes,
            exception_handlers={Exception: propagate},
            openapi_config=None,
            logging_config=None,
        )
    )
    tracing = Tracing.from_environment()
    metrics = None
    if settings.metrics_listen:
        from petstore.observability.metrics import Metrics  # noqa: PLC0415 - see metrics_server

        metrics = Metrics()
    state.storage_health = StorageHealth(metrics)

    allow = application.allow
    trace_id = tracing.trace_id if tracing else None
    middleware: list[Callable[[ASGIApp], ASGIApp]] = [  # outermost first
        *([tracing.wrap] if tracing else []),
        *([partial(Cors, allow=allow, origins=settings.origins)] if settings.cors_origins else []),
        partial(ServiceMiddleware, allow=allow, state=state, metrics=metrics, trace_id=trace_id),
    ]
    asgi: ASGIApp = application
    for wrap in reversed(middleware):
        asgi = wrap(asgi)
    return Application(asgi, state, reject_malformed)


def api_router(guards: Sequence[Guard] = ()) -> Router:
    """Return the router of the interface: everything below /v1."""
    return Router(
        API_PREFIX,
        route_handlers=[PetsController, OrdersController],
        guards=guards,
        opt={"fast_path": True},
    )


def document(root_path: str) -> bytes:
    """Return the OpenAPI document of the service under a public prefix."""
    return encode_document(api_router(), root_path)


def _rate_guards(settings: Settings) -> list[Guard]:
    if not settings.rate_limit:
        return []
    return [rate_guard(RateLimiter(RateLimit.parse(settings.rate_limit)))]
