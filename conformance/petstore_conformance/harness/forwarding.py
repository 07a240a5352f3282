"""Repositories that pass on each call without knowing what is in it."""

from abc import abstractmethod
from typing import Any

from petstore.contract import Repository


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
