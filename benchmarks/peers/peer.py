"""What the Python peers share: the store, the key check, the checks of a query, the errors.

The comparison is of what each framework does around this: routing, headers, bodies, responses.
"""

import hashlib
import re
import secrets
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

PETS = 10_000
STATUSES = ("available", "pending", "sold")
CLIENTS = {hashlib.sha256(b"benchmark-key-of-ours").digest(): "benchmark"}
ALWAYS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
"""The headers of every response, beside its request id."""

DEPRECATED = {
    "deprecation": "@1764892800",
    "sunset": "Thu, 05 Dec 2030 00:00:00 GMT",
    "link": '</v1/pets>; rel="successor-version"',
}

BEARER = re.compile("bearer +([^ ]+) *", re.IGNORECASE)
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
ID = re.compile("[1-9][0-9]{0,15}", re.ASCII)
LIMIT = re.compile("[1-9][0-9]{0,2}", re.ASCII)
CURSOR = re.compile("p[01][0-9a-f]{13}", re.ASCII)

process = secrets.token_hex(6)
numbers = count(1)


class NewPet(Struct, gc=False, rename="camel"):
    """A pet to be added."""

    name: str
    category_id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    status: Annotated[str, Meta(pattern="^(available|pending|sold)$")] | UnsetType = UNSET


class Pet(Struct, gc=False, rename="camel"):
    """A pet in the store."""

    id: int
    name: str
    category_id: int
    status: str | UnsetType = UNSET


class RefusedError(Exception):
    """An error response."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = encode({"code": code, "message": message, "status": status})
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Store:
    """Pets with the ids 1, 2, 3 ..., and for each status the ids that have it.

    make -- makes the framework's pet from an id, a name, a category and a status
    """

    def __init__(self, make: Callable[[int, str, int, Any], Any]) -> None:
        self.make = make
        self.pets: list[Any] = []
        self.ids = {status: array("q") for status in STATUSES}
        for number in range(PETS):
            self.add(f"pet{number:05}", number % 10, STATUSES[number % 3])

    def add(self, name: str, category_id: int, status: Any) -> Any:
        """Add a pet and return it."""
        pet = self.make(len(self.pets) + 1, name, category_id, status)
        self.pets.append(pet)
        if status in self.ids:
            self.ids[status].append(len(self.pets))
        return pet

    def get(self, text: str) -> Any:
        """Return the pet whose id this text is, or raise 404."""
        id_ = int(text) if ID.fullmatch(text) else 0
        if not 1 <= id_ <= len(self.pets):
            raise RefusedError(404, "not_found", "Pet not found.")
        return self.pets[id_ - 1]

    def page(self, limit: int, status: str | None, after: int) -> tuple[list[Any], str | None]:
        """Return a page and, if there is a next one, the value of the Link header."""
        if status is None:
            page, more = self.pets[after : after + limit], len(self.pets) > after + limit
            last = after + limit
            chosen = ""
        else:
            ids = self.ids[status]
            begin = bisect_right(ids, after)
            page = [self.pets[id_ - 1] for id_ in ids[begin : begin + limit]]
            more = len(ids) > begin + limit
            last = ids[begin + limit - 1] if more else 0
            chosen = f"&status={status}"
        if not more:
            return page, None
        return page, f'</v1/pets?limit={limit}{chosen}&cursor=p{last:014x}>; rel="next"'


encode = msgspec.json.Encoder().encode


def check_key(authorization: str | None) -> None:
    """Raise 401 unless the value of the header Authorization holds a valid key."""
    realm = 'Bearer realm="petstore"'
    if authorization is None or not (match := BEARER.fullmatch(authorization)):
        message = "An API key is missing: send Authorization: Bearer <API_KEY>."
        raise RefusedError(401, "unauthorized", message, www_authenticate=realm)
    if hashlib.sha256(match[1].encode()).digest() not in CLIENTS:
        challenge = f'{realm}, error="invalid_token"'
        message = "The API key is not valid."
        raise RefusedError(401, "unauthorized", message, www_authenticate=challenge)


def request_id(sent: str | None) -> str:
    """Return the client's request id if it is well formed, else a new one."""
    if sent is not None and REQUEST_ID.fullmatch(sent):
        return sent
    return f"{process}-{next(numbers):x}"


def invalid(message: str) -> RefusedError:
    """Return a 400."""
    return RefusedError(400, "invalid_request", message)


def query(values: Callable[[str], Sequence[str]]) -> tuple[int, str | None, int]:
    """Return limit, status and the id after which the page begins, or raise 400.

    values -- returns all values of a query parameter
    """
    limit, status, after = 20, None, 0
    if given := values("limit"):
        limit = int(given[0]) if len(given) == 1 and LIMIT.fullmatch(given[0]) else 0
        if not 1 <= limit <= 100:
            raise invalid("limit: expected a whole number from 1 to 100.")
    if given := values("status"):
        status = given[0]
        if len(given) > 1 or status not in STATUSES:
            raise invalid("status: expected one of available, pending, sold.")
    if given := values("cursor"):
        if len(given) > 1 or not CURSOR.fullmatch(given[0]):
            raise invalid("cursor: expected one from the next link of a page, unchanged.")
        after = int(given[0][1:], 16)
    return limit, status, after


_decode_pet = msgspec.json.Decoder(NewPet).decode


def new_pet(body: bytes) -> NewPet:
    """Decode a body strictly, or raise 400."""
    try:
        return _decode_pet(body)
    except msgspec.DecodeError as error:  # ValidationError is one, too
        raise invalid(f"body: {error}.") from None


_ALWAYS = [(name.encode(), value.encode()) for name, value in ALWAYS.items()]


class Headers:
    """ASGI middleware at the lowest cost: adds a few headers to every response."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        id_ = request_id(None if sent is None else sent.decode("latin-1")).encode()

        async def finish(message: Any) -> None:
            if message["type"] == "http.response.start":
                fields = [(b"x-request-id", id_), *_ALWAYS]
                message["headers"] = [*message["headers"], *fields]
            await send(message)

        await self.app(scope, receive, finish)
