"""The repository: reads are one command to each partition, writes one script in one of them."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count as counter
from operator import attrgetter
from secrets import randbelow
from typing import Any, Final, TypeVar

import hiredis

from petstore.contract import (
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    RefusedError,
    Repository,
    Retry,
    StorageError,
    TokenReusedError,
    UnavailableError,
)
from petstore_redis import scripts
from petstore_redis.items import order_parts, pet_parts, to_orders, to_pets
from petstore_redis.masters import Masters
from petstore_redis.scripts import Script, Scripts

Item = TypeVar("Item", Pet, Order)
Argument = bytes | str | int

TOGETHER: Final = 500
"""How many items are restored at once."""

_NO_RETRY: Final = ("", "", "", "")
_ERRORS: Final = {
    scripts.TOKEN_REUSED: (TokenReusedError, "the token was used for another write"),
    scripts.NOT_FOUND: (NotFoundError, "there is no such animal or order"),
    scripts.CONFLICT: (ConflictError, "the status of the animal or the order does not permit it"),
    scripts.FULL: (StorageError, "all ids have been given out"),
}


class RedisRepository(Repository):
    """The animals and orders of one store, spread over partitions.

    The id of an animal tells its partition: (id - 1) modulo their number. Its orders are beside it,
    and their ids tell the same. Each partition counts for itself, so no two give out the same id.

    keys -- for each partition, its keys by their names
    """

    def __init__(
        self, masters: Masters, known: Scripts, keys: Sequence[dict[str, str]], name: str
    ) -> None:
        self._masters = masters
        self._scripts = known
        self._keys = keys
        self._name = name
        self._turn = counter(randbelow(len(keys)))
        self._open = True

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        """Store the animal in the partition of its token, or in the next one."""
        self._check_open()
        size = len(self._keys)
        partition = self._home(retry) if retry else next(self._turn) % size
        parts = size, partition, *pet_parts(new), *_arguments(retry)
        outcome, number, *_ = await self._run(partition, self._scripts.create_pet, *parts)
        return Receipt(int(number), outcome == scripts.REPLAYED)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look the animal up in its partition."""
        found = to_pets(await self._get("pets", pet_id))
        return found[0] if found else None

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Ask every partition for the page, and merge what they say."""
        return await self._page(to_pets, "pets", after, count, status)

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        """Reserve the animal and store its order beside it.

        A token whose own partition is another one is reserved there first, so that it is seen if
        it comes again with another animal. What is refused gives the reservation back.
        """
        self._check_open()
        size, partition = len(self._keys), self._partition(pet_id)
        head, tail = order_parts(OrderStatus.PLACED, pet_id, at)
        parts = size, partition, head, tail, pet_id, *_arguments(retry)
        home = self._home(retry) if retry else partition
        if retry is None or home == partition:
            outcome, number, _ = await self._run(partition, self._scripts.place_order, *parts)
            return Receipt(int(number), outcome == scripts.REPLAYED)
        token = retry.token, retry.fingerprint
        outcome, *record = await self._run(home, self._scripts.reserve, *_arguments(retry))
        if outcome == scripts.REPLAYED:
            return Receipt(int(record[0]), replayed=True)
        try:
            result = await self._run(partition, self._scripts.place_order, *parts)
        except RefusedError:
            await self._run(home, self._scripts.release, *token)
            raise
        outcome, number, until = result
        await self._run(home, self._scripts.confirm, *token, until)
        return Receipt(int(number), outcome == scripts.REPLAYED)

    async def get_order(self, order_id: int) -> Order | None:
        """Look the order up where its id says, then wherever else it may have been restored."""
        found = to_orders(await self._get("orders", order_id))
        if not found and len(self._keys) > 1:
            found = to_orders(await self._everywhere("orders", order_id, order_id))
        return found[0] if found else None

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Ask every partition for the page, and merge what they say."""
        return await self._page(to_orders, "orders", after, count, status)

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Close the order and move its animal, where they are."""
        self._check_open()
        parts = order_id, status.value, PET_STATUS_BY_ORDER[status].value
        partition = self._partition(order_id)
        try:
            _, row = await self._run(partition, self._scripts.update_order, *parts)
        except NotFoundError:
            order = await self.get_order(order_id) if len(self._keys) > 1 else None
            if order is None:
                raise
            partition = self._partition(order.pet_id)
            _, row = await self._run(partition, self._scripts.update_order, *parts)
        return to_orders([row])[0]

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Raise all counters above the ids of the items, then store each by a script of its own.

        Some are sent together, not so many that the last waits for too long. Those of one partition
        are carried out in the order given, so an animal comes before its orders; if one is refused,
        some after it may be stored.
        """
        self._check_open()
        for start in range(0, len(items), TOGETHER):
            await self._restore_together(items[start : start + TOGETHER])

    async def _restore_together(self, items: Sequence[Pet | Order]) -> None:
        size = len(self._keys)
        counts = [
            (max((item.id for item in items if isinstance(item, kind)), default=0) + size - 1)
            // size
            for kind in (Pet, Order)
        ]
        raising = (self._run(p, self._scripts.raise_counters, *counts) for p in range(size))
        await asyncio.gather(*raising)
        known: dict[int, Order] = {}
        if size > 1:  # another store gave out the ids: they do not tell where the orders are
            orders = {item.id for item in items if isinstance(item, Order)}
            stored = await asyncio.gather(*(self.get_order(number) for number in orders))
            known = {order.id: order for order in stored if order}
        restoring = []
        for item in items:
            other = None
            if isinstance(item, Order) and size > 1:
                other = known.setdefault(item.id, item)
            restoring.append(self._restore(item, other))
        for outcome in await asyncio.gather(*restoring, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _restore(self, item: Pet | Order, other: Order | None) -> None:
        """Restore an item; `other` has its id, in whichever partition, or is itself."""
        if isinstance(item, Pet):
            head, tail = pet_parts(item)
            row = head + b"%d" % item.id + tail
            await self._run(self._partition(item.id), self._scripts.restore_pet, item.id, row)
            return
        if other is not None and other != item:
            raise ConflictError(f"there is another order {item.id}")
        partition = self._partition(item.pet_id)
        head, tail = order_parts(item.status, item.pet_id, item.placed_at)
        row = head + b"%d" % item.id + tail
        parts = item.id, row, item.pet_id, PET_STATUS_BY_ORDER[item.status].value
        await self._run(partition, self._scripts.restore_order, *parts)

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError(f"{self._name}: the repository is closed")

    def _partition(self, number: int) -> int:
        return (number - 1) % len(self._keys)

    def _home(self, retry: Retry) -> int:
        """Return the partition of a token, which is a digest."""
        return int.from_bytes(retry.token[:8]) % len(self._keys)

    async def _get(self, kind: str, number: int) -> list[bytes]:
        self._check_open()
        partition = self._partition(number)
        key = self._keys[partition][kind]
        return await self._read(partition, "ZRANGEBYSCORE", key, number, number)

    async def _page(
        self,
        decode: Callable[[Sequence[bytes]], list[Item]],
        kind: str,
        after: int,
        count: int,
        status: str | None,
    ) -> list[Item]:
        self._check_open()
        kind = kind if status is None else f"{kind}:{status}"
        found = decode(await self._everywhere(kind, f"({after}", "+inf", "LIMIT", 0, count))
        if len(self._keys) > 1:
            found.sort(key=attrgetter("id"))
        return found[:count]

    async def _everywhere(self, kind: str, *arguments: Argument) -> list[bytes]:
        """Return what all partitions hold in a range of ids: one round trip to each."""
        command = "ZRANGEBYSCORE"
        if len(self._keys) == 1:
            return await self._read(0, command, self._keys[0][kind], *arguments)
        commands = [(command, keys[kind], *arguments) for keys in self._keys]
        try:  # all at once, without a task for each
            found = await asyncio.gather(
                *(self._masters.read(n, *commands[n]) for n in range(len(commands)))
            )
        except hiredis.ReplyError:  # reading again does no harm
            found = await asyncio.gather(
                *(self._read(n, *commands[n]) for n in range(len(commands)))
            )
        return [row for rows in found for row in rows]

    async def _read(self, partition: int, *command: Argument) -> list[bytes]:
        master = self._masters.of(partition)
        try:
            rows: list[bytes] = await master.reads.call(*command)
        except hiredis.ReplyError as error:
            rows = await self._masters.put_right(partition, master, error, *command, write=False)
        return rows

    async def _run(self, partition: int, script: Script, *arguments: Argument) -> list[Any]:
        """Run a script on the keys of a partition. Raises what its outcome means."""
        keys = self._keys[partition]
        rest = len(script.keys), *[keys[name] for name in script.keys], *arguments
        master = self._masters.of(partition)
        try:
            result = await master.writes.call("EVALSHA", script.sha, *rest)
        except hiredis.ReplyError as error:
            command = ("EVAL", script.text, *rest)
            if str(error).startswith("NOSCRIPT"):
                result = await self._load(partition, *command)
            else:
                result = await self._masters.put_right(
                    partition, master, error, *command, write=True
                )
        if failure := _ERRORS.get(result[0]):
            kind, message = failure
            raise kind(message)
        found: list[Any] = result
        return found

    async def _load(self, partition: int, *command: Argument) -> Any:
        """Run a script that the server does not know yet; from now on it does."""
        master = self._masters.of(partition)
        try:
            return await master.writes.call(*command)
        except hiredis.ReplyError as error:
            return await self._masters.put_right(partition, master, error, *command, write=True)


def _arguments(retry: Retry | None) -> tuple[Argument, ...]:
    if retry is None:
        return _NO_RETRY
    return retry.token, retry.fingerprint, retry.now, retry.until
