"""What a backend may do wrong that only another process shows."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from msgspec.structs import replace

from conformance.tests.filed import FILED, Filed, filed
from conformance.tests.honest import LocationSettings
from conformance.tests.saboteurs.registry import SABOTEURS
from petstore.contract import OrderStatus


class SavesWhenClosed(Filed):
    """Keeps the store in memory until it is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if path.exists():
            super().load()

    def load(self) -> None:
        pass

    def save(self) -> None:
        pass

    def close(self) -> None:
        super().save()
        super().close()


class SavesUpdatesWhenClosed(SavesWhenClosed):
    """Saves what is created at once, and what became of an order when it is closed."""

    def save(self) -> None:
        current = self.honest.data
        self.honest.data = copy(current)
        self.honest.data.orders = {
            id_: replace(order, status=OrderStatus.PLACED) for id_, order in current.orders.items()
        }
        Filed.save(self)
        self.honest.data = current


class LosesTheLastWrite(Filed):
    """Saves the state before a call: the latest one is in a buffer until the next."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.save()
        return await method(*arguments, **named)


class LocksInItsProcess(Filed):
    """Takes no lock that another process would see."""

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        yield


class CachesPets(Filed):
    """Remembers the pets that it has read; its own writes empty the cache."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.pets: dict[Any, Any] = {}

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        if method != "get_pet":
            if method.startswith(("create", "place", "update", "restore")):
                self.pets.clear()
            return await super().forward(method, *arguments, **named)
        key = (*arguments, *named.values())
        if key not in self.pets:
            self.pets[key] = await super().forward(method, *arguments, **named)
        return self.pets[key]


NUMBERS = count()


@asynccontextmanager
async def scratch_numbered(_: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Yield the next file of this process, which another process may have, too."""
    path = Path(gettempdir(), f"petstore-saboteur-{next(NUMBERS)}")
    try:
        yield LocationSettings(str(path))
    finally:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink(missing_ok=True)


SABOTEURS |= {
    "SavesWhenClosed": ("durable-killed", filed(SavesWhenClosed)),
    "SavesUpdatesWhenClosed": ("durable-killed", filed(SavesUpdatesWhenClosed)),
    "LosesTheLastWrite": ("durable-killed", filed(LosesTheLastWrite)),
    "LocksInItsProcess": ("shared-processes", filed(LocksInItsProcess)),
    "NumbersItsScratchLocations": ("shared-processes", replace(FILED, scratch=scratch_numbered)),
    "CachesPets": ("shared-processes", filed(CachesPets)),
}
