"""The repository: each call is one function in the database, so one round trip.

Orders, and changes of orders, take a second one if what they change is locked.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

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
    SettingsError,
    TokenPage,
    TokenRecord,
    TokenReusedError,
    UnavailableError,
    WrongStoreError,
)
from petstore_postgres.pool import Pool, Statement
from petstore_postgres.rows import (
    split_items,
    split_pages,
    split_rows,
    split_unlocked,
    to_order,
    to_pet,
)
from petstore_postgres.servers import STATE, ServerState

RESTORED_TOGETHER: Final = 500
"""How many items one statement restores, so that it takes a fraction of the time-out."""

_ALWAYS: Final = -(2**63)
"""A time at which no record has expired."""

_ERRORS: Final = {
    "reused": (TokenReusedError, "the token was used for another write"),
    "missing": (NotFoundError, "pet or order not found"),
    "conflict": (ConflictError, "the write conflicts with the state of the pet or the order"),
}
"""What the outcomes in sql/functions.sql mean that are refusals."""


class PostgresRepository(Repository):
    """The pets and orders in one schema, over the connections of a pool."""

    def __init__(self, pool: Pool) -> None:
        self.store = pool.store.identity
        self._call = pool.call
        self._pool = pool
        self._schema = schema = pool.store.schema

        def statement(
            function: str, parameters: int, split: Any, *constants: int, **kind: Any
        ) -> Statement:
            """Return a statement that calls a function with parameters, then constants."""
            places = *(f"${number}" for number in range(1, parameters + 1)), *map(str, constants)
            sql = f'SELECT * FROM "{schema}".{function}({", ".join(places)})'
            return Statement(sql, split, **kind)

        def skipping(function: str, parameters: int) -> Statement:
            """Return a statement that skips what is locked, with the one that waits for it."""
            kind: dict[str, Any] = {"writes": True, "joined": 100}
            waiting = statement(function, parameters + 1, split_unlocked, serialized=True, **kind)
            return statement(function, parameters, split_unlocked, 0, waiting=waiting, **kind)

        self._create_pets = statement(  # their ids are one array
            "create_pets", 3, lambda rows, _: rows[0][0], writes=True, joined=500
        )
        self._create_pets_once = statement(
            "create_pets_once", 7, lambda rows, _: rows, writes=True, joined=100
        )
        self._place_orders = skipping("place_orders", 6)
        self._update_orders = skipping("update_orders", 3)
        self._restores: dict[type, Statement] = {
            Pet: statement("restore_pets", 4, split_rows, writes=True),
            Order: statement("restore_orders", 5, split_rows, writes=True),
            TokenRecord: statement("restore_tokens", 4, split_rows, writes=True),
        }
        self._list_tokens = statement("list_tokens", 2, lambda rows, _: [rows], _ALWAYS)
        self._get_pets = statement("get_pets", 1, split_items(to_pet), joined=100)
        self._get_orders = statement("get_orders", 1, split_items(to_order), joined=100)
        self._list_pets = statement("list_pets", 3, split_pages(to_pet), joined=100)
        self._list_orders = statement("list_orders", 3, split_pages(to_order), joined=100)

    async def check(self) -> None:
        """Check all servers, what the primary promises, and the store; leave what is wrong.

        Raises `WrongStoreError` for another store or an older copy, then and ever after, and
        `UnavailableError` if no server, or more than one, is a primary with the right settings.
        """
        try:
            await self._pool.servers.check()
        except UnavailableError as error:  # two primaries
            self._pool.stop(error)
            raise
        self._pool.leave_replaced()
        try:
            self._pool.servers.approve(ServerState(*await self._fetch_row(STATE)))
            await self._pool.store.check(self._fetch_row)
        except SettingsError as error:
            failure = UnavailableError(str(error))
            self._pool.stop(failure)
            raise failure from None
        except WrongStoreError as error:
            self._pool.stop(error)
            raise

    async def _fetch_row(self, sql: str) -> Any:
        return await self._call(Statement(sql, split_rows))

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store the pet, together with the others that wait."""
        row = new.category_id, new.name.encode(), new.status or None
        if token is None:
            return Receipt(await self._call(self._create_pets, *row))
        result = await self._call(self._create_pets_once, *row, *_to_arguments(token))
        return self._receipt(result, "pet", token)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look the pet up, together with the others that are looked up."""
        pet: Pet | None = await self._call(self._get_pets, pet_id)
        return pet

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read the page in the order of the primary key, or of the index by status."""
        pets: list[Pet] = await self._call(self._list_pets, query.after, query.count, query.status)
        return pets

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending and store its order, together with the others that wait."""
        result = await self._call(self._place_orders, pet_id, at, *_to_arguments(token))
        return self._receipt(result, "order", token)

    async def get_order(self, order_id: int) -> Order | None:
        """Look the order up, together with the others that are looked up."""
        order: Order | None = await self._call(self._get_orders, order_id)
        return order

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read the page in the order of the primary key, or of the index by status."""
        orders: list[Order] = await self._call(
            self._list_orders, query.after, query.count, query.status
        )
        return orders

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order, together with the others that wait."""
        pet_status = PET_STATUS_BY_ORDER[status]
        outcome, pet_id, placed_at = await self._call(
            self._update_orders, order_id, status, pet_status
        )
        _check(outcome)
        return Order(order_id, pet_id, status, placed_at)

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read records in the order of the primary key; the cursor is the last token, in hex.

        Expired ones count, so that a page takes no longer if there are many of them.
        """
        rows = await self._call(self._list_tokens, bytes.fromhex(cursor), count)
        records = [TokenRecord(*row) for row in rows]
        next_ = records[-1].value.hex() if len(records) == count else ""
        return TokenPage([record for record in records if record.until > now], next_)

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Store items in batches, each of one kind, in the order given."""
        if not items:
            await self._call(self._get_pets, 1)  # it may be closed
        for kind, group in groupby(items, type):
            run = list(group)
            for start in range(0, len(run), RESTORED_TOGETHER):
                batch = run[start : start + RESTORED_TOGETHER]
                columns = [list(column) for column in zip(*map(_to_row, batch), strict=True)]
                refused, *outcome = await self._call(self._restores[kind], *columns) or (None,)
                if refused is not None:
                    raise _refusal(batch[refused - 1], *outcome)

    def _receipt(self, row: Any, kind: str, token: IdempotencyToken | None) -> Receipt:
        outcome, id_ = row
        if outcome == "deleted" and token is not None:
            raise UnavailableError(
                f"{kind} {id_} is not stored, but is recorded under an idempotency key: it was"
                " deleted by hand. Restore it, or delete the record, so that a retry takes effect"
                f" again: DELETE FROM {self._schema}.tokens WHERE token = '\\x{token.value.hex()}'"
            )
        if outcome == "replayed":
            return Receipt(id_, replayed=True)
        _check(outcome)
        return Receipt(id_)


def _to_row(item: Pet | Order | TokenRecord) -> tuple[Any, ...]:
    """Return the columns of an item that is restored."""
    if isinstance(item, Pet):
        return item.id, item.category_id, item.name.encode(), item.status or None
    if isinstance(item, Order):
        pet_status = PET_STATUS_BY_ORDER[item.status]
        return item.id, item.pet_id, item.placed_at, item.status, pet_status
    return item.value, item.fingerprint, item.until, item.id


def _refusal(item: Pet | Order | TokenRecord, outcome: str = "") -> RefusedError:
    """Return the error for an item that is not restored."""
    if isinstance(item, Pet):
        return ConflictError(f"a different pet has the id {item.id}")
    if isinstance(item, TokenRecord):
        return ConflictError(f"a different record has the token {item.value.hex()}")
    if outcome == "missing":
        return NotFoundError(f"there is no pet {item.pet_id}")
    return ConflictError(
        f"a different order has the id {item.id}, or pet {item.pet_id} has another status, or is in"
        " another order"
    )


def _to_arguments(token: IdempotencyToken | None) -> tuple[bytes | int | None, ...]:
    if token is None:
        return None, None, None, None
    return token.value, token.fingerprint, token.now, token.until


def _check(outcome: str) -> None:
    """Raise the error that an outcome stands for, unless it is done."""
    if outcome != "done":
        error_type, message = _ERRORS[outcome]
        raise error_type(message)
