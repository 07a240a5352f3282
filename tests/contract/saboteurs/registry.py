"""The registry of saboteurs."""

from collections.abc import Callable
from typing import Any, TypeVar

from petstore.contract import Backend
from tests.support.honest import Honest, backend, scratch

SABOTEURS: dict[str, tuple[str, Backend]] = {}
AnyHonest = TypeVar("AnyHonest", bound=type[Honest])


def breaks(
    clause: str, scratch: Callable[[Any], Any] = scratch
) -> Callable[[AnyHonest], AnyHonest]:
    """Register a saboteur, with the clause that it breaks and its `Backend.scratch`."""

    def register(saboteur: AnyHonest) -> AnyHonest:
        SABOTEURS[saboteur.__name__] = (clause, backend(saboteur, scratch))
        return saboteur

    return register
