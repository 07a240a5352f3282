"""Backends on a pickled file for the fault injection: correct ones, and those that it catches.

Some have a server, too, without which they do nothing.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing, suppress
from copy import copy
from datetime import datetime
from typing import Any

from conformance.tests.correct import Correct, Token
from conformance.tests.filed import Filed
from conformance.tests.mistakes import SavesWhenClosed
from petstore.contract import (
    PET_STATUS_BY_ORDER,
    Expected,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    UnavailableError,
)


class Slow(Filed):
    """Correct: every call takes 30 ms."""

    shared = False

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0.015)
        result = await super().call(method, *arguments, **named)
        await asyncio.sleep(0.015)
        return result


class LooksInItsCheck(Filed):
    """Correct: only `check`, which the service calls once a second, looks whose file it is."""

    async def check(self) -> None:
        async with self.locked():
            super().load()

    def load(self) -> None:
        self.data = self.read()
        if self.lost:
            super().load()


class ServesAnOlderCopy(Filed):
    """Knows the store by its identity only."""

    def changes(self) -> int:
        return 0


class ForgetsTokens(SavesWhenClosed):
    """Saves the records of tokens only when it is closed."""

    def save(self) -> None:
        store = copy(self.data)
        store.records = {}
        self.write(store)


class LosesTheLastWrite(Filed):
    """Saves the state before a call: the latest one is in a buffer until the next."""

    shared = False

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.save()
        return await method(self, *arguments, **named)


class SellsTwice(Filed):
    """Checks first whether a pet is available, and orders it a moment later."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        pet = await self.get_pet(pet_id)
        if pet and pet.status is PetStatus.AVAILABLE:
            await asyncio.sleep(0.05)
            self.noted.add(pet_id)
        try:
            receipt: Receipt = await super().place_order(pet_id, at, token)
        finally:
            self.noted.discard(pet_id)
        return receipt

    def check_available(self, pet: Pet) -> None:
        if pet.id not in self.noted:
            super().check_available(pet)


class Served(Filed):
    """Correct: a call asks the server first, and waits for a limited time."""

    shared = False
    seconds = 0.5

    async def begin(self, expected: Expected) -> None:
        await self.ask()
        await super().begin(expected)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if os.path.exists(self.settings.down):  # noqa: ASYNC240, PTH110 - at once
            self.refuse()
        await self.ask()
        return await super().call(method, *arguments, **named)

    def refuse(self) -> None:
        raise UnavailableError("the server is starting")

    async def ask(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                await self.exchange()
        except (OSError, EOFError) as error:
            raise UnavailableError("no reply") from error

    async def exchange(self) -> None:
        if not self.settings.url:
            return
        host, _, port = self.settings.url.removeprefix("tcp://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with closing(writer):
            writer.write(b"?")
            await reader.readexactly(1)


class FailsWhileStarting(Served):
    """Passes on the error of its driver while the server is starting."""

    def refuse(self) -> None:
        raise ConnectionResetError("the database system is starting up")


class Hangs(Served):
    """Waits for the server without a limit."""

    async def ask(self) -> None:
        with suppress(OSError, EOFError):
            await self.exchange()


class ReadsNoOrderAgain(Served):
    """Reads orders over a connection of their own, which it opens once."""

    lost = False

    async def get_order(self, order_id: int) -> Order | None:
        if self.lost:
            raise UnavailableError("no connection")
        try:
            order: Order | None = await super().get_order(order_id)
        except UnavailableError:
            self.lost = True
            raise
        return order


class Stubborn(Served):
    """Does not let a call be cancelled that waits for the server."""

    seconds = 1.5

    async def ask(self) -> None:
        asking = asyncio.ensure_future(super().ask())
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait([asking])
            raise


class SendsTwiceAfterItsSecondRequest(Served):
    """A write is two requests; only if the second one has no reply, the driver writes once more."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await self.ask()
        result = await Filed.call(self, method, *arguments, **named)
        try:
            await self.ask()
        except UnavailableError:
            result = await super().call(method, *arguments, **named)
        return result


class ClosesInTwoRequests(Served):
    """Changes an order with one request, and its pet with the next."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order: Order = await super().update_order(order_id, status)

        async def change_pet(_: Correct) -> None:
            super(Filed, self).set_status(order.pet_id, PET_STATUS_BY_ORDER[status])

        await self.call(change_pet)
        return order

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        if status is PetStatus.PENDING:
            super().set_status(pet_id, status)
