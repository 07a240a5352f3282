"""OpenTelemetry traces: one span per request, in the trace that its ``traceparent`` names.

They are on where the extra ``tracing`` is installed and OTEL_EXPORTER_OTLP_ENDPOINT says where to
send them, by OTLP over HTTP. Everything else is set by OpenTelemetry's own variables.
"""

import asyncio
import logging
import os
from threading import Thread
from typing import Any, Final, Self

from litestar.types import ASGIApp, Receive, Send

from petstore import __version__
from petstore.config.errors import ConfigurationError

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SANITIZE: Final = "OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SANITIZE_FIELDS"

_SHUTDOWN_SECONDS: Final = 0.5
"""How long the end of the process waits for a collector that does not respond."""

_log = logging.getLogger("petstore")


class Tracing:
    """The traces of one process. Raises `ModuleNotFoundError` where the extra is not installed."""

    def __init__(self) -> None:
        # The stable semantic conventions; read when the middleware is created.
        os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
        if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            os.environ.setdefault("OTEL_SERVICE_NAME", "petstore")
        # Of a malformed header they log the text: a client's own, or a key of the collector.
        for name in ("opentelemetry.baggage", "opentelemetry.trace", "opentelemetry.util.re"):
            logging.getLogger(name).setLevel(logging.ERROR)
        # Imported only here: they belong to an extra, and take 0.3 s of a start.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.propagate import set_global_textmap
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import get_current_span
        from opentelemetry.util.http import get_excluded_urls

        if "none" in [name.lower() for name in _list("OTEL_PROPAGATORS")]:
            # The library's own, of no propagators, returns None, and each request would fail.
            set_global_textmap(_NoPropagator())  # type: ignore[arg-type] # all of it that is used
        self._middleware = OpenTelemetryMiddleware
        self._excluded_urls = get_excluded_urls("ASGI")
        self._current_span = get_current_span
        version = Resource({"service.version": __version__})  # unless the environment has one
        resource = version.merge(Resource.create())
        self._provider = TracerProvider(shutdown_on_exit=False, resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the traces that the environment asks for, or None.

        If OpenTelemetry is not installed, that is logged, and the service runs without them.

        Raises `ConfigurationError` if it cannot start.
        """
        off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        off = off or os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"
        if off or not any(map(os.environ.get, _ENDPOINTS)):
            return None
        try:
            return cls()
        except ModuleNotFoundError as error:
            _log.warning(
                "no traces: %s is missing; install the service with its extra 'tracing'", error.name
            )
            return None
        except Exception as error:  # noqa: BLE001 - whatever its variables lead to
            reason = str(error) or repr(error)
            raise ConfigurationError(f"OpenTelemetry cannot start: {reason}") from None

    def trace_id(self) -> str | None:
        """Return the id of the current trace as 32 hexadecimal digits, or None outside a trace."""
        context = self._current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return the application with a span around each request, named after its route."""

        async def named(scope: Any, receive: Receive, send: Send) -> None:
            span = self._current_span()

            async def finish(message: Any) -> None:
                route = scope.get("path_template")
                if message["type"] == "http.response.start" and route:
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attribute("http.route", route)
                elif message["type"] == "lifespan.shutdown.complete":
                    await asyncio.to_thread(self._shut_down)
                await send(message)

            await app(scope, receive, finish)

        return self._middleware(  # type: ignore[return-value] # typed less exactly than ASGI
            named,
            default_span_details=lambda scope: (scope.get("method", "lifespan"), {}),
            tracer_provider=self._provider,
            exclude_spans=["receive", "send"],
            excluded_urls=self._excluded_urls,
            http_capture_headers_sanitize_fields=["authorization", *_list(_SANITIZE)],
        )

    def _shut_down(self) -> None:
        """Send the remaining spans, unless that takes too long."""
        thread = Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(_SHUTDOWN_SECONDS)


class _NoPropagator:
    """Takes no trace from a request: each begins its own."""

    @staticmethod
    def extract(_carrier: Any, context: Any = None, getter: Any = None) -> Any:  # noqa: ARG004
        """Return the context as it is."""
        from opentelemetry.context import get_current

        return get_current() if context is None else context


def _list(name: str) -> list[str]:
    """Return the items of a variable that holds a list."""
    return [text.strip() for text in os.environ.get(name, "").split(",") if text.strip()]
