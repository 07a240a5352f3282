"""What a backend may do wrong that only another process shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import gettempdir

from msgspec.structs import replace

from conformance.tests import filed
from conformance.tests.honest import LocationSettings
from conformance.tests.saboteurs.registry import SABOTEURS

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
    "SavesWhenClosed": ("durable-killed", filed.backend(filed.SavesWhenClosed)),
    "SavesUpdatesWhenClosed": ("durable-killed", filed.backend(filed.SavesUpdatesWhenClosed)),
    "LosesTheLastWrite": ("durable-killed", filed.backend(filed.LosesTheLastWrite)),
    "LocksInItsProcess": ("shared-processes", filed.backend(filed.LocksInItsProcess)),
    "NumbersItsScratchLocations": (
        "shared-processes",
        replace(filed.FILED, scratch=scratch_numbered),
    ),
    "CachesPets": ("shared-processes", filed.backend(filed.CachesPets)),
}
