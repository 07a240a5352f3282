"""The repository: a read is one command per partition, a write is one script in one partition."""

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
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    RefusedError,
    Repository,
    StorageError,
    TokenReusedError,
    UnavailableError,
)
from petstore_redis.encoding import decode_orders, decode_pets, encode_order, encode_pet
from petstore_redis.masters import Masters
from petstore_redis.scripts import Outcome, Script, Scripts

_Item = TypeVar("_Item", Pet, Order)
_Argument = bytes | str | int

RESTORE_BATCH: Final = 500
"""How many items are restored at the same time."""

_NO_TOKEN: Final = ("", "", "", "")
_ERRORS: Final = {
    Outcome.TOKEN_REUSED: (TokenReusedError, "the token was used for another write"),
    Outcome.NOT_FOUND: (NotFoundError, "pet or order not found"),
    Outcome.CONFLICT: (ConflictError, "the write conflicts with the state of the pet or the order"),
    Outcome.FULL: (StorageError, "all ids have been assigned"),
}


class RedisRepository(Repository):
    """The pets and orders of one store, spread over partitions.

    A pet is in the partition (id - 1) modulo the number of partitions. Its orders are in the same
    one, and their ids follow the same rule. So each partition counts on its own, and no two assign
    the same id.

    keys -- for each partition, its keys by their names
    name -- the name of the storage in messages
    """

    def __init__(
        self, masters: Masters, scripts: Scripts, keys: Sequence[dict[str, str]], name: str
    ) -> None:
        self._masters = masters
        self._scripts = scripts
        self._keys = keys
        self._name = name
        self._turn = counter(randbelow(len(keys)))
        self._open = True

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store the pet in the partition of its token; without one, in each partition in turn."""
        self._check_open()
        size = len(self._keys)
        partition = self._home(token) if token else next(self._turn) % size
        arguments = size, partition, *encode_pet(new), *_token_arguments(token)
        outcome, pet_id, *_ = await self._run(partition, self._scripts.create_pet, *arguments)
        return Receipt(int(pet_id), outcome == Outcome.REPLAYED)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look the pet up in its partition."""
        found = decode_pets(await self._get("pets", pet_id))
        return found[0] if found else None

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Ask every partition for the page and merge their replies."""
        return await self._page(decode_pets, "pets", after, count, status)

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Store the order in the partition of its pet.

        A token whose own partition is another one is reserved there first, so that it is noticed
        if it comes again with another pet. A refused order releases the reservation.
        """
        self._check_open()
        size, partition = len(self._keys), self._partition(pet_id)
        head, tail = encode_order(OrderStatus.PLACED, pet_id, at)
        arguments = size, partition, head, tail, pet_id, *_token_arguments(token)
        home = self._home(token) if token else partition
        if token is None or home == partition:
            outcome, order_id, _ = await self._run(partition, self._scripts.place_order, *arguments)
            return Receipt(int(order_id), outcome == Outcome.REPLAYED)
        reservation = token.value, token.fingerprint
        outcome, *record = await self._run(home, self._scripts.reserve, *_token_arguments(token))
        if outcome == Outcome.REPLAYED:
            return Receipt(int(record[0]), replayed=True)
        try:
            result = await self._run(partition, self._scripts.place_order, *arguments)
        except RefusedError:
            await self._run(home, self._scripts.release, *reservation)
            raise
        outcome, order_id, expiry = result
        await self._run(home, self._scripts.confirm, *reservation, expiry)
        return Receipt(int(order_id), outcome == Outcome.REPLAYED)

    async def get_order(self, order_id: int) -> Order | None:
        """Look the order up in the partition of its id, then in all: it may have been restored."""
        found = decode_orders(await self._get("orders", order_id))
        if not found and len(self._keys) > 1:
            found = decode_orders(await self._everywhere("orders", order_id, order_id))
        return found[0] if found else None

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Ask every partition for the page and merge their replies."""
        return await self._page(decode_orders, "orders", after, count, status)

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Change the status of the order and its pet, in the partition that has them."""
        self._check_open()
        arguments = order_id, status.value, PET_STATUS_BY_ORDER[status].value
        partition = self._partition(order_id)
        try:
            _, row = await self._run(partition, self._scripts.update_order, *arguments)
        except NotFoundError:
            order = await self.get_order(order_id) if len(self._keys) > 1 else None
            if order is None:
                raise
            partition = self._partition(order.pet_id)
            _, row = await self._run(partition, self._scripts.update_order, *arguments)
        return decode_orders([row])[0]

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Raise all counters to the ids of the items, then store each item with its own script.

        Batches are small enough that the last item does not time out. The items of one partition
        are stored in the order given, so a pet comes before its orders; if an item is refused,
        some after it may be stored.
        """
        self._check_open()
        for start in range(0, len(items), RESTORE_BATCH):
            await self._restore_batch(items[start : start + RESTORE_BATCH])

    async def _restore_batch(self, items: Sequence[Pet | Order]) -> None:
        size = len(self._keys)
        counts = [
            (max((item.id for item in items if isinstance(item, kind)), default=0) + size - 1)
            // size
            for kind in (Pet, Order)
        ]
        raising = (self._run(p, self._scripts.raise_counters, *counts) for p in range(size))
        await asyncio.gather(*raising)
        known: dict[int, Order] = {}
        if size > 1:  # another store assigned the ids: they do not show where the orders are
            order_ids = {item.id for item in items if isinstance(item, Order)}
            stored = await asyncio.gather(*(self.get_order(order_id) for order_id in order_ids))
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
        """Restore an item.

        other -- the order with its id, in any partition or earlier in the batch; may be itself
        """
        if isinstance(item, Pet):
            head, tail = encode_pet(item)
            row = head + b"%d" % item.id + tail
            await self._run(self._partition(item.id), self._scripts.restore_pet, item.id, row)
            return
        if other is not None and other != item:
            raise ConflictError(f"another order has the id {item.id}")
        partition = self._partition(item.pet_id)
        head, tail = encode_order(item.status, item.pet_id, item.placed_at)
        row = head + b"%d" % item.id + tail
        arguments = item.id, row, item.pet_id, PET_STATUS_BY_ORDER[item.status].value
        await self._run(partition, self._scripts.restore_order, *arguments)

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError(f"{self._name}: the repository is closed")

    def _partition(self, id_: int) -> int:
        return (id_ - 1) % len(self._keys)

    def _home(self, token: IdempotencyToken) -> int:
        """Return the partition of a token, which is a digest."""
        return int.from_bytes(token.value[:8]) % len(self._keys)

    async def _get(self, key: str, id_: int) -> list[bytes]:
        self._check_open()
        partition = self._partition(id_)
        return await self._read(partition, "ZRANGEBYSCORE", self._keys[partition][key], id_, id_)

    async def _page(
        self,
        decode: Callable[[Sequence[bytes]], list[_Item]],
        key: str,
        after: int,
        count: int,
        status: str | None,
    ) -> list[_Item]:
        self._check_open()
        key = key if status is None else f"{key}:{status}"
        found = decode(await self._everywhere(key, f"({after}", "+inf", "LIMIT", 0, count))
        if len(self._keys) > 1:
            found.sort(key=attrgetter("id"))
        return found[:count]

    async def _everywhere(self, key: str, *arguments: _Argument) -> list[bytes]:
        """Return the items of all partitions in a range of ids: one round trip to each."""
        command = "ZRANGEBYSCORE"
        if len(self._keys) == 1:
            return await self._read(0, command, self._keys[0][key], *arguments)
        commands = [(command, keys[key], *arguments) for keys in self._keys]
        try:  # all at once, without a task for each
            found = await asyncio.gather(
                *(self._masters.read(n, *commands[n]) for n in range(len(commands)))
            )
        except hiredis.ReplyError:  # a read may be sent again
            found = await asyncio.gather(
                *(self._read(n, *commands[n]) for n in range(len(commands)))
            )
        return [row for rows in found for row in rows]

    async def _read(self, partition: int, *command: _Argument) -> list[bytes]:
        master = self._masters.owner(partition)
        try:
            rows: list[bytes] = await master.reads.call(*command)
        except hiredis.ReplyError as error:
            rows = await self._masters.follow_redirect(
                partition, master, error, *command, write=False
            )
        return rows

    async def _run(self, partition: int, script: Script, *arguments: _Argument) -> list[Any]:
        """Run a script on the keys of a partition. Raises the error of its outcome, if any."""
        keys = self._keys[partition]
        rest = len(script.keys), *[keys[name] for name in script.keys], *arguments
        master = self._masters.owner(partition)
        try:
            result = await master.writes.call("EVALSHA", script.sha, *rest)
        except hiredis.ReplyError as error:
            command = ("EVAL", script.text, *rest)
            if str(error).startswith("NOSCRIPT"):
                result = await self._load(partition, *command)
            else:
                result = await self._masters.follow_redirect(
                    partition, master, error, *command, write=True
                )
        if failure := _ERRORS.get(result[0]):
            error_type, message = failure
            raise error_type(message)
        items: list[Any] = result
        return items

    async def _load(self, partition: int, *command: _Argument) -> Any:
        """Run a script that the server does not know yet; EVAL makes it known."""
        master = self._masters.owner(partition)
        try:
            return await master.writes.call(*command)
        except hiredis.ReplyError as error:
            return await self._masters.follow_redirect(
                partition, master, error, *command, write=True
            )


def _token_arguments(token: IdempotencyToken | None) -> tuple[_Argument, ...]:
    if token is None:
        return _NO_TOKEN
    return token.value, token.fingerprint, token.now, token.until
