"""The repository: each method is one step, or some."""

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from petstore.contract import Order, Pet, Repository, TokenRecord
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
        result: _Result = await self._thread.call(
            lambda connection: step(connection, *given, **named)
        )
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
        self.store = store

    async def check(self) -> None:
        """Do nothing but what precedes each call: compare the store with that which was opened."""
        await self._thread.call(steps.read_store)

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Insert the items, up to the first that is refused."""
        given = tuple(items)
        for begin in range(0, len(given) or 1, _RESTORED_TOGETHER):
            some = given[begin : begin + _RESTORED_TOGETHER]
            if refusal := await self._thread.call(partial(steps.restore, items=some)):
                raise refusal
