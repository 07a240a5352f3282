"""What the service notices about its storage: failures, and whether it accepts writes."""

import logging
import time
from typing import TYPE_CHECKING, Final

from petstore.text.phrases import count

if TYPE_CHECKING:
    from petstore.observability.metrics import Metrics

LOG_SECONDS: Final = 1
"""Failed writes, and failed reads, are logged once in this time; those in between are counted."""

REPEAT_SECONDS: Final = 60
"""The same for those with one reason, so that an outage fills no disk."""

_MAX_REASONS: Final = 100

_log = logging.getLogger("petstore")


class StorageHealth:
    """Logs failures of the storage, and when it accepts writes again.

    metrics -- shows whether the storage accepts writes; None if metrics are off
    """

    def __init__(self, metrics: "Metrics | None") -> None:
        self._metrics = metrics
        # When a reason was last logged, of writes and of reads.
        self._logged: dict[bool, dict[str, float]] = {True: {}, False: {}}
        self._unlogged = 0
        self._refusing = False  # the log says that the storage accepts no writes

    def failed(self, reason: str, request_id: str, *, write: bool) -> None:
        """Log that the storage failed a request, unless another failure has just been logged."""
        if write and self._metrics is not None:
            self._metrics.storage_writable(accepts=False)
        if not self._due(reason, write=write):
            self._unlogged += 1
            return
        what = "a write failed: " if write else ""
        _log.error("%s%s%s", what, reason, self._more(), extra={"request_id": request_id})
        self._refusing = self._refusing or write

    def not_ready(self, reason: str) -> None:
        """Log that the storage cannot be read, unless a failure has just been logged."""
        if self._due(reason, write=False):
            _log.warning("not ready: %s", reason)

    def _due(self, reason: str, *, write: bool) -> bool:
        """Return whether to log a failure now."""
        now, logged = time.monotonic(), self._logged[write]
        last = max(logged.values(), default=float("-inf"))
        if now - last < LOG_SECONDS or now - logged.get(reason, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        if len(logged) == _MAX_REASONS:  # they name pets, for instance
            logged.clear()
        logged[reason] = now
        return True

    def _more(self) -> str:
        """Return how many failures were not logged since the last time."""
        failed, self._unlogged = self._unlogged, 0
        return f" (and {count(failed, 'more request')} failed)" if failed else ""

    def wrote(self) -> None:
        """Note that the storage has stored something new: it accepts writes."""
        if self._metrics is not None:
            self._metrics.storage_writable(accepts=True)
        if self._refusing:
            self._refusing = False
            self._logged[True].clear()
            _log.info("the storage accepts writes again%s", self._more())
