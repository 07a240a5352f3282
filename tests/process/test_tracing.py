"""OpenTelemetry traces, received over OTLP and HTTP by a collector in the test."""

import gzip
import os
import socket
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from petstore import __version__, exit_status
from petstore.observability.tracing import Tracing
from tests.support.command import run_command
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, process
from tests.support.serving import serving
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector:
    """Receives spans, and keeps each with the name of the service that sent it."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.versions: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    names = {a.key: a.value.string_value for a in group.resource.attributes}
                    collector.versions.add(names["service.version"])
                    for scope in group.scope_spans:
                        collector.spans += [(names["service.name"], span) for span in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Run a collector."""
    collector = Collector()
    with serving(collector.server):
        yield collector


def attributes(span: Any) -> dict[str, object]:
    """Return a span's attributes."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_request_is_a_span_of_the_trace_that_its_headers_name(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST", ".*")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "not-for-the-log")  # malformed
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # the end does not wait long for the rest
    with process(tmp_path, drain_seconds="0", workers=workers) as live:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"}
        assert live.client.get("/v1/pets/7?a=b", headers=headers).status_code == 404
        assert live.client.head("/v1/pets/7").status_code == 404
        malformed = {"baggage": "not-for-the-log", "tracestate": "not-for-the-log"}
        headers = {"traceparent": headers["traceparent"]} | malformed
        assert live.client.get("/v1/nothing", headers=headers).status_code == 404
        until(lambda: len(collector.spans) == 3)
        assert live.stop() == 0
    assert {service for service, _ in collector.spans} == {"petstore"}
    assert collector.versions == {__version__}
    spans = {span.name: span for _, span in collector.spans}
    assert spans.keys() == {"GET /v1/pets/{pet_id}", "HEAD /v1/pets/{pet_id}", "GET"}
    span = spans["GET /v1/pets/{pet_id}"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    found = attributes(span)
    assert found["http.route"] == "/v1/pets/{pet_id}"
    assert found["http.request.method"] == "GET"
    assert found["http.response.status_code"] == 404
    assert KEY not in str(collector.spans), "although all headers are recorded"
    log = live.log.read_text().splitlines()
    (line,) = [msgspec.json.decode(line) for line in log if '"mine"' in line]
    assert line["trace_id"] == TRACE
    assert "not-for-the-log" not in str(log)


def test_a_collector_that_never_responds_delays_neither_responses_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")  # the library itself would wait
        with process(tmp_path, drain_seconds="0") as live:
            assert live.client.get("/v1/pets").status_code == 200
            assert live.stop() == 0


@pytest.mark.parametrize(
    "variables", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}]
)
def test_traces_are_off_unless_they_are_configured(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9" if variables else "")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert Tracing.from_environment() is None


@pytest.mark.parametrize("arguments", [["check"], ["serve"], ["serve", "--workers", "2"]])
def test_it_is_told_that_opentelemetry_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    path = tmp_path / "pets.sqlite"
    keys = {"api_keys": KEY, "log": "text", "listen": "127.0.0.1:0"}
    outcome = run_command(*arguments, backend="sqlite", sqlite_path=str(path), **keys)
    assert outcome.status == exit_status.CONFIGURATION
    assert (
        "OpenTelemetry cannot start: max_export_batch_size must be less than or equal to"
        " max_queue_size."
    ) in outcome.stderr


def test_without_propagators_each_request_begins_a_trace_of_the_configured_service(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,service.version=9-rc")
    monkeypatch.setenv("OTEL_PROPAGATORS", "none")
    with process(tmp_path, drain_seconds="0") as live:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert live.client.get("/livez", headers=headers).status_code == 200
        assert live.stop() == 0  # the remaining spans are sent as the process ends
    ((service, span),) = until(lambda: collector.spans)  # the end does not wait for long
    assert (service, collector.versions) == ("shop", {"9-rc"})
    assert (span.trace_id.hex() == TRACE, span.parent_span_id) == (False, b"")


def test_without_the_extra_the_service_runs_and_logs_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.asgi", None)
    with mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}):
        assert Tracing.from_environment() is None
    assert "install the service with its extra 'tracing'" in caplog.text
