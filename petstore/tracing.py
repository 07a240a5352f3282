"""OpenTelemetry traces: a span a request, part of the trace that its ``traceparent`` names.

They are on where the extra ``tracing`` is installed and OTEL_EXPORTER_OTLP_ENDPOINT says where to
send them. All else is set by OpenTelemetry's own variables, such as OTEL_TRACES_SAMPLER.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from threading import Timer
from typing import Any, Final

from litestar.types import ASGIApp, Receive, Send

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_LAST_SECONDS: Final = 0.5
"""How long the end of the process waits for a collector that does not answer."""

_log = logging.getLogger("petstore")


def traced(app: ASGIApp, environ: Mapping[str, str] = os.environ) -> ASGIApp:
    """Return the application, wrapped where traces are wanted."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if off or not any(environ.get(name) for name in _ENDPOINTS):
        return app
    try:
        return _wrapped(app)
    except ModuleNotFoundError as error:
        _log.warning(
            "no traces: %s is missing; install petstore-service with its extra 'tracing'",
            error.name,
        )
        return app


def _wrapped(app: ASGIApp) -> ASGIApp:
    # The names that OpenTelemetry has declared stable; read as the middleware is made.
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", "petstore")
    # An optional extra, and 0.3 s of a start.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.trace import format_trace_id, get_current_span  # noqa: PLC0415

    exporter = OTLPSpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))

    def end() -> None:
        timer = Timer(_LAST_SECONDS, exporter.shutdown)
        timer.start()
        provider.shutdown()
        timer.cancel()

    async def named(scope: Any, receive: Receive, send: Send) -> None:
        span = get_current_span()
        if scope["type"] == "http":
            scope["trace_id"] = format_trace_id(span.get_span_context().trace_id)

        async def finish(message: Any) -> None:
            if message["type"] == "http.response.start" and "path_template" in scope:
                route = scope["path_template"]
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
        http_capture_headers_sanitize_fields=["authorization"],
    )
