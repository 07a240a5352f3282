"""The registry of saboteurs, and what they share."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from petstore.contract import Backend, Expected
from tests.support.honest import Honest, Store, backend, find, scratch

SABOTEURS: dict[str, tuple[str, Backend]] = {}
AnyHonest = TypeVar("AnyHonest", bound=type[Honest])


def breaks(
    clause: str,
    scratch: Callable[[Any], Any] = scratch,
    swallowed: tuple[type[BaseException], ...] = (),
    find: Callable[[str, Expected], Store] = find,
) -> Callable[[AnyHonest], AnyHonest]:
    """Register a saboteur, with the clause that it breaks.

    scratch -- its `Backend.scratch`
    swallowed -- what its `Backend.open` keeps to itself
    find -- returns the store that it opens
    """

    def register(saboteur: AnyHonest) -> AnyHonest:
        SABOTEURS[saboteur.__name__] = (clause, backend(saboteur, scratch, swallowed, find))
        return saboteur

    return register


async def pause() -> None:
    """Wait as for a query: in turns of the event loop, so that a busy machine changes nothing."""
    for _ in range(10):
        await asyncio.sleep(0)
