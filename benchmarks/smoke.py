"""The requests that every contestant must answer alike before it is measured."""

import json
from http.client import HTTPConnection, HTTPMessage
from typing import Any

from benchmarks.contestants import KEY

ANIMALS = 10_000
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


def animal(number: int) -> dict[str, Any]:
    """Return the animal with this number that every contestant begins with."""
    return {
        "id": number + 1,
        "name": f"pet{number:05}",
        "categoryId": number % 10,
        "status": STATUSES[number % 3],
    }


def encode(value: object) -> bytes:
    """Return JSON as all contestants write it."""
    return json.dumps(value, separators=(",", ":")).encode()


class Client:
    """Sends requests over one connection and checks what belongs to every answer."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=10)
        self._asked = ""

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
        self._asked = f"{method} {path} {body or ''!r}"
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        self.expect("Content-Type", answer.headers["content-type"], "application/json")
        self.expect("Content-Length", answer.headers["content-length"], str(len(content)))
        if path.startswith("/v1/pets"):
            for name, value in ALWAYS.items():
                self.expect(name, answer.headers[name], value)
        self.expect("an X-Request-Id", bool(answer.headers["x-request-id"]), wanted=True)
        return answer.status, answer.headers, content

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Raise `RuntimeError` if an answer is not as all must be."""
        if what == "Content-Type":
            found = str(found).replace("; charset=utf-8", "")  # some frameworks insist on it
        if found != wanted:
            raise RuntimeError(f"{self._asked}: {what} is {found!r}, not {wanted!r}")

    def refused(self, answer: tuple[int, HTTPMessage, bytes], status: int, code: str) -> None:
        """Expect an error answer."""
        self.expect("the status", answer[0], status)
        error = json.loads(answer[2])
        self.expect("the error", [*error], ["code", "message", "status"])
        self.expect("the error", (error["code"], error["status"]), (code, status))


def fill(port: int) -> None:
    """Add the animals that every contestant begins with."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    for number in range(ANIMALS):
        body = {name: value for name, value in animal(number).items() if name != "id"}
        connection.request("POST", "/v1/pets", encode(body), headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 201:
            raise RuntimeError(f"an animal is answered {answer.status}")


def check(port: int) -> None:
    """Raise `RuntimeError` if a contestant does not do the work that is compared."""
    ask = Client(port)
    check_get(ask)
    check_pages(ask)
    check_create(ask)
    ask.refused(ask("/nowhere"), 404, "not_found")


def check_get(ask: Client) -> None:
    """Check one animal by its id, the key, and request ids."""
    for number in (0, 4711, ANIMALS - 1):
        status, headers, body = ask(f"/v1/pets/{number + 1}", x_request_id="smoke-1")
        ask.expect("the answer", (status, body), (200, encode(animal(number))))
        ask.expect("X-Request-Id", headers["x-request-id"], "smoke-1")
        for name, value in DEPRECATION.items():
            ask.expect(name, headers[name], value)
    _, headers, _ = ask("/v1/pets/1", x_request_id="not well formed")
    ask.expect("that id", headers["x-request-id"] == "not well formed", wanted=False)
    for text in ("90000001", "0", "01", "x", "9" * 30):
        ask.refused(ask(f"/v1/pets/{text}"), 404, "not_found")
    for path in ("/v1/pets/1", "/v1/pets"):
        answer = ask(path, key=None)
        ask.refused(answer, 401, "unauthorized")
        ask.expect("WWW-Authenticate", answer[1]["www-authenticate"], REALM)
        answer = ask(path, key="wrong")
        ask.refused(answer, 401, "unauthorized")
        challenge = f'{REALM}, error="invalid_token"'
        ask.expect("WWW-Authenticate", answer[1]["www-authenticate"], challenge)


def check_pages(ask: Client) -> None:
    """Check pages, filters, cursors and links."""
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
        status, headers, body = ask(f"/v1/pets{query}")
        page = encode([animal(number) for number in numbers])
        ask.expect("the answer", (status, body), (200, page))
        ask.expect("Link", headers["link"], link and f'</v1/pets?{link}>; rel="next"')
    for query in BAD_QUERIES:
        ask.refused(ask(f"/v1/pets?{query}"), 400, "invalid_request")


def check_create(ask: Client) -> None:
    """Check adding animals; two are added."""
    for number, more in ((ANIMALS + 1, {"status": "pending"}), (ANIMALS + 2, {})):
        new = {"name": "Zoë \U0001f600", "categoryId": -7} | more
        status, headers, body = ask("/v1/pets", encode(new))
        ask.expect("the answer", (status, json.loads(body)), (201, {"id": number} | new))
        ask.expect("Location", headers["location"], f"/v1/pets/{number}")
        again = ask(f"/v1/pets/{number}")
        ask.expect("the animal", (again[0], again[2]), (200, body))
    for text in BAD_BODIES:
        ask.refused(ask("/v1/pets", text.encode()), 400, "invalid_request")
