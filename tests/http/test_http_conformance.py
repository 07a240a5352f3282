"""The running service keeps the storage contract through controllers, guards and errors."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from petstore_conformance import RemoteConformance

from petstore import interface
from petstore.config.settings import Settings
from petstore.contract import (
    Backend,
    ConflictError,
    Expected,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    Repository,
    TokenPage,
    TokenRecord,
    TokenReusedError,
)
from petstore.interface import MAX_LIMIT
from tests.support.services import BACKEND, KEY, in_thread, place, process

WORKERS: Final = int(os.environ.get("PETSTORE_TEST_WORKERS", "1"))
LONG: Final = 2**20
"""The limit on a body in bytes: the kit creates pets with long names."""

Item = TypeVar("Item", Pet, Order)


class HttpSettings(Struct, frozen=True):
    """The backend that the service runs on, and the URL of the service once it runs."""

    backend: str
    url: str = ""


class ConnectionPool:
    """Connections that are kept; one whose request is cancelled is closed.

    httpx would take three times the CPU, and leave sockets of cancelled requests open.
    """

    def __init__(self, url: str) -> None:
        self._address = httpx.URL(url)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def request(
        self, method: str, path: str, content: bytes = b"", key: str = ""
    ) -> httpx.Response:
        """Send a request over an idle or a new connection; return the response."""
        reader, writer = self._idle.pop() if self._idle else await self._open()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {KEY}"]
        if content:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        if key:
            lines.append(f"Idempotency-Key: {key}")
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            head = await reader.readuntil(b"\r\n\r\n")
            status, *rest = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
            pairs = (line.partition(b": ") for line in rest)
            headers = httpx.Headers([(name, value) for name, _, value in pairs])
            body = await reader.readexactly(int(headers["content-length"]))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return httpx.Response(int(status.split()[1]), headers=headers, content=body)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._address.host, self._address.port)

    def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()


class HttpRepository(Repository):
    """A repository whose calls are requests to the service."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.store = "unknown"
        self._times: dict[int, tuple[datetime, datetime]] = {}

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        response = await self._write("POST", "/v1/pets", msgspec.json.encode(new), token)
        assert response.status_code == 201, response.text
        pet = msgspec.json.decode(response.content, type=Pet)
        assert response.headers["location"] == f"/v1/pets/{pet.id}"
        assert pet == Pet(pet.id, new.name, new.category_id, new.status)
        return _receipt(pet.id, response)

    async def get_pet(self, pet_id: int) -> Pet | None:
        return await self._get(f"/v1/pets/{pet_id}", Pet)

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        return await self._list("/v1/pets", "p", query, Pet)

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        body = msgspec.json.encode({"petId": pet_id})
        response = await self._write("POST", "/v1/store/orders", body, token)
        assert response.status_code == 201, response.text
        order = msgspec.json.decode(response.content, type=Order)
        assert response.headers["location"] == f"/v1/store/orders/{order.id}"
        receipt = _receipt(order.id, response)
        served, _ = self._times.setdefault(order.id, (order.placed_at, at))
        assert order == Order(order.id, pet_id, OrderStatus.PLACED, served)
        return receipt

    async def get_order(self, order_id: int) -> Order | None:
        order = await self._get(f"/v1/store/orders/{order_id}", Order)
        return order and self._as_placed(order)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        orders = await self._list("/v1/store/orders", "o", query, Order)
        return [self._as_placed(order) for order in orders]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        body = msgspec.json.encode({"status": status})
        response = await self._write("PATCH", f"/v1/store/orders/{order_id}", body)
        assert response.status_code == 200, response.text
        return self._as_placed(msgspec.json.decode(response.content, type=Order))

    async def check(self) -> None:
        raise NotImplementedError("the service checks its store by itself")

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        raise NotImplementedError("the HTTP interface has no such operation")

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        raise NotImplementedError("the HTTP interface has no such operation")

    def _as_placed(self, order: Order) -> Order:
        """Give an order the time that the kit passed: the service has its own clock."""
        served, passed = self._times.get(order.id, (order.placed_at, order.placed_at))
        assert order.placed_at == served
        return replace(order, placed_at=passed)

    async def _write(
        self, method: str, path: str, body: bytes, token: IdempotencyToken | None = None
    ) -> httpx.Response:
        key = token.value.hex() if token else ""
        response = await self._pool.request(method, path, body, key)
        if response.status_code == 404:
            raise NotFoundError(response.text)
        if response.status_code == 409:
            reused = response.json()["message"].startswith("Idempotency-Key")
            raise TokenReusedError(response.text) if reused else ConflictError(response.text)
        return response

    async def _get(self, path: str, type_: type[Item]) -> Item | None:
        response = await self._pool.request("GET", path)
        if response.status_code == 404:
            return None
        assert response.status_code == 200, response.text
        return msgspec.json.decode(response.content, type=type_)

    async def _list(
        self, path: str, letter: str, query: PetQuery | OrderQuery, type_: type[Item]
    ) -> list[Item]:
        """Walk from page to page until there are enough items, or no more.

        letter -- that of the cursors of this collection
        """
        items: list[Item] = []
        asked = msgspec.to_builtins(query)
        sent = {name: value for name, value in asked.items() if value is not None}
        cursor = interface.encode_cursor(letter, sent.pop("after"))
        sent |= {"limit": min(sent.pop("count"), MAX_LIMIT), "cursor": cursor}
        url: str | None = f"{path}?{urlencode(sent)}"
        while url is not None and len(items) < query.count:
            response = await self._pool.request("GET", url)
            assert response.status_code == 200, response.text
            items += msgspec.json.decode(response.content, type=list[type_])  # type: ignore[valid-type]
            url = response.links.get("next", {}).get("url")
        return items[: query.count]


def _receipt(id_: int, response: httpx.Response) -> Receipt:
    assert response.headers.get("idempotency-replayed") in (None, "true")
    return Receipt(id_, replayed="idempotency-replayed" in response.headers)


@asynccontextmanager
async def open_http(settings: HttpSettings, _: Expected) -> AsyncIterator[HttpRepository]:
    with closing(ConnectionPool(settings.url)) as pool:
        yield HttpRepository(pool)


@asynccontextmanager
async def scratch_service(settings: HttpSettings) -> AsyncIterator[HttpSettings]:
    """Start a service on an empty place of its backend, as processes if there are several."""
    with ExitStack() as stack:
        if WORKERS == 1:
            roomy = Settings(drain_seconds=0, max_body_bytes=LONG)
            live = stack.enter_context(in_thread(roomy, backend=settings.backend))
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            given = {"backend": settings.backend, **place(settings.backend, directory)}
            given |= {"workers": str(WORKERS), "max_body_bytes": str(LONG), "log": "off"}
            live = stack.enter_context(process(Path(directory), **given))
        yield HttpSettings(settings.backend, live.url)


served = Backend(
    contract=2,
    settings=HttpSettings,
    open=open_http,
    scratch=scratch_service,
    shared=False,
    durable=False,
    max_name_bytes=LONG - 1000,
)


class TestService(RemoteConformance):
    """On memory, or on the backend of PETSTORE_TEST_BACKEND with PETSTORE_TEST_WORKERS."""

    backend = served
    settings = HttpSettings(BACKEND)
    machine_examples = 10
