"""Requests to which all subjects must respond alike before they are measured."""

import json
from http.client import HTTPConnection, HTTPMessage
from typing import Any

from benchmarks.subjects import KEY, Subject

PETS = 10_000
STATUSES = ("available", "pending", "sold")
REALM = 'Bearer realm="petstore"'
ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
DEPRECATION = {
    "Deprecation": "@1764892800",
    "Sunset": "Thu, 05 Dec 2030 00:00:00 GMT",
    "Link": '</v1/pets>; rel="successor-version"',
}
BAD_QUERIES = ("limit=0", "limit=101", "limit=x", "status=gone", "cursor=p1", "cursor=o" + "0" * 14)
BAD_BODIES = (
    '{"name":"Rex","categoryId":"7"}',
    '{"name":"Rex","categoryId":true}',
    '{"name":"Rex","categoryId":1.5}',
    '{"name":"Rex","categoryId":9223372036854775808}',
    '{"name":7,"categoryId":7}',
    '{"name":"Rex","categoryId":7,"status":"gone"}',
    '{"name":"Rex","categoryId":7,"status":null}',
    '{"categoryId":7}',
    '{"name":"Rex",',
)


def pet(number: int) -> dict[str, Any]:
    """Return the pet with this number, from 0, that every subject starts with."""
    return {
        "id": number + 1,
        "name": f"pet{number:05}",
        "categoryId": number % 10,
        "status": STATUSES[number % 3],
    }


def encode(value: object) -> bytes:
    """Return JSON as all subjects write it."""
    return json.dumps(value, separators=(",", ":")).encode()


class Client:
    """Sends requests over one connection and checks what is common to all responses."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=10)
        self._request = ""

    def __call__(
        self, path: str, body: bytes | None = None, key: str | None = KEY, **more: str
    ) -> tuple[int, HTTPMessage, bytes]:
        """Send a GET, or a POST if there is a body; return status, headers and body."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        method = "GET" if body is None else "POST"
        self._request = f"{method} {path} {body or ''!r}"
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        content = response.read()
        self.expect("Content-Type", response.headers["content-type"], "application/json")
        self.expect("Content-Length", response.headers["content-length"], str(len(content)))
        if path.startswith("/v1/"):
            for name, value in ALWAYS.items():
                self.expect(name, response.headers[name], value)
        self.expect("an X-Request-Id", bool(response.headers["x-request-id"]), expected=True)
        return response.status, response.headers, content

    def expect(self, what: str, found: object, expected: object) -> None:
        """Raise `RuntimeError` unless `found` equals `expected`."""
        if what == "Content-Type":
            found = str(found).replace("; charset=utf-8", "")  # some frameworks always add it
        if found != expected:
            raise RuntimeError(f"{self._request}: {what} is {found!r}, not {expected!r}")

    def expect_error(
        self, response: tuple[int, HTTPMessage, bytes], status: int, code: str
    ) -> None:
        """Expect an error response."""
        self.expect("the status", response[0], status)
        error = json.loads(response[2])
        self.expect("the error", [*error], ["code", "message", "status"])
        self.expect("the error", (error["code"], error["status"]), (code, status))


def fill(port: int) -> None:
    """Add the pets that every subject starts with."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    for number in range(PETS):
        body = {name: value for name, value in pet(number).items() if name != "id"}
        connection.request("POST", "/v1/pets", encode(body), headers)
        response = connection.getresponse()
        response.read()
        if response.status != 201:
            raise RuntimeError(f"a pet could not be added: {response.status}")


def check(port: int, subject: Subject) -> None:
    """Raise `RuntimeError` if a subject does not do the work that is compared."""
    client = Client(port)
    if subject.only == ("get",):  # the response is constant
        client.expect("the response", client("/v1/pets/1")[::2], (200, encode(pet(0))))
        return
    check_get(client)
    check_pages(client)
    check_create(client)
    client.expect_error(client("/nowhere"), 404, "not_found")


def check_get(client: Client) -> None:
    """Check one pet by its id, the key, and request ids."""
    for number in (0, 4711, PETS - 1):
        status, headers, body = client(f"/v1/pets/{number + 1}", x_request_id="smoke-1")
        client.expect("the response", (status, body), (200, encode(pet(number))))
        client.expect("X-Request-Id", headers["x-request-id"], "smoke-1")
        for name, value in DEPRECATION.items():
            client.expect(name, headers[name], value)
    _, headers, _ = client("/v1/pets/1", x_request_id="not well formed")
    client.expect("its reuse", headers["x-request-id"] == "not well formed", expected=False)
    for text in ("90000001", "0", "01", "x", "9" * 30):
        client.expect_error(client(f"/v1/pets/{text}"), 404, "not_found")
    check_key(client, "/v1/pets/1")


def check_key(client: Client, path: str, body: bytes | None = None) -> None:
    """Check that a request requires a key."""
    response = client(path, body, None)
    client.expect_error(response, 401, "unauthorized")
    client.expect("WWW-Authenticate", response[1]["www-authenticate"], REALM)
    response = client(path, body, "wrong")
    client.expect_error(response, 401, "unauthorized")
    challenge = f'{REALM}, error="invalid_token"'
    client.expect("WWW-Authenticate", response[1]["www-authenticate"], challenge)


def check_pages(client: Client) -> None:
    """Check pages, filters, cursors and links, and the key."""
    check_key(client, "/v1/pets")
    cases: list[tuple[str, range, str | None]] = [
        ("", range(20), "limit=20&cursor=p00000000000014"),
        ("?limit=2", range(2), "limit=2&cursor=p00000000000002"),
        ("?limit=2&cursor=p00000000000002", range(2, 4), "limit=2&cursor=p00000000000004"),
        (
            "?status=sold&limit=3&cursor=p00000000000003",
            range(5, 14, 3),
            "limit=3&status=sold&cursor=p0000000000000c",
        ),
        ("?cursor=p000000000026fc", range(9980, 10_000), None),
        ("?cursor=p00000000002710", range(0), None),
    ]
    for query, numbers, link in cases:
        status, headers, body = client(f"/v1/pets{query}")
        page = encode([pet(number) for number in numbers])
        client.expect("the response", (status, body), (200, page))
        client.expect("Link", headers["link"], link and f'</v1/pets?{link}>; rel="next"')
    for query in BAD_QUERIES:
        client.expect_error(client(f"/v1/pets?{query}"), 400, "invalid_request")


def check_create(client: Client) -> None:
    """Check adding pets; two are added."""
    for id_, more in ((PETS + 1, {"status": "pending"}), (PETS + 2, {})):
        new = {"name": "Zoë \U0001f600", "categoryId": -7} | more
        status, headers, body = client("/v1/pets", encode(new))
        client.expect("the response", (status, json.loads(body)), (201, {"id": id_} | new))
        client.expect("Location", headers["location"], f"/v1/pets/{id_}")
        again = client(f"/v1/pets/{id_}")
        client.expect("the pet", (again[0], again[2]), (200, body))
    for text in BAD_BODIES:
        client.expect_error(client("/v1/pets", text.encode()), 400, "invalid_request")
