"""Which of several clauses that failed names most narrowly what is wrong.

Most breaches fail several clauses: one names the breach, and the others fail because they need it
kept. `NARROW_FIRST` has those first that hardly ever fail for another reason. It was measured with
the saboteurs, each of which knows the clause that it breaks (`conformance/tests/narrowness.py`).
"""

from collections.abc import Collection
from typing import Final

NARROW_FIRST: Final = (
    *("get-stored", "page-empty", "failure-passed", "id-once", "order-get"),
    *("token-deleted", "order-id", "get-absent", "page-order", "id-range"),
    *("no-aliasing", "status-exact", "order-of-nothing", "page-after", "orders-page"),
    *("order-reserves", "order-completed", "page-count", "restore-order"),
    *("name-exact", "order-final", "category-exact", "token-replayed"),
    *("restore-exact", "token-refused", "token-apart", "order-same"),
    *("after-cancellation", "token-reused", "order-absent", "token-expired"),
    *("restore-token", "order-refused", "page-overlap", "durable-reads", "sold-once"),
    *("durable-pets", "token-atomic", "durable-killed", "restore-next", "closed"),
    *("durable-ids", "exact-types", "token-walk", "restore-again", "order-exact"),
    *("healthy", "read-after-write", "shared-processes", "scratch-empty"),
    *("durable-orders", "scratch-apart", "shared-orders", "store-identity"),
    *("event-loop", "shared-ids", "order-cancelled", "page-walk", "restore-sizes"),
    *("orders-status", "store-expected", "snapshot", "cost", "page-status"),
    *("store-gone", "cancellation", "restore-live", "cancelled-write"),
    *("overlapping-calls", "store-kept", "shared-reads", "restore-other", "model"),
)
"""All clauses, the narrowest first."""


def begin_with(failed: Collection[str], late: Collection[str]) -> list[str]:
    """Return the clauses that failed, first the one that names most narrowly what is wrong.

    late -- those of them that failed only because something did not end or was not available, which
        says little of its cause
    """
    return sorted(failed, key=lambda clause: (clause in late, NARROW_FIRST.index(clause)))
