"""The log: one line per event and, unless it is off, one per request, on standard error."""

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from petstore.settings import Log

_FIELDS: Final = ("request_id", "method", "route", "status", "milliseconds", "client")
"""What a record may carry beside its message, as ``extra``."""

request_log: Final = logging.getLogger("petstore.request")


def set_up(log: Log) -> None:
    """Send the log to standard error: as text, or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Text() if log is Log.TEXT else _Json())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("petstore").setLevel(logging.INFO)
    request_log.setLevel(logging.WARNING if log is Log.OFF else logging.INFO)
    # uvicorn tells in many lines what the service says in one.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


def _line(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, object]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: dict[str, object] = {
        "time": moment.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": record.getMessage(),
    }
    line |= {f: value for f in _FIELDS if (value := getattr(record, f, None)) is not None}
    if record.exc_info:
        line["exception"] = formatter.formatException(record.exc_info)
    return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(_line(self, record)).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line(self, record)
        exception = line.pop("exception", None)
        head = f"{str(line.pop('time'))[11:23]} {line.pop('level')} {line.pop('event')}"
        text = " ".join([head, *(f"{name}={value}" for name, value in line.items())])
        return f"{text}\n{exception}" if exception else text
