"""The log: one line per event and, unless it is off, one per request, on standard error."""

import asyncio
import logging
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from petstore.config.settings import LogFormat, LogLevel
from petstore.observability.output import standard_error

_FIELDS: Final = ("request_id",)
"""The fields that a record may carry as ``extra``."""


class RequestLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The log line of a request; it never contains a key or a body.

    For malformed HTTP it has only the request id, the status, and what is wrong.

    code, reason -- of an error: as the client gets it, and why, without what the client has sent
    """

    time: str = ""
    level: str
    event: str
    request_id: str
    trace_id: str | None = None
    method: str | None = None
    route: str | None = None
    status: int
    code: str | None = None
    milliseconds: float | None = None
    client: str | None = None
    reason: str | None = None


_to_json: Final[Callable[[list[RequestLine]], bytes]] = msgspec.json.Encoder().encode_lines


def _to_text(lines: list[RequestLine]) -> bytes:
    return b"".join(map(_to_text_line, lines))


def _to_text_line(line: RequestLine) -> bytes:
    fields = msgspec.to_builtins(line)
    head = f"{fields.pop('time')[11:23]} {fields.pop('level')} {fields.pop('event')}"
    text = " ".join([head, *(f"{name}={value}" for name, value in fields.items())])
    return f"{text}\n".encode()


class RequestLog:
    """Writes a line for each request; the lines of one turn of the event loop together.

    A killed process loses at most the lines of one turn.

    on -- whether requests are logged
    """

    def __init__(self) -> None:
        self.on = False
        self._encode = _to_json
        self._lines: list[RequestLine] = []

    def set_up(self, log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> None:
        """Choose the format of the lines; there are none if the format or the level says so."""
        self.on = log_format is not LogFormat.OFF and level is LogLevel.INFO
        self._encode = _to_json if log_format is LogFormat.JSON else _to_text

    def write(self, line: RequestLine) -> None:
        """Write a line at the end of this turn, if requests are logged. Needs a running loop."""
        if self.on:
            if not self._lines:
                asyncio.get_running_loop().call_soon(self._flush)
            self._lines.append(line)

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for line in lines:
            line.time = now
        standard_error.write(self._encode(lines))


request_log: Final = RequestLog()


def set_up(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> None:
    """Send the log to standard error, as text or as one JSON object per line.

    level -- drops less severe lines
    """
    handler = _Handler()
    handler.setFormatter(_Text() if log_format is LogFormat.TEXT else _Json())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR if level is LogLevel.ERROR else logging.WARNING)
    log = logging.getLogger("petstore")
    log.setLevel(level.upper())
    request_log.set_up(log_format, level)
    # Such as a driver's about a password file that others can read.
    warnings.showwarning = lambda message, *_: log.warning("%s", message)
    # uvicorn logs in many lines what the service reports in one.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


def _line(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, str]:
    """Return the fields of a line; a path in it need not be UTF-8."""
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line = {
        "time": moment.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": record.getMessage(),
    }
    for field in _FIELDS:
        if (value := getattr(record, field, None)) is not None:
            line[field] = value
    if record.exc_info:
        line["exception"] = formatter.formatException(record.exc_info)
    return {name: text.encode(errors="backslashreplace").decode() for name, text in line.items()}


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        standard_error.write(f"{self.format(record)}\n".encode())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(_line(self, record)).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line(self, record)
        exception = line.pop("exception", None)
        head = f"{line.pop('time')[11:23]} {line.pop('level')} {line.pop('event')}"
        text = " ".join([head, *(f"{name}={value}" for name, value in line.items())])
        return f"{text}\n{exception}" if exception else text
