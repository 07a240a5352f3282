"""The response to a request that the server rejects before the application gets all of it."""

from typing import Any

from petstore.http.errors import encode, invalid
from petstore.http.headers import API_HEADERS, JSON_CONTENT, NO_SNIFF, Header
from petstore.http.request_id import request_id
from petstore.observability.logs import RequestLine, request_log


def reject_malformed(
    message: str, headers: list[Header], scope: dict[str, Any] | None
) -> tuple[list[Header], bytes]:
    """Return headers and body of a 400; log the request, unless the application does.

    message -- what is wrong
    headers -- those that have arrived
    scope -- that of the request, if the application has it
    """
    id_ = scope.get("request_id") if scope is not None else None
    if id_ is None:
        id_ = request_id(headers)
        if request_log.on:
            line = RequestLine(level="info", event="request", request_id=id_.decode(), status=400)
            request_log.write(line)
    body = encode(invalid(f"HTTP: {message}."))
    return [JSON_CONTENT, (b"x-request-id", id_), NO_SNIFF, *API_HEADERS], body
