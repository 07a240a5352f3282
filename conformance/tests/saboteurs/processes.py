"""What a backend may do wrong that only another process shows."""

from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from tempfile import gettempdir

from msgspec.structs import replace

from conformance.tests import filed, mistakes
from conformance.tests.correct import LocationSettings
from conformance.tests.saboteurs.registry import SABOTEURS

NUMBERS = count()


def scratch_numbered(_: LocationSettings) -> AbstractAsyncContextManager[LocationSettings]:
    """Take the next file that is not there, which another process may take, too."""
    numbered = (Path(gettempdir(), f"petstore-saboteur-{number}") for number in NUMBERS)
    return filed.scratch_at(next(path for path in numbered if not path.exists()))


for kind in (
    *(mistakes.SavesWhenClosed, mistakes.SavesUpdatesWhenClosed, mistakes.SavesRestoredItemsLater),
    *(mistakes.SavesRecordsLast, mistakes.RepairsWhenItOpens, mistakes.ShowsWhatItSavesLater),
    mistakes.UpdatesInTwoCommits,  # no other tears an update, nor late in its steps
    mistakes.UpdatesInTwoUnseenCommits,  # no other has a driver that is compiled
):
    SABOTEURS[kind.__name__] = "durable-killed", filed.backend(kind)
for shared in (
    *(mistakes.LocksInItsProcess, mistakes.CachesPets, mistakes.TakesUtcForLocalTime),
    mistakes.LooksForTokensFirst,  # no other breaks "only one of them" for creates
    mistakes.ComparesOnlyThePet,  # no other needs several writes between two steps of one
    mistakes.MovesItsNewFileIntoPlace,  # no other is opened while another one is halfway
    # No others notice that another process keeps its lock:
    *(mistakes.WaitsOnTheLoop, mistakes.GivesUpOnALock, mistakes.WaitsWhenCancelled),
    mistakes.ReadsNoLargerFile,  # no other minds what another process has stored
    mistakes.LooksAtNotesAfterwards,  # no other has another process that notes more meanwhile
):
    SABOTEURS[shared.__name__] = "shared-processes", filed.backend(shared)
numbered = replace(filed.FILED, scratch=scratch_numbered)
SABOTEURS["NumbersItsScratchLocations"] = "shared-processes", numbered
# [scratch-apart] of processes was tried only with backends that are shared.
SABOTEURS["NumbersItsOwnLocations"] = "durable-killed", replace(numbered, shared=False)
