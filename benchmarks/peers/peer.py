"""What the peers in Python share: the store, the key check, the checks of a query, the errors.

A framework is compared by what it does around this: routing, headers, bodies, answers.
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

ANIMALS = 10_000
STATUSES = ("available", "pending", "sold")
CLIENTS = {hashlib.sha256(b"benchmark").digest(): "benchmark"}
ALWAYS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What every answer carries, beside the id of its request."""

DEPRECATED = {
    "deprecation": "@1764892800",
    "sunset": "Thu, 05 Dec 2030 00:00:00 GMT",
    "link": '</v1/pets>; rel="successor-version"',
}

BEARER = re.compile("bearer +([^ ]+) *", re.IGNORECASE)
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
NUMBER = re.compile("[1-9][0-9]{0,15}", re.ASCII)
LIMIT = re.compile("[1-9][0-9]{0,2}", re.ASCII)
CURSOR = re.compile("p[01][0-9a-f]{13}", re.ASCII)

process = secrets.token_hex(6)
numbers = count(1)


class NewPet(Struct, gc=False, rename="camel"):
    """An animal to be added."""

    name: str
    category_id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    status: Annotated[str, Meta(pattern="^(available|pending|sold)$")] | UnsetType = UNSET


class Pet(Struct, gc=False, rename="camel"):
    """An animal of the store."""

    id: int
    name: str
    category_id: int
    status: str | UnsetType = UNSET


class RefusedError(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = encode({"code": code, "message": message, "status": status})
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Store:
    """Animals with the ids 1, 2, 3 ..., and for each status the ids that have it.

    make -- makes an animal of an id, a name, a category and a status, as the framework likes it
    """

    def __init__(self, make: Callable[[int, str, int, Any], Any]) -> None:
        self.make = make
        self.pets: list[Any] = []
        self.ids = {status: array("q") for status in STATUSES}
        for number in range(ANIMALS):
            self.add(f"pet{number:05}", number % 10, STATUSES[number % 3])

    def add(self, name: str, category_id: int, status: Any) -> Any:
        """Add an animal and return it."""
        pet = self.make(len(self.pets) + 1, name, category_id, status)
        self.pets.append(pet)
        if status in self.ids:
            self.ids[status].append(len(self.pets))
        return pet

    def get(self, text: str) -> Any:
        """Return the animal whose id is written so, or raise 404."""
        number = int(text) if NUMBER.fullmatch(text) else 0
        if not 1 <= number <= len(self.pets):
            raise RefusedError(404, "not_found", "This animal does not exist.")
        return self.pets[number - 1]

    def page(self, limit: int, status: str | None, after: int) -> tuple[list[Any], str | None]:
        """Return a page and, if there is a further one, what its Link header says."""
        if status is None:
            page, more = self.pets[after : after + limit], len(self.pets) > after + limit
            last = after + limit
            chosen = ""
        else:
            ids = self.ids[status]
            begin = bisect_right(ids, after)
            page = [self.pets[number - 1] for number in ids[begin : begin + limit]]
            more = len(ids) > begin + limit
            last = ids[begin + limit - 1] if more else 0
            chosen = f"&status={status}"
        if not more:
            return page, None
        return page, f'</v1/pets?limit={limit}{chosen}&cursor=p{last:014x}>; rel="next"'


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(NewPet).decode


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
    """Return the client's own request id if it is well formed, else a fresh one."""
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


def new_pet(body: bytes) -> NewPet:
    """Decode a body strictly, or raise 400."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:  # also what is wrong about a type
        raise invalid(f"body: {error}.") from None


_ALWAYS = [(name.encode(), value.encode()) for name, value in ALWAYS.items()]


class Headers:
    """ASGI middleware of the kind that costs least: a few header fields for every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        number = request_id(None if sent is None else sent.decode("latin-1")).encode()

        async def finish(message: Any) -> None:
            if message["type"] == "http.response.start":
                fields = [(b"x-request-id", number), *_ALWAYS]
                message["headers"] = [*message["headers"], *fields]
            await send(message)

        await self.app(scope, receive, finish)
