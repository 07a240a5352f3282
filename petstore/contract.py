"""The storage contract: everything that a storage plugin must know, and all that it may import.

A plugin is a distribution with an entry point in the group ``petstore.backends`` that names a
:class:`Backend`. The service opens it once per process and talks to the :class:`Repository`.

The contract is a list of clauses. A name in brackets, such as [id-range], ends a clause; the
conformance kit has a test for it, which says what a backend that breaks it has probably done
wrong. A new clause comes in a minor release; a changed clause raises `CONTRACT`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol, runtime_checkable

from msgspec import UNSET, Meta, Struct, UnsetType

CONTRACT: Final = 1
"""The number of this contract. A plugin writes it into its `Backend` as a literal."""

MAX_ID: Final = 2**53 - 1
"""The highest id: every integer up to it is exact in JSON clients that read numbers as doubles."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Id = Annotated[int, Meta(ge=1, le=MAX_ID, extra_json_schema={"format": "int64"})]


class PetStatus(StrEnum):
    """Availability of an animal."""

    AVAILABLE = "available"
    PENDING = "pending"
    SOLD = "sold"


class NewPet(Struct, frozen=True, gc=False, rename="camel"):
    """An animal to be added."""

    name: Annotated[str, Meta(description="The animal's name: any Unicode text, also none.")]
    category_id: Annotated[Int64, Meta(description="Its category: an integer, no 1.0 or 1e2.")]
    status: PetStatus | UnsetType = UNSET


class Pet(Struct, frozen=True, gc=False, rename="camel"):
    """An animal of the store."""

    id: Annotated[Id, Meta(description="Unique, given out by the service, never given out again.")]
    name: Annotated[str, Meta(description="The animal's name, as it was sent.")]
    category_id: Annotated[Int64, Meta(description="The category that the animal belongs to.")]
    status: PetStatus | UnsetType = UNSET


class OrderStatus(StrEnum):
    """How far an order has come. Only a placed one changes; the other two are final."""

    PLACED = "placed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


PET_STATUS_BY_ORDER: Final = {
    OrderStatus.PLACED: PetStatus.PENDING,
    OrderStatus.COMPLETED: PetStatus.SOLD,
    OrderStatus.CANCELLED: PetStatus.AVAILABLE,
}
"""What an animal becomes when an order of it takes a status."""


class Order(Struct, frozen=True, gc=False, rename="camel"):
    """An order of one animal."""

    id: Annotated[Id, Meta(description="Unique among orders, never given out again.")]
    pet_id: Annotated[Id, Meta(description="The animal that is ordered.")]
    status: OrderStatus
    placed_at: Annotated[datetime, Meta(tz=True, description="When it was placed, in UTC.")]


class Retry(Struct, frozen=True, gc=False):
    """By what a write knows that it was carried out before.

    token -- 32 bytes: which write this is. Tokens are digests, and any byte may tell two apart
    fingerprint -- 32 bytes: what it writes
    now -- the caller's clock, in seconds since 1970
    until -- when the record of this write is to be forgotten, on the same clock
    """

    token: bytes
    fingerprint: bytes
    now: int
    until: int


class Receipt(Struct, frozen=True, gc=False):
    """What a write answers once its effect is stored.

    id -- what was given out
    replayed -- the write was carried out before, under the same `Retry.token`; now it was not
    """

    id: int
    replayed: bool = False


class StorageError(Exception):
    """Any failure that a backend declares. The message is for operators: it holds no secret."""


class RefusedError(StorageError):
    """The write is not possible, and nothing was changed or recorded."""


class NotFoundError(RefusedError):
    """What the write is about does not exist."""


class ConflictError(RefusedError):
    """The status of the animal or the order does not permit the write."""


class TokenReusedError(RefusedError):
    """The token of the `Retry` has been used for a write with another fingerprint."""


class UnavailableError(StorageError):
    """The storage cannot be reached, or the repository was closed. Clients are told to retry."""


class SettingsError(StorageError):
    """The backend's settings cannot work. The message says which one and what to write instead."""


@runtime_checkable
class Repository(Protocol):
    """The animals and orders of one store, open.

    Subclass it: a missing method then fails when the object is made.

    - Any number of calls may overlap on one event loop; each is carried out as if they came one
      after the other. [overlapping-calls]
    - In whatever order calls come, they answer as plain lists of animals and orders would. [model]
    - An animal is never in two orders that are placed or completed. [sold-once]
    - Once a write has returned, every read that starts later sees it. [read-after-write]
    - A write that is cancelled happens wholly or not at all. [cancelled-write]
    - A call that is cancelled ends with `CancelledError`, and soon. [cancellation]
    - A cancelled call disturbs no other, under way or later. [after-cancellation]
    - What a call returns is the caller's; the store stays as it is. [no-aliasing]
    - Results are structs of this module, with values of exactly the annotated types.
      [exact-types]
    - After the `Backend.open` context was left, every method raises `UnavailableError`. [closed]

    A write may come with a `Retry`:

    - What it gave out is recorded under its token. A later write with that token and fingerprint
      changes nothing; it returns the recorded id, with `replayed` set. [retry-replayed]
    - A later write with that token and another fingerprint raises `TokenReusedError`, whatever
      else would be wrong with it. [retry-reused]
    - Tokens that differ have nothing to do with each other. [retry-apart]
    - The record is written in the same step as the effect: of writes with one token that overlap
      or are cancelled, one takes effect. [retry-atomic]
    - A refused write records nothing. [retry-refused]
    - From its `until` on, a record is as if it had never been; replays do not prolong it. Clocks
      go forward: what one `now` has reached need not be kept for an earlier one. [retry-expired]

    Every method raises `UnavailableError`, too, if the storage cannot be reached; a write may or
    may not have happened then. The service answers it with 503 and ``Retry-After``, and any error
    that is not of this module with 500.
    """

    @abstractmethod
    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        """Store a new animal and return the receipt with its id.

        - The id is between 1 and `MAX_ID`; ids may have gaps. [id-range]
        - No id is given out twice. [id-once]
        - The name is any sequence of Unicode scalar values, also none, and comes back exactly as
          it was given: nothing is trimmed, folded, normalised or cut. [name-exact]
        - The category is any int64 and comes back exactly. [category-exact]
        - The status comes back as it was given; an absent one stays absent. [status-exact]
        """

    @abstractmethod
    async def get_pet(self, pet_id: int) -> Pet | None:
        """Return the animal with this id, which is between 1 and `MAX_ID`.

        - An animal that is stored is returned with all that was stored. [get-stored]
        - If there is none, the answer is None, also for an id never given out. [get-absent]
        """

    @abstractmethod
    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Return the first `count` animals whose id is higher than `after`.

        `after` is between 0 and `MAX_ID`, `count` is 1 or more.

        - Animals come in ascending id. [page-order]
        - The animal whose id is `after` is not among them, all after it are; `after` need not be
          the id of an animal. [page-after]
        - There are `count` of them, or fewer only if no further animal matches. [page-count]
        - With a status, exactly the animals of that status match; one without status matches
          none. [page-status]
        - Where nothing matches, the answer is empty. [page-empty]
        - A walk from page to page meets each animal that was there when it began exactly once,
          and one that is added meanwhile at most once. [page-walk]
        """

    @abstractmethod
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        """Place an order of an available animal and return the receipt with the order's id.

        `pet_id` is any int64, `at` a time in UTC with microseconds.

        - The id is between 1 and `MAX_ID`, and no order's id is given out twice. [order-id]
        - The order is stored as placed at that time, for that animal. [order-exact]
        - In the same step the animal becomes pending: whoever sees one sees the other.
          [order-reserves]
        - Where there is no animal with this id, it raises `NotFoundError`. [order-of-nothing]
        - If the animal is not available, it raises `ConflictError`. [order-refused]
        """

    @abstractmethod
    async def get_order(self, order_id: int) -> Order | None:
        """Return the order with this id, which is between 1 and `MAX_ID`.

        - It is returned as it is now; if there is none, the answer is None. [order-get]
        """

    @abstractmethod
    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Return the first `count` orders whose id is higher than `after`, as `list_pets` does.

        - Orders come in ascending id, all after `after`; there are `count` of them, or fewer only
          if no further order matches. [orders-page]
        - With a status, exactly the orders that have it now match. [orders-status]
        """

    @abstractmethod
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel a placed order and return it as it is then.

        - A completed order's animal becomes sold in the same step. [order-completed]
        - A cancelled order's animal becomes available in the same step. [order-cancelled]
        - If the order has the status already, nothing changes, and it is returned. [order-same]
        - One that is no longer placed takes no other status: `ConflictError`. [order-final]
        - Where there is no order with this id, it raises `NotFoundError`. [order-absent]
        """

    @abstractmethod
    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Store animals and orders that another store gave out, under the ids that they have.

        Each item is stored wholly or not at all. If one is refused, those before it are stored,
        and those after it may be. Nobody else writes meanwhile.

        - They come back exactly as they are given, in every list where they belong. [restore-exact]
        - An item that is stored already, and is equal, is passed over. [restore-again]
        - If a different one has its id, it raises `ConflictError`. [restore-other]
        - Ids that are given out later are higher than all that were restored. [restore-next]
        - An order of an animal that is not stored raises `NotFoundError`. [restore-order]
        - An order that is placed or completed raises `ConflictError` if its animal has not the
          status that goes with it, or is in another such order. [restore-live]
        """


class Backend(Struct, frozen=True, kw_only=True):
    """What a plugin's entry point names: how to configure and open its storage.

    contract -- the contract that the plugin was written for, as a literal number
    settings -- a frozen `msgspec.Struct` type; the service fills its fields from the settings
        ``PETSTORE_<NAME>_<FIELD>``. A field's `Meta.description` tells a deployer what it takes
    open -- called with such settings; an asynchronous context manager that yields an open
        repository and closes it. Raises `SettingsError` or `UnavailableError`
    scratch -- called with such settings; an asynchronous context manager that yields settings of
        an empty place of the same kind, and removes it in the end
    shared -- whether several processes may open the same data at the same time
    durable -- whether what was acknowledged outlives the process

    - A repository that is opened anew at a place of `scratch` is empty. [scratch-empty]
    - Two such places, at the same time, have nothing in common. [scratch-apart]
    - Durable: what is opened again holds all that was acknowledged, unchanged. [durable-animals]
    - Durable: so are orders and the records of retries. [durable-orders]
    - Durable: no id is given out again after that. [durable-ids]
    - Durable: an animal that a read has returned is there after that, even though the call that
      stored it was cancelled. [durable-reads]
    - Shared: what is written through one repository, every read through another that starts
      later sees. [shared-reads]
    - Shared: no id is given out by two of them. [shared-ids]
    - Shared: an animal is ordered by one of them, and a token takes effect in one of them.
      [shared-orders]
    """

    contract: int
    settings: type[Struct]
    open: Callable[[Any], AbstractAsyncContextManager[Repository]]
    scratch: Callable[[Any], AbstractAsyncContextManager[Any]]
    shared: bool
    durable: bool
