"""OpenTelemetry traces: a span a request, part of the trace that its ``traceparent`` names.

They are on where the extra ``tracing`` is installed and OTEL_EXPORTER_OTLP_ENDPOINT says where to
send them, over OTLP and HTTP. The rest is set by OpenTelemetry's own variables.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from threading import Thread
from typing import Any, Final

from litestar.types import ASGIApp, Receive, Send

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SANITIZE: Final = "OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SANITIZE_FIELDS"

_LAST_SECONDS: Final = 0.5
"""How long the end of the process waits for a collector that does not answer."""

_log = logging.getLogger("petstore")


def traced(app: ASGIApp, environ: Mapping[str, str] = os.environ) -> ASGIApp:
    """Return the application, wrapped where traces are wanted.

    Where that cannot be done, it is logged, and the application is served as it is.
    """
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    off = off or environ.get("OTEL_TRACES_EXPORTER", "") == "none"
    if off or not any(environ.get(name) for name in _ENDPOINTS):
        return app
    try:
        return _wrapped(app)
    except ModuleNotFoundError as error:
        _log.warning(
            "no traces: %s is missing; install petstore-service with its extra 'tracing'",
            error.name,
        )
    except Exception as error:  # noqa: BLE001 - whatever it raises for a value of its variables
        _log.warning("no traces: OpenTelemetry cannot start: %s", str(error) or repr(error))
    return app


def _wrapped(app: ASGIApp) -> ASGIApp:
    # The names that OpenTelemetry has declared stable; read as the middleware is made.
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", "petstore")
    # Imported only here: an extra, and 0.3 s of a start.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter,
    )
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import format_trace_id, get_current_span
    from opentelemetry.util.http import get_excluded_urls

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    def end() -> None:
        """Send what is left, unless that takes too long."""
        last = Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(_LAST_SECONDS)

    async def named(scope: Any, receive: Receive, send: Send) -> None:
        span = get_current_span()
        context = span.get_span_context()
        if scope["type"] == "http" and context.is_valid:
            scope["trace_id"] = format_trace_id(context.trace_id)

        async def finish(message: Any) -> None:
            if message["type"] == "http.response.start" and (route := scope.get("path_template")):
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)
            elif message["type"] == "lifespan.shutdown.complete":
                await asyncio.to_thread(end)
            await send(message)

        await app(scope, receive, finish)

    return OpenTelemetryMiddleware(  # type: ignore[return-value] # its types say less than ASGI's
        named,
        default_span_details=lambda scope: (scope.get("method", "lifespan"), {}),
        tracer_provider=provider,
        exclude_spans=["receive", "send"],
        excluded_urls=get_excluded_urls("ASGI"),
        http_capture_headers_sanitize_fields=["authorization", *_more(_SANITIZE)],
    )


def _more(name: str) -> list[str]:
    """Return the values of a variable that holds a list."""
    return [text.strip() for text in os.environ.get(name, "").split(",") if text.strip()]
