"""The running service keeps the storage contract: controllers, guard and errors are under it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import msgspec
from msgspec import Struct

from petstore import paging
from petstore.conformance import RemoteConformance
from petstore.contract import Backend, NewPet, Pet, PetStatus, Receipt, Repository
from petstore.paging import MAX_LIMIT
from petstore.settings import Settings
from tests.live import BACKEND, KEY, in_thread


class HttpSettings(Struct, frozen=True):
    """Which backend the service runs on, and where it is once it runs."""

    backend: str
    url: str = ""


class HttpRepository(Repository):
    """A repository whose calls are requests to the service."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def create_pet(self, new: NewPet) -> Receipt:
        headers = {"Content-Type": "application/json"}
        content = msgspec.json.encode(new)
        answer = await self._client.post("/v1/pets", content=content, headers=headers)
        assert answer.status_code == 201, answer.text
        pet = msgspec.json.decode(answer.content, type=Pet)
        assert answer.headers["location"] == f"/v1/pets/{pet.id}"
        assert pet == Pet(pet.id, new.name, new.category_id, new.status)
        return Receipt(pet.id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        answer = await self._client.get(f"/v1/pets/{pet_id}")
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=Pet)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Walk from page to page until there are enough animals, or no more."""
        pets: list[Pet] = []
        query = f"limit={min(count, MAX_LIMIT)}&cursor={paging.cursor('p', after)}"
        url: str | None = f"/v1/pets?{query}" + (f"&status={status}" if status else "")
        while url is not None and len(pets) < count:
            answer = await self._client.get(url)
            assert answer.status_code == 200, answer.text
            pets += msgspec.json.decode(answer.content, type=list[Pet])
            url = answer.links.get("next", {}).get("url")
        return pets[:count]


@asynccontextmanager
async def open_http(settings: HttpSettings) -> AsyncIterator[HttpRepository]:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=settings.url, headers=headers, timeout=30) as client:
        yield HttpRepository(client)


@asynccontextmanager
async def scratch_service(settings: HttpSettings) -> AsyncIterator[HttpSettings]:
    """Start a service on an empty place of its backend."""
    roomy = Settings(drain_seconds=0, max_body_bytes=2**20)  # the kit has long names
    with in_thread(roomy, backend=settings.backend) as live:
        yield HttpSettings(settings.backend, live.url)


served = Backend(
    contract=1,
    settings=HttpSettings,
    open=open_http,
    scratch=scratch_service,
    shared=False,
    durable=False,
)


class TestService(RemoteConformance):
    """On memory, or on what PETSTORE_TEST_BACKEND says."""

    backend = served
    settings = HttpSettings(BACKEND)
    machine_examples = 10
