"""A Litestar application with options of the service, and one request to it without a server."""

import asyncio
from typing import Any

from litestar import Litestar

from petstore.http.body import StrictRequest
from petstore.http.errors import to_api_error
from petstore.http.options import propagate


def application(**options: Any) -> Litestar:
    """Return an application with these options and those of the service."""
    handlers = {Exception: propagate} | options.pop("exception_handlers", {})
    standard: dict[str, Any] = {"openapi_config": None, "logging_config": None}
    standard["request_class"] = StrictRequest
    return Litestar(**standard | options, exception_handlers=handlers)


def ask(
    app: Any, method: str, path: str, body: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[object, ...]:
    """Return what an ASGI application responds to one request, or the error that it raises."""
    sent: list[Any] = []
    finished = asyncio.Event()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "state": {},
        "scheme": "http",
        "root_path": "",
        "asgi": {"version": "3.0"},
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }

    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, object]:
        if messages:
            return messages.pop()
        await finished.wait()  # the client stays for the whole response
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            finished.set()

    try:
        asyncio.run(app(scope, receive, send))
    except Exception as error:  # noqa: BLE001 - compared below
        found = to_api_error(error)
        return type(error), found.status, found.message
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], sorted(sent[0]["headers"]), content
