"""The repository: each method is one step, or some."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, Protocol, TypeVar

from petstore.contract import (
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    Repository,
    TokenPage,
    TokenRecord,
    WrongStoreError,
)
from petstore_conformance.templates.common import steps

_RESTORED_TOGETHER: Final = 1000
"""How many items one step restores, so that it ends well before its time is over."""


_Result = TypeVar("_Result")


class StepCaller(Protocol):
    """Runs steps, and limits how long that may take."""

    async def call(self, step: Callable[[sqlite3.Connection], _Result], /) -> _Result:
        """Run a step as one transaction; return what it returns.

        Raises what the step raises, or `UnavailableError`.
        """


class AnyTemplateRepository(Repository):
    """The pets and orders of one store."""

    def __init__(self, caller: StepCaller, store: str) -> None:
        self._caller = caller
        self._lost = False
        self.store = store

    async def _call(self, step: Callable[[sqlite3.Connection], _Result]) -> _Result:
        if self._lost:
            raise WrongStoreError(f"the store was not {self.store} any more")
        return await self._caller.call(step)

    async def check(self) -> None:
        """Read the identity. Raises `WrongStoreError` if it is not that of the opened store."""
        if (found := await self._call(steps.read_store)) != self.store:
            self._lost = True  # no later call succeeds
            raise WrongStoreError(f"the store is {found or 'gone'}, not {self.store}")

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Insert a row, and the record of the token."""
        return await self._call(partial(steps.create_pet, new=new, token=token))

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look up a row."""
        return await self._call(partial(steps.get_pet, pet_id=pet_id))

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read a page of rows."""
        return await self._call(partial(steps.list_pets, query=query))

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending and insert its order."""
        return await self._call(partial(steps.place_order, pet_id=pet_id, at=at, token=token))

    async def get_order(self, order_id: int) -> Order | None:
        """Look up a row."""
        return await self._call(partial(steps.get_order, order_id=order_id))

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read a page of rows."""
        return await self._call(partial(steps.list_orders, query=query))

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order and change the status of its pet."""
        return await self._call(partial(steps.update_order, order_id=order_id, status=status))

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read a page of records."""
        return await self._call(partial(steps.list_tokens, cursor=cursor, count=count, now=now))

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Insert the items, up to the first that is refused."""
        given = tuple(items)
        for begin in range(0, len(given) or 1, _RESTORED_TOGETHER):
            some = given[begin : begin + _RESTORED_TOGETHER]
            if refusal := await self._call(partial(steps.restore, items=some)):
                raise refusal
