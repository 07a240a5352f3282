"""The conformance kit as an object whose tests are called one by one, and a backend to test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from msgspec.structs import replace
from petstore_conformance import Conformance
from petstore_conformance.clauses.sequences import DEFAULT_EXAMPLES
from petstore_memory import MemoryRepository
from petstore_memory import backend as memory

from petstore.contract import Backend, Expected, WrongStoreError


def kit(backend: Backend, settings: Any, examples: int = DEFAULT_EXAMPLES) -> Conformance:
    """Return the kit of a backend.

    examples -- how many sequences of calls the clause `model` tries
    """

    class Tested(Conformance):
        machine_examples = examples

    Tested.backend, Tested.settings = backend, settings
    return Tested()


def in_memory(repository: type[MemoryRepository]) -> Backend:
    """Return the memory backend with another repository."""

    @asynccontextmanager
    async def open_(_: object, expected: Expected) -> AsyncIterator[MemoryRepository]:
        if expected.store is not None:
            raise WrongStoreError("memory keeps no store")
        with closing(repository()) as opened:
            yield opened

    return replace(memory, open=open_)
