"""Where an export reads from: the configured storage, or a running service."""

import http.client
import re
import time
from asyncio import Runner
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from petstore.config.errors import ConfigurationError
from petstore.contract import (
    MAX_ID,
    Order,
    OrderQuery,
    Pet,
    PetQuery,
    Repository,
    TokenRecord,
    UnavailableError,
)
from petstore.interface import API_PREFIX, MAX_LIMIT, encode_cursor
from petstore.observability.logs import report

PAGE_ITEMS: Final = 500
"""The maximum number of items that are read from the storage at once."""

FIRST_ITEMS: Final = 16
"""How many are read first: their names may be long."""

PAGE_CHARACTERS: Final = 2**20
"""About how long the names of a page are together, at most."""

RESPONSE_TIMEOUT_SECONDS: Final = 30
"""The time limit for a response of a running service."""

_SECONDS: Final = re.compile("[0-9]{1,4}")
"""A ``Retry-After`` that is waited for: no rate limit of the service has a longer one."""

ItemType = type[Pet] | type[Order]
Items = Sequence[Pet] | Sequence[Order]

_COLLECTIONS: Final[dict[ItemType, tuple[str, str, Any]]] = {
    Pet: ("/pets", "p", list[Pet]),
    Order: ("/store/orders", "o", list[Order]),
}
"""The path of each collection, the letter of its cursors, and the type of its pages."""


class Source(Protocol):
    """Where pets and orders are read from."""

    def page(self, type_: ItemType, after: int, count: int) -> Items:
        """Return the first items whose ids are higher than `after`, in ascending id.

        count -- how many at most; none are returned only if there are none
        """

    def tokens(self, now: int) -> Iterator[list[TokenRecord]] | None:
        """Yield the records that have not expired, each at least once; None if it shows none.

        now -- in seconds since 1970
        """


def pages(source: Source, type_: ItemType) -> Iterator[Items]:
    """Yield all items in ascending id, page after page; no page is empty."""
    after, count = 0, FIRST_ITEMS
    while page := source.page(type_, after, count):
        yield page
        after = page[-1].id
        length = 1 + sum(len(item.name) for item in page if isinstance(item, Pet))
        count = max(1, min(2 * count, PAGE_ITEMS, len(page) * PAGE_CHARACTERS // length))


def highest(source: Source, type_: ItemType) -> int:
    """Return the highest id, found by bisection in some fifty steps; 0 if there is none."""
    low, high = 0, MAX_ID
    while low < high:
        middle = (low + high) // 2
        if found := source.page(type_, middle, 1):
            low = found[0].id
        else:
            high = middle
    return low


class StorageSource:
    """The configured storage."""

    def __init__(self, runner: Runner, repository: Repository) -> None:
        self._runner = runner
        self._repository = repository

    def page(self, type_: ItemType, after: int, count: int) -> Items:
        """Read a page."""
        if type_ is Pet:
            return self._runner.run(self._repository.list_pets(PetQuery(after, count)))
        return self._runner.run(self._repository.list_orders(OrderQuery(after, count)))

    def tokens(self, now: int) -> Iterator[list[TokenRecord]]:
        """Follow the cursors."""
        cursor, last = "", False
        while not last:
            page = self._runner.run(self._repository.list_tokens(cursor, PAGE_ITEMS, now))
            yield page.records
            cursor, last = page.next, not page.next


class ServiceSource:
    """A running service, read as by any of its clients.

    url -- its public address, with or without /v1
    key -- an API key

    Raises `ConfigurationError` for permanent failures, `UnavailableError` for temporary ones.
    """

    def __init__(self, url: str, key: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise ConfigurationError("--from must be a URL such as http://127.0.0.1:8000")
        self._name = f"the service at {parts.scheme}://{parts.netloc}"
        self._path = parts.path.rstrip("/").removesuffix(API_PREFIX) + API_PREFIX
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        https = parts.scheme == "https"
        connection = http.client.HTTPSConnection if https else http.client.HTTPConnection
        self._connection = connection(host, port, timeout=RESPONSE_TIMEOUT_SECONDS)
        self._waited = False

    def page(self, type_: ItemType, after: int, count: int) -> Items:
        """Request a page."""
        path, letter, page_type = _COLLECTIONS[type_]
        target = f"{self._path}{path}"
        limit = min(count, MAX_LIMIT)
        query = f"limit={limit}&cursor={encode_cursor(letter, after)}"
        status, wait, body = self._get(f"{target}?{query}")
        while status == 429 and (seconds := _SECONDS.fullmatch(wait)):  # no other request succeeds
            if not self._waited:
                self._waited = True
                report(f"{self._name} limits the rate of requests; this waits for it")
            time.sleep(max(1, int(seconds[0])))
            status, wait, body = self._get(f"{target}?{query}")
        if status == 401:
            raise ConfigurationError(
                f"{self._name} does not accept the first key of PETSTORE_API_KEYS"
            )
        if status in (429, 502, 503, 504):
            raise UnavailableError(f"{self._name} responded with {status}; try again later")
        if status != 200:
            raise ConfigurationError(f"{self._name} responded to GET {target} with {status}")
        try:
            page: Items = msgspec.json.decode(body, type=page_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{self._name} sent an unexpected response: {error}") from None
        return page

    def tokens(self, _now: int) -> None:
        """Show none: no operation of the service returns them."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _get(self, target: str) -> tuple[int, str, bytes]:
        used = self._connection.sock is not None  # the service may have closed it for being idle
        try:
            self._connection.request("GET", target, headers=self._headers)
            response = self._connection.getresponse()
            return response.status, response.headers.get("retry-after", ""), response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if used and not isinstance(error, TimeoutError):
                return self._get(target)  # over a new connection
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnavailableError(f"{self._name}: {reason}") from error
