"""No animal is sold twice, and no key has two effects: under races, kills and retries."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from petstore_memory import MemoryRepository, MemorySettings
from petstore_memory import backend as memory

from petstore.backends import Plugin
from petstore.contract import (
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    PetStatus,
    Receipt,
    Retry,
)
from tests.conftest import Start
from tests.live import BACKEND, Live, in_thread, place
from tests.races import Client, Race, Turn
from tests.test_durability import kill

KILLS = int(os.environ.get("PETSTORE_KILLS", "2"))
CLIENTS = int(os.environ.get("PETSTORE_CLIENTS", "240"))
SECONDS = float(os.environ.get("PETSTORE_RACE_SECONDS", "2.5"))
FLOOR = 20
"""How many orders must have been placed, and refused, so that there was a race."""

RACED = "sqlite" if BACKEND == "memory" else BACKEND
"""What two workers share."""

Restarting = Callable[[Live], Live]


def started(start: Start, directory: Path) -> tuple[Live, Restarting]:
    """Start two workers; return also what kills them all and starts them again."""
    settings = {"backend": RACED, "workers": "2", "log": "off"} | place(RACED, directory)

    def restart(live: Live) -> Live:
        kill(live)
        return start(**settings)

    return start(**settings), restart


def check_floors(race: Race) -> None:
    assert race.count("place", 201) >= FLOOR
    assert race.count("place", 409) >= FLOOR
    assert race.count("close", 200) >= FLOOR
    assert race.count("place", 201, replayed=True) >= FLOOR / 2


def test_hundreds_of_clients_never_get_an_animal_twice(tmp_path: Path, start: Start) -> None:
    live, _ = started(start, tmp_path)
    race = Race(live)
    race.run(Client.shop, clients=CLIENTS, seconds=SECONDS)
    assert race.judge("race") == []
    check_floors(race)
    assert race.looks >= FLOOR
    assert race.broken == 0


def test_no_animal_is_sold_twice_by_a_service_that_is_killed(tmp_path: Path, start: Start) -> None:
    live, restart = started(start, tmp_path)
    race = Race(live)
    race.run(Client.shop, clients=CLIENTS, seconds=SECONDS / 3, kills=KILLS, restart=restart)
    assert race.judge("killed race") == []
    check_floors(race)
    assert race.broken >= KILLS * CLIENTS / 4  # the kills met requests under way


def test_a_key_creates_one_animal_however_often_the_service_is_killed(
    tmp_path: Path, start: Start
) -> None:
    live, restart = started(start, tmp_path)
    race = Race(live)
    race.run(Client.create, clients=32, seconds=0.5, kills=KILLS, restart=restart)
    assert race.judge("killed retries") == []
    assert race.broken >= KILLS * 8
    assert race.count("create", 201) >= FLOOR
    assert race.count("create", 201, replayed=True) >= FLOOR
    assert race.survived > 0 or KILLS < 10  # a kill fell between an effect and its answer


class Careless(MemoryRepository):
    """Checks first and sets later."""

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        if retry and (receipt := self._retries.find(retry)):
            return receipt
        pet = await self.get_pet(pet_id)
        if pet is None:
            raise NotFoundError
        if pet.status is not PetStatus.AVAILABLE:
            raise ConflictError
        await asyncio.sleep(0.01)
        order = Order(self._orders.last_id + 1, pet_id, OrderStatus.PLACED, at)
        self._orders.add(order)
        if pet := await self.get_pet(pet_id):
            self._pets.move(pet, PetStatus.PENDING)
        if retry:
            self._retries.record(retry, order.id)
        return Receipt(order.id)


class Forgetful(MemoryRepository):
    """Looks for the key first and records it later."""

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        if retry and (receipt := self._retries.find(retry)):
            return receipt
        await asyncio.sleep(0.01)
        receipt = await super().create_pet(new)
        if retry:
            self._retries.record(retry, receipt.id)
        return receipt


def raced(repository: MemoryRepository, turn: Turn) -> list[str]:
    """Run a small race in a thread of this process; return what is wrong in the end."""

    @asynccontextmanager
    async def open_(_: MemorySettings) -> AsyncIterator[MemoryRepository]:
        yield repository

    plugin = Plugin("raced", "raced", "0", msgspec.structs.replace(memory, open=open_))
    with in_thread(plugin=plugin) as live:
        race = Race(live)
        race.run(turn, clients=40, seconds=1)
        return race.judge(type(repository).__name__)


def test_a_race_finds_a_store_that_checks_first_and_sets_later() -> None:
    found = raced(Careless(), Client.shop)
    assert [text for text in found if "in two orders that are placed or completed" in text]
    assert [text for text in found if "at one time" in text]


def test_a_race_finds_a_store_that_looks_for_the_key_first_and_records_it_later() -> None:
    found = raced(Forgetful(), Client.create)
    assert [text for text in found if "different answers" in text]
    assert [text for text in found if "there are two of it" in text]


def test_a_race_finds_nothing_where_nothing_is_wrong() -> None:
    assert raced(MemoryRepository(), Client.shop) == []
