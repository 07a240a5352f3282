"""OpenTelemetry traces: one span per request, in the trace that its ``traceparent`` names.

They are on where the extra ``tracing`` is installed and OTEL_EXPORTER_OTLP_ENDPOINT says where to
send them, by OTLP over HTTP. Everything else is set by OpenTelemetry's own variables.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from threading import Thread
from typing import Any, Final, Self

from litestar.types import ASGIApp, Receive, Send

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SANITIZE: Final = "OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SANITIZE_FIELDS"

_CHECK_SECONDS: Final = 2
"""How long `Tracing.can_send` tries."""

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
        # Of a malformed header they log the client's own text, in a line for each request.
        for name in ("opentelemetry.baggage", "opentelemetry.trace"):
            logging.getLogger(name).setLevel(logging.ERROR)
        # Imported only here: they belong to an extra, and take 0.3 s of a start.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import get_current_span
        from opentelemetry.util.http import get_excluded_urls

        self._middleware = OpenTelemetryMiddleware
        self._excluded_urls = get_excluded_urls("ASGI")
        self._current_span = get_current_span
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """Return the traces that the environment asks for, or None.

        If they cannot be started, that is logged, and the service runs without them.
        """
        off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        off = off or environ.get("OTEL_TRACES_EXPORTER", "") == "none"
        if off or not any(environ.get(name) for name in _ENDPOINTS):
            return None
        try:
            return cls()
        except ModuleNotFoundError as error:
            _log.warning(
                "no traces: %s is missing; install the service with its extra 'tracing'",
                error.name,
            )
        except Exception as error:  # noqa: BLE001 - whatever it raises for wrong variables
            _log.warning("no traces: OpenTelemetry cannot start: %s", str(error) or repr(error))
        return None

    @staticmethod
    def can_send() -> bool:
        """Send an empty batch; return whether the collector accepts it. The log says why not."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        return OTLPSpanExporter(timeout=_CHECK_SECONDS).export([]) is SpanExportResult.SUCCESS

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


def _list(name: str) -> list[str]:
    """Return the items of a variable that holds a list."""
    return [text.strip() for text in os.environ.get(name, "").split(",") if text.strip()]
