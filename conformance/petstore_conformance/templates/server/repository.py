"""The repository: each method is one step on the server."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

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
    UnavailableError,
    WrongStoreError,
)
from petstore_conformance.templates.server import steps
from petstore_conformance.templates.server.client import StandInClient, StandInTables

_Result = TypeVar("_Result")

_RESTORED_TOGETHER: Final = 1000
"""How many items one step restores, so that it ends well before its time is over."""


class ServerTemplateRepository(Repository):
    """The pets and orders on one server.

    seconds -- how long a call may take, with all its waiting
    connections -- how many calls the server gets at once; the others wait
    """

    def __init__(self, client: StandInClient, store: str, seconds: float, connections: int) -> None:
        self.store = store
        self._client = client
        self._seconds = seconds
        self._connections = asyncio.Semaphore(connections)
        self._open = True

    async def check(self) -> None:
        """Read the identity. Raises `WrongStoreError` if it is not that of the opened store."""
        if (found := await self._run(steps.read_store)) != self.store:
            self.close()  # no later call succeeds
            raise WrongStoreError(f"the server has {found or 'no store'}, not {self.store}")

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store the pet."""
        return await self._run(partial(steps.create_pet, new=new, token=token))

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look up the pet."""
        return await self._run(partial(steps.get_pet, pet_id=pet_id))

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read a page."""
        return await self._run(partial(steps.list_pets, query=query))

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending and store its order."""
        return await self._run(partial(steps.place_order, pet_id=pet_id, at=at, token=token))

    async def get_order(self, order_id: int) -> Order | None:
        """Look up the order."""
        return await self._run(partial(steps.get_order, order_id=order_id))

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read a page."""
        return await self._run(partial(steps.list_orders, query=query))

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order and change the status of its pet."""
        return await self._run(partial(steps.update_order, order_id=order_id, status=status))

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read a page of records."""
        return await self._run(partial(steps.list_tokens, cursor=cursor, count=count, now=now))

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Store the items, up to the first that is refused."""
        given = tuple(items)
        for begin in range(0, len(given) or 1, _RESTORED_TOGETHER):
            some = given[begin : begin + _RESTORED_TOGETHER]
            if refusal := await self._run(partial(steps.restore, items=some)):
                raise refusal

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    async def _run(self, step: Callable[[StandInTables], _Result]) -> _Result:
        """Run a step on a free connection: the one point where errors are translated.

        REPLACE: repeat the step after a deadlock or a serialization failure, until the time is
        over. Do not repeat it after a lost reply: it may have taken effect. If a call is cancelled
        in the middle of a command, close or reset its connection.
        """
        if not self._open:
            raise UnavailableError("the repository is closed")
        try:
            async with asyncio.timeout(self._seconds), self._connections:
                return await self._client.run(step)
        except OSError as error:  # TimeoutError, too. REPLACE: those of your client that may pass
            raise UnavailableError(f"the server cannot be reached: {error!r}") from error
