"""The repository: a read is one command per partition, a write is one script in one partition."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
from petstore_redis.encoding import (
    decode_order,
    decode_orders,
    decode_pet,
    decode_pets,
    encode_order,
    encode_pet,
)
from petstore_redis.masters import Masters
from petstore_redis.packing import sized, template
from petstore_redis.scripts import STORE_KEYS, Outcome, Script, Scripts

_Item = TypeVar("_Item", Pet, Order)

RESTORE_BATCH: Final = 500
"""How many items are restored at the same time."""

_NO_TOKEN: Final = sized(b"", b"", b"", b"")
_ERRORS: Final = {
    Outcome.TOKEN_REUSED: (TokenReusedError, "the token was used for another write"),
    Outcome.NOT_FOUND: (NotFoundError, "pet or order not found"),
    Outcome.CONFLICT: (ConflictError, "the write conflicts with the state of the pet or the order"),
    Outcome.FULL: (StorageError, "all ids have been assigned"),
    Outcome.OTHER_STORE: (UnavailableError, "the server does not have the store that was opened"),
}


class RedisRepository(Repository):
    """The pets and orders of one store, spread over partitions.

    A pet is in the partition (id - 1) modulo the number of partitions. Its orders are in the same
    one, and their ids follow the same rule. So each partition counts on its own, and no two assign
    the same id.

    keys -- for each partition, its keys by their names
    stores -- for each partition, the id that it has; a write into another one is refused
    """

    def __init__(
        self,
        masters: Masters,
        scripts: Scripts,
        keys: Sequence[dict[str, str]],
        stores: Sequence[str],
    ) -> None:
        self._masters = masters
        self._stores = stores
        self._scripts = scripts
        self._keys = keys
        self._size = len(keys)
        # For each partition: templates by the name of the set or the SHA-1 of the script, and the
        # arguments that say which partition it is.
        self._gets = [_searches(names, None, None) for names in keys]
        self._pages = [_searches(names, None, "+inf", "LIMIT", "0", None) for names in keys]
        self._evals: list[dict[str, bytes]] = [{} for _ in keys]
        self._places = [sized(b"%d" % self._size, b"%d" % number) for number in range(self._size)]
        self._turn = counter(randbelow(len(keys)))

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store the pet in the partition of its token; without one, in each partition in turn."""
        partition = self._home(token) if token else next(self._turn) % self._size
        head, tail = encode_pet(new)
        pet = len(head), head, len(tail), tail
        arguments = *self._places[partition], *pet, *_token_arguments(token)
        outcome, pet_id, *_ = await self._run(partition, self._scripts.create_pet, *arguments)
        return Receipt(int(pet_id), outcome == Outcome.REPLAYED)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look the pet up in its partition."""
        rows = await self._get("pets", pet_id)
        return decode_pet(rows[0]) if rows else None

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
        partition = self._partition(pet_id)
        order = sized(*encode_order(OrderStatus.PLACED, pet_id, at), b"%d" % pet_id)
        arguments = *self._places[partition], *order, *_token_arguments(token)
        home = self._home(token) if token else partition
        if token is None or home == partition:
            outcome, order_id, _ = await self._run(partition, self._scripts.place_order, *arguments)
            return Receipt(int(order_id), outcome == Outcome.REPLAYED)
        reservation = sized(token.value, token.fingerprint)
        outcome, *record = await self._run(home, self._scripts.reserve, *_token_arguments(token))
        if outcome == Outcome.REPLAYED:
            return Receipt(int(record[0]), replayed=True)
        try:
            result = await self._run(partition, self._scripts.place_order, *arguments)
        except RefusedError:
            await self._run(home, self._scripts.release, *reservation)
            raise
        outcome, order_id, expiry = result
        await self._run(home, self._scripts.confirm, *reservation, *sized(expiry))
        return Receipt(int(order_id), outcome == Outcome.REPLAYED)

    async def get_order(self, order_id: int) -> Order | None:
        """Look the order up in the partition of its id, then in all: it may have been restored."""
        rows = await self._get("orders", order_id)
        if not rows and self._size > 1:
            values = sized(b"%d" % order_id) * 2
            rows = await self._everywhere([gets["orders"] % values for gets in self._gets])
        return decode_order(rows[0]) if rows else None

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Ask every partition for the page and merge their replies."""
        return await self._page(decode_orders, "orders", after, count, status)

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Change the status of the order and its pet, in the partition that has them."""
        texts = str(order_id), status, PET_STATUS_BY_ORDER[status]
        arguments = sized(*(text.encode() for text in texts))
        partition = self._partition(order_id)
        try:
            _, row = await self._run(partition, self._scripts.update_order, *arguments)
        except NotFoundError:
            order = await self.get_order(order_id) if self._size > 1 else None
            if order is None:
                raise
            partition = self._partition(order.pet_id)
            _, row = await self._run(partition, self._scripts.update_order, *arguments)
        return decode_order(row)

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Raise all counters to the ids of the items, then store each item with its own script.

        Batches are small enough that the last item does not time out. The items of one partition
        are stored in the order given, so a pet comes before its orders; if an item is refused,
        some after it may be stored.
        """
        for start in range(0, max(1, len(items)), RESTORE_BATCH):  # none: it may be closed
            await self._restore_batch(items[start : start + RESTORE_BATCH])

    async def _restore_batch(self, items: Sequence[Pet | Order]) -> None:
        size = self._size
        counts = [
            (max((item.id for item in items if isinstance(item, kind)), default=0) + size - 1)
            // size
            for kind in (Pet, Order)
        ]
        lowest = sized(*(b"%d" % count for count in counts))
        raising = (self._run(p, self._scripts.raise_counters, *lowest) for p in range(size))
        await asyncio.gather(*raising)
        known: dict[int, Order] = {}
        if size > 1:  # another store assigned the ids: they do not show where the orders are
            order_ids = {item.id for item in items if isinstance(item, Order)}
            stored = await asyncio.gather(*(self.get_order(order_id) for order_id in order_ids))
            known = {order.id: order for order in stored if order}
        pairs: list[tuple[Pet | Order, Order | None]] = []
        for item in items:
            other = None
            if isinstance(item, Order) and size > 1:
                other = known.setdefault(item.id, item)
            pairs.append((item, other))
        restoring = (self._restore(*pair) for pair in pairs)
        outcomes = await asyncio.gather(*restoring, return_exceptions=True)
        pet_ids = set[int]()
        for (item, other), outcome in zip(pairs, outcomes, strict=True):
            if isinstance(item, Pet):
                pet_ids.add(item.id)
            elif isinstance(outcome, NotFoundError) and item.pet_id in pet_ids:
                # The server did not know the script for pets, which was sent again after the order.
                await self._restore(item, other)
                continue
            if outcome is not None:
                raise outcome

    async def _restore(self, item: Pet | Order, other: Order | None) -> None:
        """Restore an item.

        other -- the order with its id, in any partition or earlier in the batch; may be itself
        """
        if isinstance(item, Pet):
            head, tail = encode_pet(item)
            row = head + b"%d" % item.id + tail
            arguments = sized(b"%d" % item.id, row)
            await self._run(self._partition(item.id), self._scripts.restore_pet, *arguments)
            return
        if other is not None and other != item:
            raise ConflictError(f"another order has the id {item.id}")
        partition = self._partition(item.pet_id)
        head, tail = encode_order(item.status, item.pet_id, item.placed_at)
        row = head + b"%d" % item.id + tail
        pet_status = PET_STATUS_BY_ORDER[item.status].encode()
        arguments = sized(b"%d" % item.id, row, b"%d" % item.pet_id, pet_status)
        await self._run(partition, self._scripts.restore_order, *arguments)

    def _partition(self, id_: int) -> int:
        return (id_ - 1) % self._size

    def _home(self, token: IdempotencyToken) -> int:
        """Return the partition of a token, which is a digest."""
        return int.from_bytes(token.value[:8]) % self._size

    def _get(self, key: str, id_: int) -> Awaitable[list[bytes]]:
        """Look an item up in the partition of its id."""
        partition = self._partition(id_)
        value = b"%d" % id_
        values = len(value), value, len(value), value
        return self._read(partition, self._gets[partition][key] % values)

    async def _page(
        self,
        decode: Callable[[Sequence[bytes]], list[_Item]],
        key: str,
        after: int,
        count: int,
        status: str | None,
    ) -> list[_Item]:
        key = key if status is None else f"{key}:{status}"
        begin, limit = b"(%d" % after, b"%d" % count
        values = len(begin), begin, len(limit), limit
        if self._size == 1:
            return decode(await self._read(0, self._pages[0][key] % values))
        found = decode(await self._everywhere([pages[key] % values for pages in self._pages]))
        found.sort(key=attrgetter("id"))
        return found[:count]

    async def _everywhere(self, commands: list[bytes]) -> list[bytes]:
        """Send a command that reads to each partition, at the same time; return all rows."""
        try:  # without a task for each
            found = await asyncio.gather(
                *(self._masters.owners[n].reads.send(packed) for n, packed in enumerate(commands))
            )
        except hiredis.ReplyError:  # a read may be sent again
            found = await asyncio.gather(
                *(self._read(n, packed) for n, packed in enumerate(commands))
            )
        return [row for rows in found for row in rows]

    async def _read(self, partition: int, packed: bytes) -> list[bytes]:
        master = self._masters.owners[partition]
        try:
            rows: list[bytes] = await master.reads.send(packed)
        except hiredis.ReplyError as error:
            rows = await self._masters.follow_redirect(
                partition, master, error, packed, write=False
            )
        return rows

    async def _run(self, partition: int, script: Script, *arguments: int | bytes) -> list[Any]:
        """Run a script on the keys of a partition. Raises the error of its outcome, if any."""
        master, evals = self._masters.owners[partition], self._evals[partition]
        if script.sha not in evals:
            evals[script.sha] = self._template(partition, script, arguments, "EVALSHA", script.sha)
        try:
            result = await master.writes.send(evals[script.sha] % arguments)
        except hiredis.ReplyError as error:
            packed = self._template(partition, script, arguments, "EVAL", script.text) % arguments
            if str(error).startswith("NOSCRIPT"):
                result = await self._load(partition, packed)
            else:
                result = await self._masters.follow_redirect(
                    partition, master, error, packed, write=True
                )
        if failure := _ERRORS.get(result[0]):
            error_type, message = failure
            if result[0] == Outcome.OTHER_STORE:  # the next connection is refused, for reads too
                self._masters.owners[partition].disconnect(message)
            raise error_type(message)
        items: list[Any] = result
        return items

    async def _load(self, partition: int, packed: bytes) -> Any:
        """Run a script that the server does not know yet; EVAL makes it known."""
        master = self._masters.owners[partition]
        try:
            return await master.writes.send(packed)
        except hiredis.ReplyError as error:
            return await self._masters.follow_redirect(partition, master, error, packed, write=True)

    def _template(
        self, partition: int, script: Script, arguments: tuple[int | bytes, ...], *head: str
    ) -> bytes:
        """Return the template of a script, which always takes as many arguments as these."""
        keys = [self._keys[partition][name] for name in script.keys]
        places = [None] * (len(arguments) // 2)
        return template(*head, str(len(keys)), *keys, *places, self._stores[partition])


def _searches(keys: dict[str, str], *rest: str | None) -> dict[str, bytes]:
    """Return a template for each set of items: its items in a range of ids."""
    names = (*STORE_KEYS["pets"], *STORE_KEYS["orders"])
    return {name: template("ZRANGEBYSCORE", keys[name], *rest) for name in names}


def _token_arguments(token: IdempotencyToken | None) -> tuple[int | bytes, ...]:
    if token is None:
        return _NO_TOKEN
    return sized(token.value, token.fingerprint, b"%d" % token.now, b"%d" % token.until)
