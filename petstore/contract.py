"""The storage contract: everything that a storage plugin must know, and all that it may import.

A plugin is a distribution with an entry point in the group ``petstore.backends`` that names a
:class:`Backend`. The service opens it once per process and talks to the :class:`Repository`.

The contract is a list of clauses. Each ends with its name in brackets, such as [id-range], and
the conformance kit has a test for it. A test that fails says what the backend probably does
wrong. New clauses come with minor releases, and warn for one before they fail; a changed clause
raises `CONTRACT`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol, runtime_checkable

from msgspec import UNSET, Meta, Struct, UnsetType

CONTRACT: Final = 2
"""The version of this contract. A plugin states it in its `Backend` as a literal number."""

MAX_ID: Final = 2**53 - 1
"""The highest id: every integer up to it is exact in JSON clients that read numbers as doubles."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Id = Annotated[int, Meta(ge=1, le=MAX_ID, extra_json_schema={"format": "int64"})]


class PetStatus(StrEnum):
    """The availability of a pet."""

    AVAILABLE = "available"
    PENDING = "pending"
    SOLD = "sold"


class NewPet(Struct, frozen=True, gc=False, rename="camel"):
    """A pet to be added."""

    name: Annotated[
        str, Meta(description="The pet's name: any Unicode text, the empty string included.")
    ]
    category_id: Annotated[
        Int64, Meta(description="The pet's category: an integer, not 1.0 or 1e2.")
    ]
    status: PetStatus | UnsetType = UNSET


class Pet(Struct, frozen=True, gc=False, rename="camel"):
    """A pet in the store."""

    id: Annotated[Id, Meta(description="Unique, assigned by the service, never reused.")]
    name: Annotated[str, Meta(description="The pet's name, exactly as it was sent.")]
    category_id: Annotated[Int64, Meta(description="The category that the pet belongs to.")]
    status: PetStatus | UnsetType = UNSET


class OrderStatus(StrEnum):
    """The state of an order. Only a placed order can change; the other two states are final."""

    PLACED = "placed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


PET_STATUS_BY_ORDER: Final = {
    OrderStatus.PLACED: PetStatus.PENDING,
    OrderStatus.COMPLETED: PetStatus.SOLD,
    OrderStatus.CANCELLED: PetStatus.AVAILABLE,
}
"""The status that a pet takes when an order of it takes a status."""


class Order(Struct, frozen=True, gc=False, rename="camel"):
    """An order of one pet."""

    id: Annotated[Id, Meta(description="Unique among orders, never reused.")]
    pet_id: Annotated[Id, Meta(description="The pet that is ordered.")]
    status: OrderStatus
    placed_at: Annotated[datetime, Meta(tz=True, description="When it was placed, in UTC.")]


class PetQuery(Struct, frozen=True, gc=False, rename="camel"):
    """Which pets a page shows: the first `count` that match and whose id is higher than `after`.

    after -- from 0, the beginning, to `MAX_ID`
    count -- from 1 to 2**63 - 1
    status -- only pets of this status match; None for all pets, those without a status included
    """

    after: int
    count: int
    status: PetStatus | None = None


class OrderQuery(Struct, frozen=True, gc=False, rename="camel"):
    """Which orders a page shows; the fields are those of `PetQuery`."""

    after: int
    count: int
    status: OrderStatus | None = None


class IdempotencyToken(Struct, frozen=True, gc=False):
    """What identifies a write, so that a retry of it takes effect only once.

    value -- 32 bytes that identify the write: a digest, in which every byte counts
    fingerprint -- 32 bytes: a digest of what the write stores, and so of another operation another
    now -- the caller's clock, in seconds since 1970: up to 2**53 - 1, as is `until`
    until -- when the record of this write expires, on the same clock
    """

    value: bytes
    fingerprint: bytes
    now: int
    until: int


class TokenRecord(Struct, frozen=True, gc=False):
    """What a store remembers of a write that had an `IdempotencyToken`.

    value, fingerprint, until -- those of the token
    id -- the id that the write was assigned, which a retry is given again
    """

    value: bytes
    fingerprint: bytes
    until: int
    id: Id


class TokenPage(Struct, frozen=True, gc=False):
    """Some of the records of a store.

    records -- in any order
    next -- the cursor of the following page, or the empty string after the last one
    """

    records: list[TokenRecord]
    next: str


class Receipt(Struct, frozen=True, gc=False):
    """What a write returns once its effect is stored.

    id -- the id that was assigned
    replayed -- True if an earlier write with the same token had this effect, and this one had none
    """

    id: int
    replayed: bool = False


class StorageError(Exception):
    """Base class of all errors that a backend raises on purpose.

    The message is for operators and must not contain a secret.
    """


class RefusedError(StorageError):
    """The write was refused; nothing was changed and nothing recorded."""


class NotFoundError(RefusedError):
    """The pet or order that the write refers to was not found."""


class ConflictError(RefusedError):
    """The write conflicts with the current state of the pet or the order."""


class TokenReusedError(RefusedError):
    """The token was used before, for a write with another fingerprint."""


class UnavailableError(StorageError):
    """The storage cannot be reached, or the repository is closed. Clients are told to retry."""


class WrongStoreError(UnavailableError):
    """The store is not the one that was expected or opened: another one, an older copy, or none."""


class ChangeNeededError(StorageError):
    """The store would have to be created or upgraded, which `Expected.access` does not allow."""


class SettingsError(StorageError):
    """The backend's settings cannot work. The message names the setting and says how to fix it."""


@runtime_checkable
class Repository(Protocol):
    """The pets and orders of one open store.

    Subclass it, so that creating an object fails if a method is missing.

    - Any number of calls may overlap on one event loop. Their results are as if they ran one after
      the other, each at one moment between its start and its end; pages are an exception, see
      `list_pets`. [overlapping-calls]
    - Whatever the order of the calls, they return what plain lists of pets and orders would.
      [model]
    - A pet is in at most one order that is placed or completed. [sold-once]
    - Once a write has returned, every read that starts later sees it. [read-after-write]
    - A cancelled write takes effect completely or not at all, and no later than it would have if
      nobody had cancelled it. [cancelled-write]
    - A cancelled call raises `CancelledError` soon. [cancellation]
    - A cancelled call disturbs no other call, in flight or later. [after-cancellation]
    - A returned list, also that of a `TokenPage`, is its caller's own: a change of it is seen
      nowhere else. [no-aliasing]
    - Results are structs of this module whose values have exactly the annotated types. Arguments
      may be given by name. [exact-types]
    - While the storage can be reached, no call raises `UnavailableError`: the backend repeats what
      its engine asks to repeat (deadlocks, serialization failures, locks). [healthy]
    - No call holds the event loop for longer than a tenth of a second, as long as it reads or
      restores no more than a thousand items. [event-loop]
    - The work of a call, except for `restore` and `list_tokens`, does not grow with the number of
      pets, orders and records: it searches an index instead of going through them. [cost]
    - After the `Backend.open` context has exited, every method raises `UnavailableError`. Calls
      that are in flight then return, or raise it, too. [closed]

    A write may carry an `IdempotencyToken`. Tokens with equal values are the same token. The rules:

    - The assigned id is recorded under the token. A later write with the same token and
      fingerprint changes nothing and returns the recorded id, with `replayed` set.
      [token-replayed]
    - A later write with the same token and another fingerprint raises `TokenReusedError`,
      whatever else is wrong with it; possibly also if the earlier write had no effect: still in
      flight, cancelled, or failed with `UnavailableError`. [token-reused]
    - Different tokens do not affect each other. [token-apart]
    - The record is stored in the same atomic step as the effect: of several writes with one token
      that overlap or are cancelled, only one takes effect. [token-atomic]
    - A refused write records nothing. [token-refused]
    - A record expires at its `until`: a call whose `now` is `until` or later ignores it, and a
      replay does not extend it. After such a call the record may be deleted, so that a later call
      with an earlier `now` does not find it. [token-expired]
    - Expired records do not pile up, even if writes come in bursts, the store is reopened often, or
      other clocks were wrong: a write that adds a record deletes two that have expired by its
      `now`, or the engine deletes all. A backend may keep them until they have also expired by its
      own clock; that must go on while nothing is written, and alone deletes none. [token-deleted]

    A store has an identity: random text that is made and kept with it. A process that opens
    the store again sees that it is the same one and not an empty one that has taken its place.

    - `store` is that identity: 1 to 64 printable ASCII characters. All open repositories of one
      store have the same, also those in other processes; two stores never do. [store-identity]
    - If the store is removed, or another one takes its place, `check` raises `WrongStoreError`, or
      `UnavailableError` if it cannot tell. From that call on none succeeds, and nothing is created,
      not even an empty file. The service calls `check` once a second. [store-gone]

    Every method may also raise `UnavailableError` if the storage cannot be reached; a write may or
    may not have taken effect then. The service responds with 503 and ``Retry-After``; to an
    exception that is not defined in this module it responds with 500.
    """

    store: str
    """The identity of the store."""

    @abstractmethod
    async def check(self) -> None:
        """Make sure that the store is still the one that was opened.

        Raises `WrongStoreError` if it is not.
        """

    @abstractmethod
    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store a new pet and return a receipt with its id.

        - The id is between 1 and `MAX_ID`; ids may have gaps. [id-range]
        - No id is assigned twice. [id-once]
        - The name is any sequence of Unicode scalar values, possibly empty, and is returned
          exactly as it was given: never trimmed, folded, normalized or cut. [name-exact]
        - The category is any int64 and is returned exactly. [category-exact]
        - The status is returned as it was given; an absent status stays absent. [status-exact]
        """

    @abstractmethod
    async def get_pet(self, pet_id: int) -> Pet | None:
        """Return the pet with this id, which is between 1 and `MAX_ID`, or None.

        - A stored pet is returned with everything that was stored. [get-stored]
        - If there is no such pet, None is returned, even for an id that was never assigned.
          [get-absent]
        """

    @abstractmethod
    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Return the page of pets that a query asks for.

        - Pets are in ascending id. [page-order]
        - The pet whose id is `after` is left out, all pets after it are included; `after` need
          not be the id of a pet. [page-after]
        - There are `count` of them, or fewer only if no further pet matches. [page-count]
        - With a status, exactly the pets of that status match; a pet without a status matches
          none. [page-status]
        - If nothing matches, the result is empty. [page-empty]
        - A walk from page to page returns each pet that existed when it began exactly once, and a
          pet that is added meanwhile at most once: a pet may become visible after one with a higher
          id. [page-walk]
        - Pages are not snapshots: of two writes that overlap the call, a page may show only the
          later one. Each item is in some matching state that it had during the call; no item that
          matched throughout is missing. So all writes that had returned before the call are shown.
          [page-overlap]
        """

    @abstractmethod
    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Place an order of an available pet and return a receipt with the order's id.

        `pet_id` is any int64, `at` a time in UTC with microseconds.

        - The id is between 1 and `MAX_ID`, and no order id is assigned twice. [order-id]
        - The order is stored as placed, at that time and for that pet. [order-exact]
        - In the same atomic step the pet becomes pending: a reader who sees one change sees the
          other. [order-reserves]
        - If there is no pet with this id, `NotFoundError` is raised. [order-of-nothing]
        - If the pet is not available, `ConflictError` is raised. [order-refused]
        """

    @abstractmethod
    async def get_order(self, order_id: int) -> Order | None:
        """Return the order with this id, which is between 1 and `MAX_ID`, or None.

        - The order is returned in its current state, or None if there is no such order. [order-get]
        """

    @abstractmethod
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Return the page of orders that a query asks for, as `list_pets` does.

        - Orders are in ascending id, all of them after `after`; there are `count` of them, or
          fewer only if no further order matches. [orders-page]
        - With a status, exactly the orders that currently have it match. [orders-status]
        """

    @abstractmethod
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel a placed order and return it in its new state.

        - When an order is completed, its pet becomes sold in the same atomic step.
          [order-completed]
        - When an order is cancelled, its pet becomes available in the same atomic step.
          [order-cancelled]
        - If the order already has the status, nothing changes and it is returned. [order-same]
        - If the order is no longer placed, any other status raises `ConflictError`. [order-final]
        - If there is no order with this id, `NotFoundError` is raised. [order-absent]
        """

    @abstractmethod
    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Return about `count` of the records that have not expired, and a cursor to go on with.

        The first call of a walk has an empty cursor, each later one the cursor of the page before
        it. A page may have no records and not be the last one. It has at most a thousand, or ten
        times `count` if that is more.

        - A walk returns at least once, exactly as it was stored, each record that exists throughout
          and whose `until` is later than `now`, and no other record. [token-walk]
        """

    @abstractmethod
    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Store pets, orders and records of another store, under the ids that they have there.

        Each item is stored completely or not at all. If one is refused, all items before it are
        stored; those after it may or may not be. During the call nobody makes another write.

        - Items are returned exactly as they were given, in every list where they belong.
          [restore-exact]
        - A call takes any number of items. [restore-sizes]
        - An item that is stored already, and is equal, is skipped. [restore-again]
        - If a different item has its id, `ConflictError` is raised. [restore-other]
        - Ids that are assigned later are higher than all restored ones. If none is left, a write
          that needs one changes nothing and raises a `StorageError` that is neither a
          `RefusedError` nor an `UnavailableError`. [restore-next]
        - A record is in force at once: a write with its token returns its id. If a different record
          has the token, `ConflictError` is raised. [restore-token]
        - An order whose pet is not stored raises `NotFoundError`. [restore-order]
        - A placed or completed order raises `ConflictError` if its pet does not have the matching
          status, or is in another such order. [restore-live]
        """


MAX_NOTE_BYTES: Final = 65536


class Notes(Protocol):
    """What the processes of a service have noted about their store; it outlives each of them.

    A backend may note how far the store is: the highest ids, or the number of changes. A store that
    is behind a note is an older copy, and raises `WrongStoreError`. A call takes microseconds.
    """

    def read(self) -> list[bytes]:
        """Return the last note of each process that has one."""

    def write(self, note: bytes) -> None:
        """Replace the note of this process: at most `MAX_NOTE_BYTES`, in one thread at a time."""


class Access(StrEnum):
    """What `Backend.open` may do to a store, and calls after it.

    READ -- only read: the service makes no write then
    WRITE -- calls write, but no store is created or upgraded
    CREATE -- `open` creates the store if there is none, and upgrades one of an older schema
    """

    READ = "read"
    WRITE = "write"
    CREATE = "create"


class Expected(Struct, frozen=True):
    """What `Backend.open` must find, and what it may do.

    store -- the identity that the store must have, and none is created; None: any store will do
    access -- what it may do to the store
    processes -- how many processes of the service open it; too many for its server may be refused
    snapshot -- whether reads show this moment for good; only asked if `Backend.snapshots`
    notes -- what the processes of the service know of the store; None outside a service
    """

    store: str | None = None
    access: Access = Access.CREATE
    processes: int = 1
    snapshot: bool = False
    notes: Notes | None = None


class Backend(Struct, frozen=True, kw_only=True):
    """What a plugin's entry point names: how its storage is configured and opened.

    contract -- the contract that the plugin was written for, as a literal number
    settings -- a frozen `msgspec.Struct` type; the service fills its fields from the settings
        ``PETSTORE_<NAME>_<FIELD>``. A field's `Meta.description` tells deployers what it takes
    open -- called with such settings and an `Expected`; an asynchronous context manager that
        yields an open repository and closes it. `open` raises `SettingsError`, `UnavailableError`,
        `WrongStoreError` or `ChangeNeededError`
    scratch -- called with such settings; an asynchronous context manager that yields settings of a
        new, empty location (where one store keeps its data: a file, a key prefix, a database), and
        removes that location when it exits
    shared -- whether several repositories, of one process or several, may have the same data open
    durable -- whether acknowledged data outlives the process
    snapshots -- whether a shared store can be opened as a snapshot, for an export
    max_name_bytes -- the longest name that can be stored, in bytes of UTF-8; None if it takes any
        that a request can have: the kit tries 16 MiB. The service does not start with a larger
        PETSTORE_MAX_BODY_BYTES

    - A repository that is opened at a new location of `scratch` is empty. [scratch-empty]
    - Two locations that exist at the same time share nothing, also if one was made from the
      settings of the other, or another process made it. To make and to remove a location changes
      no other one, not even one that was made from its settings. [scratch-apart]
    - Given the identity of another store, or of any if there is none, `open` raises
      `WrongStoreError` and changes nothing. [store-expected]
    - Without leave to create, `open` raises `ChangeNeededError` if there is no store, and changes
      nothing. A repository that is not durable has nothing to create. [store-kept]
    - `open` and `scratch` pass on what is raised in their block, unchanged. [failure-passed]
    - Durable: after reopening, all acknowledged pets are there, unchanged. [durable-pets]
    - Durable: all orders and the records of tokens are there, too. [durable-orders]
    - Durable: no id is assigned again after reopening. [durable-ids]
    - Durable: a pet or an order that a read has returned is there after reopening, even if the call
      that stored it was cancelled. [durable-reads]
    - Durable: all this holds even if the process is killed instead of closing. [durable-killed]
    - Shared: what one repository has written, every read through another that starts later sees.
      [shared-reads]
    - Shared: no id is assigned by two repositories. [shared-ids]
    - Shared: a pet is ordered through only one of them, and a token takes effect in only one of
      them. [shared-orders]
    - Shared: all this holds for repositories in several processes, too. [shared-processes]
    - Snapshots: with `Expected.snapshot` and any access, all reads show the store as it was at one
      moment before `open` has yielded. [snapshot]
    """

    contract: int
    settings: type[Struct]
    open: Callable[[Any, Expected], AbstractAsyncContextManager[Repository]]
    scratch: Callable[[Any], AbstractAsyncContextManager[Any]]
    shared: bool
    durable: bool
    snapshots: bool = False
    max_name_bytes: int | None = None
