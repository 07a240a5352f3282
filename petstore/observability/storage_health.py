"""What the service notices about its storage: failures, and whether it accepts writes."""

import logging
import time
from typing import TYPE_CHECKING, Final

from petstore.text.phrases import count

if TYPE_CHECKING:
    from petstore.observability.metrics import Metrics

LOG_SECONDS: Final = 1
"""Failed writes, and failed reads, are logged once in this time; those in between are counted."""

_log = logging.getLogger("petstore")


class StorageHealth:
    """Logs failures of the storage, and when it accepts writes again.

    metrics -- shows whether the storage accepts writes; None if metrics are off
    """

    def __init__(self, metrics: "Metrics | None") -> None:
        self._metrics = metrics
        self._logged = dict.fromkeys((True, False), float("-inf"))  # of writes, of reads: when last
        self._unlogged = 0
        self._refusing = False  # the log says that the storage accepts no writes

    def failed(self, reason: str, request_id: str, *, write: bool) -> None:
        """Log that the storage failed a request, unless another failure has just been logged."""
        if write and self._metrics is not None:
            self._metrics.storage_refused_write()
        if not self._due(write=write):
            self._unlogged += 1
            return
        what = "a write failed: " if write else ""
        _log.error("%s%s%s", what, reason, self._more(), extra={"request_id": request_id})
        self._refusing = self._refusing or write

    def not_ready(self, reason: str) -> None:
        """Log that the storage cannot be read, unless a failure has just been logged."""
        if self._due(write=False):
            _log.warning("not ready: %s", reason)

    def _due(self, *, write: bool) -> bool:
        """Return whether to log a failure now."""
        now = time.monotonic()
        due = now - self._logged[write] >= LOG_SECONDS
        if due:
            self._logged[write] = now
        return due

    def _more(self) -> str:
        """Return how many failures were not logged since the last time."""
        failed, self._unlogged = self._unlogged, 0
        return f" (and {count(failed, 'more request')} failed)" if failed else ""

    def wrote(self) -> None:
        """Note that the storage has stored something new: it accepts writes."""
        if self._metrics is not None:
            self._metrics.storage_took_write()
        if self._refusing:
            self._refusing = False
            _log.info("the storage accepts writes again%s", self._more())
