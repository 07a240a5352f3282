"""What a backend may do wrong that only another process shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import gettempdir

from msgspec.structs import replace

from conformance.tests import filed
from conformance.tests.correct import LocationSettings
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


for kind in (
    *(filed.SavesWhenClosed, filed.SavesUpdatesWhenClosed, filed.LosesTheLastWrite),
    *(filed.SavesRecordsLast, filed.TakesUtcForLocalTime, filed.ShowsWhatItSavesLater),
    filed.UpdatesInTwoCommits,  # no other tears an update, nor late in its steps
):
    SABOTEURS[kind.__name__] = "durable-killed", filed.backend(kind)
for shared in (
    *(filed.LocksInItsProcess, filed.CachesPets, filed.StoresLocalTime),
    filed.LooksForTokensFirst,  # no other breaks "only one of them" for creates
    filed.WaitsOnTheLoop,  # no other holds the event loop while another process has its lock
    filed.LooksAtNotesAfterwards,  # no other has another process that notes more meanwhile
):
    SABOTEURS[shared.__name__] = "shared-processes", filed.backend(shared)
numbered = replace(filed.FILED, scratch=scratch_numbered)
SABOTEURS["NumbersItsScratchLocations"] = "shared-processes", numbered
# [scratch-apart] of processes was tried only with backends that are shared.
SABOTEURS["NumbersItsOwnLocations"] = "durable-killed", replace(numbered, shared=False)
