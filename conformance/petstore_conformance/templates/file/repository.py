"""The repository: each method is one step, or some."""

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from petstore.contract import Order, Pet, Repository, TokenRecord, WrongStoreError
from petstore_conformance.templates.file import steps
from petstore_conformance.templates.file.thread import EngineThread

_RESTORED_TOGETHER: Final = 1000
"""How many items one step restores, so that it ends well before its time is over."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _in_thread(
    step: Callable[Concatenate[sqlite3.Connection, _Arguments], _Result],
) -> Callable[Concatenate[Any, _Arguments], Coroutine[Any, Any, _Result]]:
    """Return a method that runs a step and returns what it returns."""

    async def method(self: Any, /, *given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        result: _Result = await self.call(lambda connection: step(connection, *given, **named))
        return result

    return method


class FileTemplateRepository(Repository):
    """The pets and orders of one store."""

    create_pet = _in_thread(steps.create_pet)
    get_pet = _in_thread(steps.get_pet)
    list_pets = _in_thread(steps.list_pets)
    place_order = _in_thread(steps.place_order)
    get_order = _in_thread(steps.get_order)
    list_orders = _in_thread(steps.list_orders)
    update_order = _in_thread(steps.update_order)
    list_tokens = _in_thread(steps.list_tokens)

    def __init__(self, thread: EngineThread, store: str) -> None:
        self._thread = thread
        self._lost = False
        self.store = store

    async def call(self, step: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a step in the thread. Raises `WrongStoreError` if the store is lost."""
        if self._lost:
            raise WrongStoreError(f"the store was not {self.store} any more")
        return await self._thread.call(step)

    async def check(self) -> None:
        """Read the identity. Raises `WrongStoreError` if it is not that of the opened store."""
        if (found := await self.call(steps.read_store)) != self.store:
            self._lost = True  # no later call succeeds
            raise WrongStoreError(f"the store is {found or 'gone'}, not {self.store}")

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Insert the items, up to the first that is refused."""
        given = tuple(items)
        for begin in range(0, len(given) or 1, _RESTORED_TOGETHER):
            some = given[begin : begin + _RESTORED_TOGETHER]
            if refusal := await self.call(partial(steps.restore, items=some)):
                raise refusal
