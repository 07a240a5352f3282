"""Which of several clauses that failed names most narrowly what is wrong.

Most breaches fail several clauses: one names it, and the others fail because they rely on that
clause. `NARROW_FIRST` has those first that hardly ever fail for another reason. It was measured
with the saboteurs, each of which knows the clause that it breaks. What is fitted to some of them
gains less on the others (record 6), so a clause moves only for a reason that can be said.
"""

from collections.abc import Collection
from typing import Final

from petstore.contract import UnavailableError
from petstore_conformance.harness.alarm import OverdueError

NARROW_FIRST: Final = (  # all clauses, the narrowest first
    "no-aliasing",  # what it does to a shared list is seen wherever that is read later
    *("scratch-empty", "page-empty", "id-range", "get-absent", "id-once"),
    *("status-exact", "get-stored", "order-id", "exact-types", "page-order", "page-status"),
    *("page-after", "order-of-nothing", "order-get", "order-reserves", "order-completed"),
    *("order-cancelled", "order-final", "name-exact", "page-count", "page-walk", "orders-status"),
    # The cost is that of calls which are right: it measures full pages, and orders of nothing.
    *("orders-page", "cost", "order-refused", "order-same", "token-replayed", "healthy"),
    # What an order loses on its way, it also loses when it is restored, perhaps before a refusal.
    *("category-exact", "order-exact", "restore-exact", "token-apart", "token-refused"),
    *("sold-once", "page-overlap", "failure-passed", "durable-pets", "restore-sizes"),
    # What closing loses, or a long list, is also not there before a refusal.
    *("restore-order", "restore-next", "restore-again", "restore-other"),
    # What disturbs others also holds up those beside a call that is cancelled.
    *("after-cancellation", "cancellation", "cancelled-write", "order-absent", "event-loop"),
    # What counts after its time is also not deleted, or deleted too early.
    *("token-expired", "token-deleted", "token-atomic", "token-reused", "durable-orders"),
    *("read-after-write", "durable-ids", "scratch-apart", "shared-ids", "store-kept"),
    *("durable-reads", "store-identity", "restore-token", "token-walk", "overlapping-calls"),
    # What goes wrong between processes is also not there after a kill.
    *("shared-reads", "shared-orders", "shared-processes", "durable-killed", "closed", "snapshot"),
    *("store-expected", "store-gone", "restore-live", "model"),
)


def is_late(clause: str, error: BaseException) -> bool:
    """Return whether a clause failed only because something did not end or was not available.

    That says little of the cause, except where the clause says that everything is available.
    """
    unavailable = isinstance(error, UnavailableError) and clause != "healthy"
    return unavailable or isinstance(error, OverdueError)


def begin_with(failed: Collection[str], late: Collection[str]) -> list[str]:
    """Return the clauses that failed, first the one that names most narrowly what is wrong.

    late -- those of them whose failure `is_late`
    """
    return sorted(failed, key=lambda clause: (clause in late, NARROW_FIRST.index(clause)))
