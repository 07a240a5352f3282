"""The log: one line per event and, unless it is off, one per request, on standard error."""

import asyncio
import logging
import os
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from petstore.config.settings import LogFormat, LogLevel
from petstore.observability.output import standard_error


class RequestLine(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
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
    return "".join(f"{_join(msgspec.to_builtins(line))}\n" for line in lines).encode()


class RequestLog:
    """Writes a line for each request; the lines of one iteration of the event loop together.

    A killed process loses at most the lines of one iteration.

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
        """Write a line when this iteration ends, if requests are logged. Needs a running loop."""
        if self.on:
            if not self._lines:
                asyncio.get_running_loop().call_soon(self._flush)
            self._lines.append(line)

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        now = _format_time(datetime.now(UTC))
        for line in lines:
            line.time = now
        standard_error.write(self._encode(lines))


request_log: Final = RequestLog()


def set_up(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> None:
    """Send the log to standard error, as text or as one JSON object per line.

    level -- drops less severe lines
    """
    root = logging.getLogger()
    root.handlers[:] = [_Handler(text=log_format is LogFormat.TEXT)]
    root.setLevel(logging.ERROR if level is LogLevel.ERROR else logging.WARNING)
    log = logging.getLogger("petstore")
    log.setLevel(level.upper())
    request_log.set_up(log_format, level)
    # Such as a driver's about a password file that others can read.
    warnings.showwarning = lambda message, *_: log.warning("%s", message)
    # uvicorn logs in many lines what the service reports in one.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


def report(message: str, level: int = logging.INFO) -> None:
    """Print a line of a command, or log it where PETSTORE_LOG=json is set: a collector reads it."""
    if os.environ.get("PETSTORE_LOG") == "json":
        set_up(LogFormat.JSON)
        logging.getLogger("petstore").log(level, "%s", message)
    else:
        kind = "warning: " if level == logging.WARNING else ""
        print_error(f"petstore: {kind}{message}")


def print_error(line: str) -> None:
    """Print to standard error. That it cannot be written must not change what the command does."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        # Otherwise the interpreter tries it again, and fails. The log still has the descriptor.
        fd = os.open(os.devnull, os.O_WRONLY)
        sys.stderr = os.fdopen(fd, "w", errors="backslashreplace")


def _format_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _join(fields: dict[str, Any]) -> str:
    """Return a line as text, with the time of day only."""
    head = f"{fields.pop('time')[11:23]} {fields.pop('level')} {fields.pop('event')}"
    return " ".join([head, *(f"{name}={value}" for name, value in fields.items())])


class _Handler(logging.Handler):
    """Writes each record as a line: a JSON object, or text with an exception behind it."""

    def __init__(self, *, text: bool) -> None:
        super().__init__()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        line = {
            "time": _format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if (request_id := getattr(record, "request_id", None)) is not None:  # given as ``extra``
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        for name, text in line.items():  # a path in it need not be UTF-8
            line[name] = text.encode(errors="backslashreplace").decode()
        exception = f"\n{line.pop('exception')}" if self._text and record.exc_info else ""
        content = f"{_join(line)}{exception}".encode() if self._text else msgspec.json.encode(line)
        standard_error.write(content + b"\n")
