"""Clients of a repository that mark in a log what it returns; as a process, on an SQLite file."""

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import apsw
import msgspec
from petstore_sqlite import SqliteSettings, open_sqlite, schema
from petstore_sqlite.file import LockWait

from petstore.contract import (
    MAX_ID,
    Expected,
    IdempotencyToken,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    RefusedError,
    Repository,
    UnavailableError,
)
from tests.faults.torture.disk import seeded
from tests.faults.torture.promises import Mark, encoded, new_pet, placed_at, token
from tests.faults.torture.recording import Log

AHEAD: Final = 24
"""How many writes of a predecessor are repeated: more than it had in flight."""


class Job(msgspec.Struct):
    """What a process is to do.

    path -- the SQLite file; what happens in its directory is recorded in `log`
    name -- begins the names of all pets and tokens of this process
    after -- the name of a process that died: its last writes are repeated first
    old -- create a file of the first schema version, instead of the rest
    restore -- restore pets and orders first
    writes -- how many operations the clients share
    synchronous -- FULL, or another mode as a control
    """

    path: str
    log: str
    name: str
    seed: int
    after: str = ""
    old: bool = False
    restore: bool = False
    writes: int = 400
    clients: int = 8
    synchronous: str = "FULL"


class Clients:
    """Clients of a repository.

    mark -- called with an encoded `Mark` when something was returned
    name -- begins the names of all pets and tokens
    aside -- called now and then, as an operator's tools might be
    """

    def __init__(
        self,
        repository: Repository,
        mark: Callable[[bytes], None],
        name: str,
        chance: random.Random,
        aside: Callable[[], None] = lambda: None,
    ) -> None:
        self._repository = repository
        self._mark = mark
        self._name = name
        self._chance = chance
        self._aside = aside
        self._numbers = count(1)
        self._available: list[int] = []
        self._placed: list[int] = []
        self._created: list[str] = []
        self._left = 0

    async def read_everything(self) -> None:
        """Read everything."""
        pets = await self._repository.list_pets(PetQuery(0, MAX_ID))
        orders = await self._repository.list_orders(OrderQuery(0, MAX_ID))
        self._mark(encoded(Mark(pets, orders)))
        self._available = [pet.id for pet in pets if pet.status is PetStatus.AVAILABLE][-100:]
        self._placed = [order.id for order in orders if order.status is OrderStatus.PLACED][-50:]

    async def repeat(self, name: str) -> None:
        """Repeat the last writes of clients of another name, as if no response had come."""
        pets = await self._repository.list_pets(PetQuery(0, MAX_ID))
        parts = (pet.name.split()[0].rpartition("/") for pet in pets)
        stored = [int(number) for of, _, number in parts if of == name]
        last = max(stored, default=0)
        repeated = [number for number in range(max(1, last - AHEAD), last + AHEAD) if number % 2]
        # Those that took effect come first: the next write syncs everything before it.
        for number in sorted(repeated, key=lambda number: number not in stored):
            await self._create(f"{name}/{number}", token(f"{name}/{number}"))

    async def restore(self) -> None:
        """Restore pets and orders under ids above all that are stored."""
        stored = await self._repository.list_pets(PetQuery(0, MAX_ID))
        ordered = await self._repository.list_orders(OrderQuery(0, MAX_ID))
        first = stored[-1].id + 1000 if stored else 1000
        first_order = ordered[-1].id + 1000 if ordered else 1000
        pets, orders = [], []
        for id_ in range(first, first + 60):
            new = new_pet(f"{self._name}/restored/{id_}")
            status = new.status
            if status is PetStatus.AVAILABLE and id_ % 3:
                order_status = OrderStatus.PLACED if id_ % 3 == 1 else OrderStatus.COMPLETED
                status = PetStatus.PENDING if id_ % 3 == 1 else PetStatus.SOLD
                order_id = first_order + id_ - first
                orders.append(Order(order_id, id_, order_status, placed_at(id_)))
            pets.append(Pet(id_, new.name, new.category_id, status))
        await self._repository.restore([*pets, *orders])
        self._mark(encoded(Mark(pets, orders, writes=len(pets + orders))))

    async def run(self, clients: int, writes: int) -> None:
        """Make this many calls."""
        self._left = writes
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._go_on())

    async def _go_on(self) -> None:
        while self._left > 0:
            self._left -= 1
            try:
                await self._act()
            except RefusedError:  # another client was first
                continue
            except UnavailableError:  # the outcome is unknown
                await asyncio.sleep(0.01)

    async def _act(self) -> None:
        kind = self._chance.random()
        if kind < 0.45 or not self._available:
            number = next(self._numbers)
            name = f"{self._name}/{number}"
            await self._create(name, token(name) if number % 2 else None)
        elif kind < 0.7:
            await self._place(f"{self._name}/order/{next(self._numbers)}")
        elif kind < 0.84 and self._placed:
            order_id = self._placed.pop(self._chance.randrange(len(self._placed)))
            status = self._chance.choice((OrderStatus.COMPLETED, OrderStatus.CANCELLED))
            order = await self._repository.update_order(order_id, status)
            self._mark(encoded(Mark(orders=[order], writes=1)))
            if status is OrderStatus.CANCELLED:
                self._available.append(order.pet_id)
        elif kind < 0.9 and self._created:
            name = self._chance.choice(self._created[-20:])
            await self._create(name, token(name))
        elif kind < 0.98:
            after = max(0, self._available[-1] - 10) if self._available else 0
            pets = await self._repository.list_pets(PetQuery(after, 20))
            self._mark(encoded(Mark(pets)))
        else:
            self._aside()

    async def _create(self, name: str, its_token: IdempotencyToken | None) -> None:
        new = new_pet(name)
        receipt = await self._repository.create_pet(new, its_token)
        pet = Pet(receipt.id, new.name, new.category_id, new.status)
        self._mark(encoded(Mark([pet], created={name: pet.id} if its_token else {}, writes=1)))
        if its_token and not receipt.replayed:
            self._created.append(name)
        if new.status is PetStatus.AVAILABLE and not receipt.replayed:
            self._available.append(pet.id)

    async def _place(self, name: str) -> None:
        pet_id = self._available.pop(self._chance.randrange(len(self._available)))
        its_token = token(name) if self._chance.random() < 0.5 else None
        receipt: Receipt = await self._repository.place_order(pet_id, placed_at(pet_id), its_token)
        order = Order(receipt.id, pet_id, OrderStatus.PLACED, placed_at(pet_id))
        placed = {name: order.id} if its_token else {}
        self._mark(encoded(Mark(orders=[order], placed=placed, writes=1)))
        self._placed.append(order.id)


async def _run(job: Job, log: Log) -> None:
    chance = seeded(job.seed)
    settings = SqliteSettings(path=job.path, busy_seconds=30)
    with schema.connect(
        job.path, LockWait(settings.busy_seconds), read_only=True, create=True
    ) as tool:
        tool.set_busy_timeout(0)

        def check_point() -> None:
            mode = chance.choice((apsw.SQLITE_CHECKPOINT_PASSIVE, apsw.SQLITE_CHECKPOINT_RESTART))
            try:
                tool.wal_checkpoint(mode=mode)
            except apsw.Error:  # another process has it locked
                return

        async with open_sqlite(settings, Expected()) as repository:
            clients = Clients(repository, log.mark, job.name, chance, check_point)
            if job.after:
                await clients.repeat(job.after)
            await clients.read_everything()
            if job.restore:
                await clients.restore()
            await clients.run(job.clients, job.writes)


def _make_old(job: Job, log: Log) -> None:
    """Create a file of the first schema version with pets, each of them synced."""
    del schema.MIGRATIONS[1:]
    busy = LockWait(5)
    with schema.connect(job.path, busy, create=True) as connection:
        schema.migrate(connection, job.path, busy, Expected())
        for number in range(job.writes):
            new = new_pet(f"{job.name}/{number}")
            row = (new.name, new.category_id, new.status or None)
            connection.execute("INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)", row)
            pet = Pet(connection.last_insert_rowid(), new.name, new.category_id, new.status)
            log.mark(encoded(Mark([pet], writes=1)))


def _with_mode(
    connect: Callable[..., AbstractContextManager[apsw.Connection]], mode: str
) -> Callable[..., AbstractContextManager[apsw.Connection]]:
    @contextmanager
    def changed(path: str, busy: LockWait, **options: bool) -> Iterator[apsw.Connection]:
        with connect(path, busy, **options) as connection:
            connection.pragma("synchronous", mode)
            yield connection

    return changed


def main() -> None:
    """Do the job that is given as JSON."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    log = Log(Path(job.log), Path(job.path).parent)
    if job.synchronous != "FULL":  # the control
        setattr(schema, "connect", _with_mode(schema.connect, job.synchronous))  # noqa: B010
    if job.old:
        _make_old(job, log)
    else:
        asyncio.run(_run(job, log))


if __name__ == "__main__":
    main()
