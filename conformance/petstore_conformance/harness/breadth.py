"""Which of several clauses that failed names most narrowly what is wrong.

Most breaches fail several clauses: one names it, and the others fail because they rely on that
clause. `NARROW_FIRST` has those first that hardly ever fail for another reason. It was measured
with the saboteurs, each of which knows the clause that it breaks
(`conformance/tests/narrowness.py`). An order that is fitted to half of them is no better for the
other half than this one, so a clause moves only for a reason that can be said.
"""

from collections.abc import Collection
from typing import Final

NARROW_FIRST: Final = (
    *("scratch-empty", "page-empty", "id-range", "no-aliasing", "get-stored", "get-absent"),
    *("cost", "order-get", "order-reserves", "order-completed", "page-order", "status-exact"),
    *("event-loop", "order-final", "page-status", "order-id", "restore-order", "id-once"),
    *("name-exact", "orders-page", "order-refused", "page-walk", "order-same"),
    *("token-replayed", "orders-status", "healthy", "category-exact", "restore-exact"),
    *("order-of-nothing", "token-apart", "page-after", "store-identity", "page-count"),
    *("after-cancellation", "page-overlap", "token-refused", "sold-once", "read-after-write"),
    *("durable-killed", "durable-pets", "failure-passed", "restore-next", "restore-again"),
    *("cancellation", "exact-types", "shared-ids", "order-absent", "token-deleted"),
    *("durable-ids", "restore-other", "token-reused", "order-exact", "snapshot"),
    *("token-expired", "token-atomic", "store-kept", "durable-orders", "restore-sizes"),
    *("durable-reads", "restore-token", "token-walk", "overlapping-calls", "shared-reads"),
    *("cancelled-write", "order-cancelled", "closed", "shared-processes", "scratch-apart"),
    *("shared-orders", "store-gone", "store-expected", "restore-live"),
    "model",
)
"""All clauses, the narrowest first."""


def begin_with(failed: Collection[str], late: Collection[str]) -> list[str]:
    """Return the clauses that failed, first the one that names most narrowly what is wrong.

    late -- those of them that failed only because something did not end or was not available, which
        says little of its cause
    """
    return sorted(failed, key=lambda clause: (clause in late, NARROW_FIRST.index(clause)))
