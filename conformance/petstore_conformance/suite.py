"""The classes that authors of backends subclass: all clauses, and those of a remote repository."""

from petstore_conformance.clauses.cancellation import CancellationClauses
from petstore_conformance.clauses.concurrency import ConcurrencyClauses
from petstore_conformance.clauses.costs import CostClauses
from petstore_conformance.clauses.durability import DurabilityClauses
from petstore_conformance.clauses.locations import LocationClauses
from petstore_conformance.clauses.orders import OrderClauses
from petstore_conformance.clauses.pets import PageClauses, PetClauses
from petstore_conformance.clauses.processes import ProcessClauses
from petstore_conformance.clauses.records import RecordClauses
from petstore_conformance.clauses.restore import RestoreClauses
from petstore_conformance.clauses.sequences import ModelClause
from petstore_conformance.clauses.sharing import SharingClauses
from petstore_conformance.clauses.stores import StoreClauses
from petstore_conformance.clauses.tokens import ExpiryClauses, TokenClauses


# pytest begins with the last base: the simplest clauses, because what fails one of them probably
# fails some of those after it, too.
class _Calls(
    CancellationClauses, ConcurrencyClauses, TokenClauses, OrderClauses, PageClauses, PetClauses
):
    pass


class RemoteConformance(ModelClause, _Calls):
    """The clauses that hold for a repository in another process, such as behind an HTTP service.

    Those of opening, closing, restoring and expiry are left out: they need the backend itself.
    """


class Conformance(
    ModelClause,
    CostClauses,
    ProcessClauses,
    SharingClauses,
    DurabilityClauses,
    RecordClauses,
    RestoreClauses,
    StoreClauses,
    LocationClauses,
    ExpiryClauses,
    _Calls,
):
    """The clauses of a backend: its tests subclass this, with `backend` and `settings`."""

    remote = False
