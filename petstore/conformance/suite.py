"""The classes that authors of backends subclass: all clauses, and those of a remote repository."""

from petstore.conformance.cancellation import CancellationClauses
from petstore.conformance.concurrency import ConcurrencyClauses
from petstore.conformance.costs import CostClauses
from petstore.conformance.durability import DurabilityClauses
from petstore.conformance.locations import LocationClauses
from petstore.conformance.orders import OrderClauses
from petstore.conformance.pages import PageClauses
from petstore.conformance.pets import PetClauses
from petstore.conformance.processes import ProcessClauses
from petstore.conformance.records import RecordClauses
from petstore.conformance.restore import RestoreClauses
from petstore.conformance.sequences import ModelClause
from petstore.conformance.sharing import SharingClauses
from petstore.conformance.stores import StoreClauses
from petstore.conformance.tokens import ExpiryClauses, TokenClauses


class RemoteConformance(
    PetClauses,
    PageClauses,
    ConcurrencyClauses,
    CancellationClauses,
    OrderClauses,
    TokenClauses,
    ModelClause,
):
    """The clauses that a repository in another process can be tested for, such as over HTTP.

    Those of opening, closing, restoring and expiry are left out.
    """


class Conformance(
    RemoteConformance,
    CostClauses,
    ExpiryClauses,
    LocationClauses,
    DurabilityClauses,
    SharingClauses,
    ProcessClauses,
    RestoreClauses,
    StoreClauses,
    RecordClauses,
):
    """The clauses of a backend: its tests subclass this, with `backend` and `settings`."""

    machine_advances_time = True
    machine_restores = True
