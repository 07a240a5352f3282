"""The repository: a read is one command per partition, a write is one script in one partition.

The pets that are created in one iteration of the event loop share a script call, and so do orders,
unless replicas must confirm them: all writes of an iteration share a packet then, and its WAIT.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, cycle
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
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    RefusedError,
    Repository,
    StorageError,
    TokenPage,
    TokenRecord,
    TokenReusedError,
    UnavailableError,
)
from petstore_redis.batches import Arguments, Batches
from petstore_redis.client import WINDOW_BYTES
from petstore_redis.encoding import (
    decode_order,
    decode_orders,
    decode_pet,
    decode_pets,
    decode_token,
    encode_order,
    encode_pet,
)
from petstore_redis.packing import pack, sized, template
from petstore_redis.scripts import STORE_KEYS, Outcome, Script
from petstore_redis.store import RedisStore

_Item = TypeVar("_Item", Pet, Order)
_Restored = Pet | Order | TokenRecord

CREATED_TOGETHER: Final = 64
"""How many pets or orders one script creates at most; the server's other clients wait meanwhile."""

RESTORE_BATCH: Final = 500
"""How many items are restored at the same time."""

_NO_TOKEN: Final = sized(b"")
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
    """

    def __init__(self, store: RedisStore) -> None:
        self.store = store.identity
        self._open_store = store
        self._masters = store.masters
        self._scripts = store.scripts
        self._keys = keys = store.keys
        self._size = len(keys)
        # For each partition: templates by the name of the set, or by SHA-1 and number of arguments.
        self._gets = [_searches(names, None, None) for names in keys]
        self._pages = [_searches(names, None, "+inf", "LIMIT", "0", None) for names in keys]
        self._evals: list[dict[tuple[str, int], bytes]] = [{} for _ in keys]
        self._creates = self._batches(self._scripts.create_pets)
        self._placements = self._batches(self._scripts.place_orders)
        first = randbelow(self._size)
        self._turns = cycle([*range(first, self._size), *range(first)])

    async def check(self) -> None:
        """Check every master, in one round trip each."""
        await self._open_store.check()

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store the pet in the partition of its token; without one, in each partition in turn."""
        partition = self._home(token.value) if token else next(self._turns)
        head, tail = encode_pet(new)
        arguments = *sized(head, tail), *_token_arguments(token)
        receipt = _receipt(await self._create(self._creates[partition], arguments, len(tail)))
        if token and receipt.replayed and await self.get_pet(receipt.id) is None:
            field = "".join(f"\\x{byte:02x}" for byte in token.value)  # as redis-cli reads it
            raise UnavailableError(
                f"pet {receipt.id} is not stored, but is recorded under an idempotency key: it was"
                " deleted by hand. Restore it, or delete the record, so that a retry takes effect"
                f' again: HDEL {self._keys[partition]["tokens"]} "{field}"'
            )
        return receipt

    def _batches(self, script: Script) -> list[Batches]:
        """Return the batches of a script that creates several items, for each partition."""

        async def send(partition: int, calls: Sequence[Arguments]) -> list[Any]:
            _, *results = await self._run(partition, script, *chain.from_iterable(calls))
            return results

        # If replicas must confirm it, each is by itself in the packet of all writes, for one WAIT.
        together = 1 if self._masters.replicas else CREATED_TOGETHER
        return [Batches(partial(send, number), together) for number in range(self._size)]

    async def _create(
        self, batches: Batches, arguments: Arguments, size: int = 0
    ) -> bytes | list[Any]:
        """Create an item; return what the script returns for it. Raises its error, if any."""
        result = await batches.call(arguments, size)
        return result if isinstance(result, bytes) else checked(result)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look the pet up in its partition."""
        rows = await self._get("pets", pet_id)
        return decode_pet(rows[0]) if rows else None

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Ask every partition for the page and merge their replies."""
        return await self._page(decode_pets, "pets", query)

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Store the order in the partition of its pet.

        A token whose own partition is another one is reserved there first, so that it is noticed
        if it comes again with another pet. A refused order releases the reservation.
        """
        partition = self._partition(pet_id)
        order = sized(*encode_order(OrderStatus.PLACED, pet_id, at), b"%d" % pet_id)
        arguments = *order, *_token_arguments(token)
        home = self._home(token.value) if token else partition
        if token is None or home == partition:
            return _receipt(await self._create(self._placements[partition], arguments))
        reservation = sized(token.value, token.fingerprint)
        outcome, *record = await self._run(home, self._scripts.reserve, *_token_arguments(token))
        if outcome == Outcome.REPLAYED:
            return Receipt(int(record[0]), replayed=True)
        try:
            result = await self._create(self._placements[partition], arguments)
        except RefusedError:
            await self._run(home, self._scripts.release, *reservation)
            raise
        expiry = b"%d" % token.until if isinstance(result, bytes) else result[2]
        await self._run(home, self._scripts.confirm, *reservation, *sized(expiry))
        return _receipt(result)

    async def get_order(self, order_id: int) -> Order | None:
        """Look the order up in the partition of its id, then in all: it may have been restored."""
        rows = await self._get("orders", order_id)
        if not rows and self._size > 1:
            values = sized(b"%d" % order_id) * 2
            rows = await self._everywhere([gets["orders"] % values for gets in self._gets])
        return decode_order(rows[0]) if rows else None

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Ask every partition for the page and merge their replies."""
        return await self._page(decode_orders, "orders", query)

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

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Scan one partition after the other.

        The cursor is the partition, the server, and the server's own cursor. On another server the
        scan of the partition begins again.
        """
        number, server, scanned = cursor.split(".") if cursor else ("0", "", "0")
        arguments = sized(server.encode(), scanned.encode(), b"%d" % count)
        partition, script = int(number), self._scripts.list_tokens
        _, server, scanned, found = await self._run(partition, script, *arguments, write=False)
        records = [decode_token(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
        following = f"{partition}.{server.decode()}.{scanned.decode()}"
        if scanned == b"0":
            following = f"{partition + 1}..0" if partition + 1 < self._size else ""
        return TokenPage([record for record in records if record.until > now], following)

    async def restore(self, items: Sequence[_Restored]) -> None:
        """Raise all counters to the ids of the items, then store each item.

        Batches are small enough that the last item does not time out. The items of one partition
        are stored in the order given, so a pet comes before its orders; if an item is refused,
        some after it may be stored.
        """
        for start in range(0, max(1, len(items)), RESTORE_BATCH):  # none: it may be closed
            await self._restore_batch(items[start : start + RESTORE_BATCH])

    async def _restore_batch(self, items: Sequence[_Restored]) -> None:
        size = self._size
        highest = (
            max((item.id for item in items if isinstance(item, kind)), default=0)
            for kind in (Pet, Order)
        )
        lowest = sized(b"counters", *(b"%d" % ((id_ + size - 1) // size) for id_ in highest))
        raising = (self._run(p, self._scripts.restore, *lowest) for p in range(size))
        await asyncio.gather(*raising)
        elsewhere = await self._find_restored(items) if size > 1 else {}
        restoring = (self._restore(item, elsewhere) for item in items)
        for outcome in await asyncio.gather(*restoring, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _find_restored(self, items: Sequence[_Restored]) -> dict[int | bytes, int]:
        """Return the partitions of orders and records that are stored already, by id or token.

        Neither the id of an order nor a token shows it: another store may have assigned the id, and
        the record of an order is where the order is. An order that is not stored has the partition
        of its pet, so that a different one with its id, later in the batch, is noticed.
        """
        found: dict[int | bytes, int] = {}
        orders = [item for item in items if isinstance(item, Order)]
        stored = await asyncio.gather(*(self.get_order(order.id) for order in orders))
        for order in (*filter(None, stored), *orders):
            found.setdefault(order.id, self._partition(order.pet_id))
        tokens = [item.value for item in items if isinstance(item, TokenRecord)]
        if tokens:
            reading = (
                self._masters.send(p, pack("HMGET", names["tokens"], *tokens), write=False)
                for p, names in enumerate(self._keys)
            )
            for partition, rows in enumerate(await asyncio.gather(*reading)):
                for token, row in zip(tokens, rows, strict=True):
                    # Of several, the one in the partition of the token is in force.
                    if row and found.get(token) != self._home(token):
                        found[token] = partition
        return found

    async def _restore(self, item: _Restored, elsewhere: dict[int | bytes, int]) -> None:
        """Restore an item; see `_find_restored`."""
        if isinstance(item, TokenRecord):
            partition = elsewhere.get(item.value, self._home(item.value))
            numbers = b"%d" % item.until, b"%d" % item.id
            arguments = sized(b"token", item.value, item.fingerprint, *numbers)
        elif isinstance(item, Pet):
            partition = self._partition(item.id)
            head, tail = encode_pet(item)
            arguments = sized(b"pet", b"%d" % item.id, head + b"%d" % item.id + tail)
        else:
            partition = self._partition(item.pet_id)
            if elsewhere.get(item.id, partition) != partition:
                raise ConflictError(f"another order has the id {item.id}")
            head, tail = encode_order(item.status, item.pet_id, item.placed_at)
            row = head + b"%d" % item.id + tail
            pet_status = PET_STATUS_BY_ORDER[item.status].encode()
            arguments = sized(b"order", b"%d" % item.id, row, b"%d" % item.pet_id, pet_status)
        await self._run(partition, self._scripts.restore, *arguments)

    def _partition(self, id_: int) -> int:
        return (id_ - 1) % self._size

    def _home(self, token: bytes) -> int:
        """Return the partition of a token, which is a digest."""
        return int.from_bytes(token[:8]) % self._size

    def _get(self, key: str, id_: int) -> Awaitable[list[bytes]]:
        """Look an item up in the partition of its id."""
        partition = self._partition(id_)
        value = b"%d" % id_
        values = len(value), value, len(value), value
        return self._masters.send(partition, self._gets[partition][key] % values, write=False)

    async def _page(
        self, decode: Callable[[bytes], list[_Item]], key: str, query: PetQuery | OrderQuery
    ) -> list[_Item]:
        key = key if query.status is None else f"{key}:{query.status}"
        begin, limit = b"(%d" % query.after, b"%d" % query.count
        values = len(begin), begin, len(limit), limit
        if self._size == 1:
            packed = self._pages[0][key] % values
            rows = await self._masters.send(0, packed, write=False, page=True)
        else:
            packets = [pages[key] % values for pages in self._pages]
            rows = await self._everywhere(packets, page=True)
        text = b"[" + b",".join(rows) + b"]"
        found = decode(text)
        if len(text) > WINDOW_BYTES:  # the caller encodes it, which takes as long again
            await asyncio.sleep(0.001)  # a 0 would put that before requests that have just arrived
        if self._size > 1:
            found.sort(key=attrgetter("id"))
        return found[: query.count]

    async def _everywhere(self, commands: list[bytes], *, page: bool = False) -> list[bytes]:
        """Send a command that reads to each partition, at the same time; return all rows."""
        clients = [owner.pages if page else owner.reads for owner in self._masters.owners]
        try:  # without a task for each
            found = await asyncio.gather(
                *(client.send(packed) for client, packed in zip(clients, commands, strict=True))
            )
        except hiredis.ReplyError:  # a read may be sent again
            send = partial(self._masters.send, write=False, page=page)
            found = await asyncio.gather(*(send(*pair) for pair in enumerate(commands)))
        return [row for rows in found for row in rows]

    async def _run(
        self, partition: int, script: Script, *arguments: int | bytes, write: bool = True
    ) -> list[Any]:
        """Run a script on the keys of a partition. Raises the error of its outcome, if any.

        write -- whether replicas must confirm it
        """
        master, evals = self._masters.owners[partition], self._evals[partition]
        kind = script.sha, len(arguments)
        if kind not in evals:
            evals[kind] = self._template(partition, script, arguments, "EVALSHA", script.sha)
        try:
            client = master.writes if write else master.reads
            result = await client.send(evals[kind] % arguments)
        except hiredis.ReplyError as error:
            packed = self._template(partition, script, arguments, "EVAL", script.text) % arguments
            result = await self._masters.send_again(partition, master, error, packed, write=write)
        if result[0] == Outcome.OTHER_STORE:
            owner = self._masters.owners[partition]
            wrong = UnavailableError(
                f"{owner.name} was emptied, or has another store than the one that was opened"
            )
            owner.disconnect(wrong)  # the next connection is refused, for reads too
            raise wrong
        return checked(result)

    def _template(self, partition: int, script: Script, arguments: Arguments, *head: str) -> bytes:
        """Return the template of a script with as many arguments as these."""
        keys = [self._keys[partition][name] for name in script.keys]
        gaps = [None] * (len(arguments) // 2)
        constants = str(self._size), str(partition), self.store
        return template(*head, str(len(keys)), *keys, *gaps, *constants)


def _receipt(created: bytes | list[Any]) -> Receipt:
    """Return the receipt of a new item, from its id, or of a replay."""
    if isinstance(created, bytes):
        return Receipt(int(created))
    return Receipt(int(created[1]), replayed=True)


def checked(result: list[Any]) -> list[Any]:
    """Return what a script returned; raise the error of its outcome, if any."""
    if failure := _ERRORS.get(result[0]):
        error_type, message = failure
        raise error_type(message)
    return result


def _searches(keys: dict[str, str], *rest: str | None) -> dict[str, bytes]:
    """Return a template for each set of items: its items in a range of ids."""
    names = (*STORE_KEYS["pets"], *STORE_KEYS["orders"])
    return {name: template("ZRANGEBYSCORE", keys[name], *rest) for name in names}


def _token_arguments(token: IdempotencyToken | None) -> Arguments:
    if token is None:
        return _NO_TOKEN
    return sized(token.value, token.fingerprint, b"%d" % token.now, b"%d" % token.until)
