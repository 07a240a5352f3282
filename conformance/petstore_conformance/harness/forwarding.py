"""Repositories that pass on each call without knowing what is in it."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from petstore.contract import Repository, UnavailableError


def _method(name: str) -> Any:
    async def method(self: "Forwarding", *arguments: Any, **named: Any) -> Any:
        return await self.forward(name, *arguments, **named)

    return method


class Forwarding(Repository):
    """Turns the call of any method into one of `forward`, with the name of the method."""

    @abstractmethod
    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Make the call; return its result."""

    check = _method("check")
    create_pet = _method("create_pet")
    get_pet = _method("get_pet")
    list_pets = _method("list_pets")
    place_order = _method("place_order")
    get_order = _method("get_order")
    list_orders = _method("list_orders")
    update_order = _method("update_order")
    list_tokens = _method("list_tokens")
    restore = _method("restore")


@contextmanager
def timed() -> Iterator[None]:
    """Note on an `UnavailableError` that the block raises how long it took, for `seconds_of`."""
    __tracebackhide__ = True
    begin = monotonic()
    try:
        yield
    except UnavailableError as error:
        error.__dict__["seconds"] = monotonic() - begin
        raise


def seconds_of(error: UnavailableError) -> float:
    """Return how long the call took that raised this, or 0 if nobody has noted it."""
    return float(error.__dict__.get("seconds", 0))
