"""OpenTelemetry's variables, as far as they matter to traces, checked before they are used.

The library itself logs a wrong one and takes the default, or fails with the first request.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from petstore.config.errors import ConfigurationError, shorten
from petstore.config.settings import is_secret, mask

_MAX_QUEUE_SIZE: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
_MAX_BATCH_SIZE: Final = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"

# As the library reads it, which is less strict than the specification. It drops any other header.
_HEADER: Final = re.compile(r"[!#-'*+.0-9A-Z^-z|~-]+[ \t]*=([ !#-+\--:<-\[\]-~]*)")


_Check = Callable[[str], object]
"""Returns False, or raises any exception, for a value that cannot work."""


def check(variables: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` that names the first variable that cannot work.

    variables -- those that are set, without whitespace around their values
    """
    for names, expected, works in _VARIABLES:
        name = next((name for name in names if name in variables), None)
        if name is None:
            continue
        text = variables[name]
        try:
            usable = works(text) is not False
        except Exception:  # noqa: BLE001 - also whatever an installed plugin raises
            usable = False
        if not usable:
            hidden = is_secret(name) or name.endswith("HEADERS")
            shown = "" if hidden else f"; it is {shorten(repr(mask(name, text)))}"
            raise ConfigurationError(f"{name} must be {expected}{shown}")
    queue = int(variables.get(_MAX_QUEUE_SIZE, 2048))
    if (batch := int(variables.get(_MAX_BATCH_SIZE, 512))) > queue:
        raise ConfigurationError(
            f"{_MAX_BATCH_SIZE} is {batch} and must be at most {_MAX_QUEUE_SIZE}, which is {queue}"
        )
    certificate, key = (
        next((variables[name] for name in _exporter(what) if name in variables), None)
        for what in ("CLIENT_CERTIFICATE", "CLIENT_KEY")
    )
    if certificate is None:
        return
    try:  # without a password, it would ask the terminal for that of an encrypted key
        ssl.create_default_context().load_cert_chain(certificate, key, password="")
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY must be a"
            " certificate and its key without a password, in PEM:"
            f" {error.strerror or error} ({', '.join(filter(None, (certificate, key)))})"
        ) from None


def _exporter(what: str) -> tuple[str, str]:
    return f"OTEL_EXPORTER_OTLP_TRACES_{what}", f"OTEL_EXPORTER_OTLP_{what}"


def _matches(pattern: str) -> _Check:
    return lambda text: re.fullmatch(pattern, text, re.IGNORECASE) is not None


def _within(low: float, high: float) -> _Check:
    return lambda text: low <= float(text) <= high


def _installed(group: str, special: str = "") -> _Check:
    """Return what checks the names of plugins, separated by commas; `special` is a name, too."""

    def load_all(text: str) -> None:
        for name in map(str.strip, text.split(",")):
            if not special or name.lower() != special:
                (plugin, *_) = entry_points(group=group, name=name)
                plugin.load()()

    return load_all


def _compile(text: str) -> None:
    re.compile("|".join(part.strip() for part in text.split(",")))  # as the library does


def _are_headers(text: str) -> bool:
    for part in filter(None, map(str.strip, text.split(","))):
        header = _HEADER.fullmatch(part)
        if header is None or re.search(r"[\r\n]", unquote(header[1]).strip()):
            return False
        unquote(header[1]).encode("latin-1")
    return True


def _is_endpoint(text: str) -> bool:
    parts = urlsplit(text)
    if re.search(r"\s", text):
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0


def _load_authorities(text: str) -> None:
    if not Path(text).is_dir():
        ssl.create_default_context(cafile=text)


_COUNT: Final = "a whole number from 0 to 999999999"
_POSITIVE: Final = "a whole number from 1 to 999999999"
_EXPRESSIONS: Final = "regular expressions, separated by commas"

_VARIABLES: Final[tuple[tuple[tuple[str, ...], str, _Check], ...]] = (
    (("OTEL_TRACES_EXPORTER",), "otlp or none", _matches("otlp|otlp_proto_http")),
    (("OTEL_SDK_DISABLED",), "true or false", _matches("true|false")),
    (_exporter("ENDPOINT"), "a URL such as http://127.0.0.1:4318 for OTLP/HTTP", _is_endpoint),
    (
        _exporter("PROTOCOL"),
        "http/protobuf, the only protocol that the service sends traces by",
        _matches("http/protobuf"),
    ),
    (_exporter("COMPRESSION"), "gzip, deflate or none", _matches("gzip|deflate|none")),
    (_exporter("HEADERS"), "headers as name=value, separated by commas, encoded", _are_headers),
    (_exporter("TIMEOUT"), "a number of seconds from 0.001 to 3600", _within(0.001, 3600)),
    (_exporter("CERTIFICATE"), "a file of certificates in PEM that can be read", _load_authorities),
    (
        (
            "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
            "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
        ),
        "an installed credential provider",
        _installed("opentelemetry_otlp_credential_provider"),
    ),
    (
        ("OTEL_PROPAGATORS",),
        "installed propagators, separated by commas, or none",
        _installed("opentelemetry_propagator", "none"),
    ),
    (
        ("OTEL_TRACES_SAMPLER",),
        "always_on, always_off or traceidratio, each also after parentbased_",
        _matches("(parentbased_)?(always_on|always_off|traceidratio)"),
    ),
    (("OTEL_TRACES_SAMPLER_ARG",), "a number from 0 to 1", _within(0, 1)),
    (
        ("OTEL_RESOURCE_ATTRIBUTES",),
        "attributes as name=value, separated by commas",
        _matches("[^,=]+=[^,]*(,[^,=]+=[^,]*)*"),
    ),
    (
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS",),
        "installed resource detectors, separated by commas, or *",
        _installed("opentelemetry_resource_detector", "*"),
    ),
    (("OTEL_PYTHON_CONTEXT",), "an installed context", _installed("opentelemetry_context")),
    (
        ("OTEL_PYTHON_METER_PROVIDER",),
        "an installed meter provider",
        _installed("opentelemetry_meter_provider"),
    ),
    (("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED",), "true or false", _matches("true|false")),
    (("OTEL_PYTHON_ASGI_EXCLUDED_URLS", "OTEL_PYTHON_EXCLUDED_URLS"), _EXPRESSIONS, _compile),
    *(
        ((f"OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_{name}",), _EXPRESSIONS, _compile)
        for name in ("SERVER_REQUEST", "SERVER_RESPONSE", "SANITIZE_FIELDS")
    ),
    *(
        ((name,), _POSITIVE, _matches("[1-9][0-9]{0,8}"))
        for name in (_MAX_QUEUE_SIZE, _MAX_BATCH_SIZE, "OTEL_BSP_SCHEDULE_DELAY")
    ),
    *(
        ((f"OTEL_{name}",), _COUNT, _matches("[0-9]{1,9}"))
        for name in (
            "BSP_EXPORT_TIMEOUT",
            "ATTRIBUTE_COUNT_LIMIT",
            "ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "SPAN_ATTRIBUTE_COUNT_LIMIT",
            "SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "SPAN_EVENT_COUNT_LIMIT",
            "SPAN_LINK_COUNT_LIMIT",
            "EVENT_ATTRIBUTE_COUNT_LIMIT",
            "LINK_ATTRIBUTE_COUNT_LIMIT",
        )
    ),
)
"""Names for the same thing, of which only the first that is set is read; what it accepts, in words;
and the check."""
