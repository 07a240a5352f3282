"""What is exported: the pages of an open storage, or those of a running service."""

import asyncio
import http.client
import re
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from petstore import paging
from petstore.contract import MAX_ID, Order, Pet, Repository, UnavailableError
from petstore.settings import ConfigurationError

PAGE: Final = 500
"""How many items are read from a storage at once."""

SECONDS: Final = 30
"""How long a service may take to answer."""

Kind = type[Pet] | type[Order]
Page = Sequence[Pet] | Sequence[Order]

_PATHS: Final[dict[Kind, tuple[str, str]]] = {
    Pet: ("/pets", "p"),
    Order: ("/store/orders", "o"),
}
_PAGES: Final[dict[Kind, Any]] = {Pet: list[Pet], Order: list[Order]}
_NEXT: Final = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')


class Source(Protocol):
    """Where animals and orders are read from."""

    def first(self, kind: Kind, after: int) -> Page:
        """Return the first item whose id is higher than `after` alone, or an empty page."""

    def pages(self, kind: Kind) -> Iterator[Page]:
        """Yield all items in ascending id, page after page."""


def highest(source: Source, kind: Kind) -> int:
    """Return the highest id, found in some fifty steps; 0 if there is none."""
    low, high = 0, MAX_ID
    while low < high:
        middle = (low + high) // 2
        if found := source.first(kind, middle):
            low = found[0].id
        else:
            high = middle
    return low


class Storage:
    """The storage that is configured."""

    def __init__(self, runner: asyncio.Runner, repository: Repository) -> None:
        self._runner = runner
        self._repository = repository

    def first(self, kind: Kind, after: int) -> Page:
        """Read one item."""
        return self._page(kind, after, 1)

    def pages(self, kind: Kind) -> Iterator[Page]:
        """Read on after the last id until nothing comes."""
        after = 0
        while page := self._page(kind, after, PAGE):
            yield page
            after = page[-1].id

    def _page(self, kind: Kind, after: int, count: int) -> Page:
        if kind is Pet:
            return self._runner.run(self._list(self._repository.list_pets(after, count, None)))
        return self._runner.run(self._list(self._repository.list_orders(after, count, None)))

    async def _list(self, call: Any) -> Page:
        page: Page = await call
        return page


class Service:
    """A running service, read as any of its clients would.

    url -- its public address, with or without /v1
    key -- an API key

    Raises `ConfigurationError` for what cannot work, `UnavailableError` for what may later.
    """

    def __init__(self, url: str, key: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise ConfigurationError("--from must be an address such as http://127.0.0.1:8000")
        self._name = f"the service at {parts.scheme}://{parts.netloc}"
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=SECONDS, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS)

    def first(self, kind: Kind, after: int) -> Page:
        """Ask for a page of one."""
        path, letter = _PATHS[kind]
        return self._page(
            kind, f"{self._path}{path}?limit=1&cursor={paging.cursor(letter, after)}"
        )[0]

    def pages(self, kind: Kind) -> Iterator[Page]:
        """Follow the links."""
        target: str | None = f"{self._path}{_PATHS[kind][0]}?limit={paging.MAX_LIMIT}"
        while target is not None:
            page, target = self._page(kind, target)
            yield page

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _page(self, kind: Kind, target: str) -> tuple[Page, str | None]:
        status, link, body = self._get(target)
        if status == 401:
            raise ConfigurationError(
                f"{self._name} does not accept the first key of PETSTORE_API_KEYS"
            )
        if status in (429, 502, 503, 504):
            raise UnavailableError(f"{self._name} answers {status}; try again later")
        if status != 200:
            path = target.partition("?")[0]
            raise ConfigurationError(f"{self._name} answers {status} to GET {path}")
        try:
            page: Page = msgspec.json.decode(body, type=_PAGES[kind])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{self._name} does not answer as expected: {error}") from None
        if not (match := _NEXT.search(link)):
            return page, None
        # Only what the link asks for is taken: a proxy may add a prefix that is not ours, and the
        # key is for this host.
        return page, f"{target.partition('?')[0]}?{urlsplit(match[1]).query}"

    def _get(self, target: str) -> tuple[int, str, bytes]:
        for attempt in (1, 2):
            fresh = self._connection.sock is None
            try:
                self._connection.request("GET", target, headers=self._headers)
                answer = self._connection.getresponse()
                return answer.status, answer.headers.get("link", ""), answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # An idle connection may have been closed by the other side.
                if attempt == 1 and not fresh and not isinstance(error, TimeoutError):
                    continue
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise UnavailableError(f"{self._name}: {reason}") from error
        raise AssertionError
