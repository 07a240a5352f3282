"""OpenTelemetry traces, received over OTLP and HTTP by a collector in the test."""

import gzip
import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from petstore import __version__
from petstore.config.errors import ConfigurationError
from petstore.observability import trace_variables
from petstore.observability.tracing import Tracing
from tests.support.command import SECRET, error_message, in_process, run_command
from tests.support.ports import free_port
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, process
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


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
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()
    thread.join()


def attributes(span: Any) -> dict[str, object]:
    """Return a span's attributes."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_request_is_a_span_of_the_trace_that_its_headers_name(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST", ".*")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # the end does not wait long for the rest
    settings = {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets.sqlite", "workers": workers}
    with process(tmp_path, drain_seconds="0", **settings) as live:
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


def test_check_says_whether_traces_can_be_sent(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok = "ok: the collector accepts traces\n"
    warning = "petstore: warning: traces cannot be sent; check the OTEL_EXPORTER_OTLP_ variables\n"
    assert ok not in in_process("check", backend="memory").stdout
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    outcome = run_command("check", backend="memory", api_keys=KEY)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.endswith(ok)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    outcome = run_command("check", backend="memory")
    assert (outcome.status, ok in outcome.stdout) == (0, False)
    assert "onnection refused" in outcome.stderr
    assert outcome.stderr.endswith(warning)


def test_traces_are_off_unless_they_are_configured() -> None:
    assert Tracing.from_environment({}) is None
    assert Tracing.from_environment(ENDPOINT | {"OTEL_SDK_DISABLED": "true"}) is None
    assert Tracing.from_environment(ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}) is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("OTEL_TRACES_EXPORTER", ["zipkin", "otlp,console"]),
        ("OTEL_SDK_DISABLED", ["1", "yes"]),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ["localhost:4317", "grpc://a", "http://a:b"]),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ["http://", "http://a:99999", "http://a b"]),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", ["grpc", "http/json"]),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", ["grpc"]),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", ["zstd"]),
        ("OTEL_EXPORTER_OTLP_HEADERS", [SECRET, f"a={SECRET},b", f"a={SECRET}%0Ab", "ä=1"]),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", ["soon", "0", "-1", "inf", "nan"]),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", ["/none/ca.pem", __file__]),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", ["/none/client.pem", __file__]),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", ["gcp"]),
        ("OTEL_PROPAGATORS", ["b3", "tracecontext,b3", "tracecontext,"]),
        ("OTEL_TRACES_SAMPLER", ["xray", "always"]),
        ("OTEL_TRACES_SAMPLER_ARG", ["2", "-0.1", "nan", "half"]),
        ("OTEL_RESOURCE_ATTRIBUTES", ["region", "a=1,b"]),
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", ["gcp"]),
        ("OTEL_PYTHON_CONTEXT", ["gevent"]),
        ("OTEL_PYTHON_METER_PROVIDER", ["none"]),
        ("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", ["1"]),
        ("OTEL_PYTHON_EXCLUDED_URLS", ["livez,("]),
        ("OTEL_PYTHON_ASGI_EXCLUDED_URLS", ["*"]),
        ("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST", ["*"]),
        ("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_RESPONSE", ["*"]),
        ("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SANITIZE_FIELDS", ["*"]),
        ("OTEL_BSP_MAX_QUEUE_SIZE", ["0", "many", "1"]),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", ["0", "many", "2049"]),
        ("OTEL_BSP_SCHEDULE_DELAY", ["0", "soon", "9" * 20]),
        ("OTEL_BSP_EXPORT_TIMEOUT", ["soon"]),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", ["abc", "-1"]),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", ["abc"]),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", ["abc"]),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", ["abc"]),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", ["abc"]),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", ["abc"]),
        ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", ["abc"]),
        ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", ["abc"]),
    ],
)
def test_a_variable_that_cannot_work_is_an_error_that_names_it(
    name: str, values: list[str]
) -> None:
    for value in values:
        with pytest.raises(ConfigurationError, match="must be ") as error:
            Tracing.from_environment(ENDPOINT | {name: value})
        assert name in str(error.value)
        assert SECRET not in str(error.value)
        assert "\n" not in str(error.value)


def test_every_value_that_the_specification_has_for_propagators_and_samplers_works() -> None:
    for variables in (
        {"OTEL_PROPAGATORS": "tracecontext, baggage"},
        {"OTEL_PROPAGATORS": "tracecontext,None"},
        {"OTEL_TRACES_SAMPLER": "ParentBased_TraceIdRatio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
        {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "*,process"},
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        },
        {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=Bearer c=="},
    ):
        trace_variables.check(ENDPOINT | variables)


def test_a_variable_that_only_the_library_refuses_is_an_error_that_lists_what_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The release that is installed may read more than the table has."""
    monkeypatch.setattr(trace_variables, "check", lambda _: None)
    with mock.patch.dict(os.environ), pytest.raises(ConfigurationError) as error:
        Tracing.from_environment(ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "1"})
    assert str(error.value) == (
        "OpenTelemetry cannot start: max_export_batch_size must be less than or equal to"
        " max_queue_size.; check OTEL_BSP_MAX_QUEUE_SIZE, OTEL_EXPORTER_OTLP_ENDPOINT"
    )


@pytest.mark.parametrize("arguments", [["check"], ["serve"], ["serve", "--workers", "2"]])
def test_the_commands_report_a_wrong_variable_before_a_store_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_PROPAGATORS", "b3")
    path = tmp_path / "pets.sqlite"
    keys = {"api_keys": KEY, "log": "text", "listen": "127.0.0.1:0"}
    outcome = in_process(*arguments, backend="sqlite", sqlite_path=str(path), **keys)
    assert error_message(outcome) == (
        "petstore: OTEL_PROPAGATORS must be installed propagators, separated by commas, or none;"
        " it is 'b3'\n"
    )
    assert not path.exists()


def test_without_propagators_each_request_begins_a_trace_of_the_configured_service(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,service.version=9-rc")
    monkeypatch.setenv("OTEL_PROPAGATORS", "none")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "  ")  # the same as not set
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
    with mock.patch.dict(os.environ):
        assert Tracing.from_environment(ENDPOINT) is None
    assert "install the service with its extra 'tracing'" in caplog.text
