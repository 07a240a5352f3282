"""The storage contract: everything that a storage plugin must know, and all that it may import.

A plugin is a distribution with an entry point in the group ``petstore.backends`` that names a
:class:`Backend`. The service opens it once per process and talks to the :class:`Repository`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
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
    category_id: Annotated[
        Int64,
        Meta(description="The category that the animal belongs to: an integer, no 1.0 or 1e2."),
    ]
    status: PetStatus | UnsetType = UNSET


class Pet(Struct, frozen=True, gc=False, rename="camel"):
    """An animal of the store."""

    id: Annotated[Id, Meta(description="Unique, given out by the service, never given out again.")]
    name: Annotated[str, Meta(description="The animal's name, as it was sent.")]
    category_id: Annotated[Int64, Meta(description="The category that the animal belongs to.")]
    status: PetStatus | UnsetType = UNSET


class Receipt(Struct, frozen=True, gc=False):
    """What a write answers once its effect is stored: the id that was given out."""

    id: int


class StorageError(Exception):
    """Any failure that a backend declares. The message is for operators: it holds no secret."""


class UnavailableError(StorageError):
    """The storage cannot be reached, or the repository was closed. Clients are told to retry."""


class SettingsError(StorageError):
    """The backend's settings cannot work. The message says which one and what to write instead."""


@runtime_checkable
class Repository(Protocol):
    """The animals of one store. Subclass it: a missing method then fails when the object is made.

    Every method may be called concurrently from one event loop. A write is atomic: it happens
    wholly or not at all, also when the call is cancelled. Once a write has returned, every read
    that starts later, in any process that shares the data, sees it. After its `Backend.open`
    context was left, every method raises `UnavailableError`.
    """

    @abstractmethod
    async def create_pet(self, new: NewPet) -> Receipt:
        """Store a new animal and return the receipt with its id.

        The id is between 1 and `MAX_ID` and never given out again, also not after a durable
        store is reopened. Ids may have gaps. `name` is any sequence of Unicode scalar values and
        `category_id` any int64; both come back exactly as given, and an absent status stays
        absent.

        Raises `UnavailableError`; the animal may or may not have been stored then.
        """
        raise NotImplementedError

    @abstractmethod
    async def get_pet(self, pet_id: int) -> Pet | None:
        """Return the animal with this id (1 to `MAX_ID`), or None if there is none.

        Raises `UnavailableError`.
        """
        raise NotImplementedError

    @abstractmethod
    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Return the first `count` animals whose id is higher than `after`, in ascending id.

        `after` is between 0 and `MAX_ID`, `count` is 1 or more. With a `status`, only animals of
        exactly that status count; an animal without status matches none. The result is shorter
        than `count` only if no further animal matches. An animal that a completed call has
        stored is in every later result that it belongs into.

        Raises `UnavailableError`.
        """
        raise NotImplementedError


class Backend(Struct, frozen=True, kw_only=True):
    """What a plugin's entry point names: how to configure and open its storage.

    contract -- the contract that the plugin was written for, as a literal number
    settings -- a frozen `msgspec.Struct` type; the service fills its fields from the settings
        ``PETSTORE_<NAME>_<FIELD>``. A field's `Meta.description` tells a deployer what it takes
    open -- called with such settings; an asynchronous context manager that yields an open
        repository and closes it. Raises `SettingsError` or `UnavailableError`
    shared -- several processes may open the same data at the same time
    durable -- what was acknowledged outlives the process
    """

    contract: int
    settings: type[Struct]
    open: Callable[[Any], AbstractAsyncContextManager[Repository]]
    shared: bool
    durable: bool
