"""How a clause is run: in an empty place, with a time limit, in an event loop of its own."""

import asyncio
import inspect
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import wraps
from typing import Any, ClassVar, Final, TypeVar

import pytest

from petstore.contract import Backend, Repository, UnavailableError

CLAUSE_SECONDS: Final = 60
"""How long a clause may take; a repository that hangs fails it."""


class Place:
    """An empty place of a backend, to be opened once, again, or twice at the same time.

    settings -- those that `Backend.scratch` has yielded
    """

    def __init__(self, backend: Backend, settings: Any) -> None:
        self.backend = backend
        self._settings = settings

    def open(self) -> AbstractAsyncContextManager[Repository]:
        """Open a repository at this place."""
        return self.backend.open(self._settings)


class Kit:
    """What the author of a backend gives: the backend, and settings with which it can work."""

    backend: ClassVar[Backend]
    settings: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        """Refuse a class that overrides or deletes a clause."""
        super().__init_subclass__()
        for name in cls.__dict__:
            if name.startswith("test_") and any(hasattr(base, name) for base in cls.__bases__):
                raise TypeError(f"{cls.__name__}.{name} would replace a clause of the contract")


AnyKit = TypeVar("AnyKit", bound=Kit)


def clause(
    name: str,
) -> Callable[[Callable[[AnyKit, Repository], Awaitable[None]]], Callable[[AnyKit], None]]:
    """Make a test of a coroutine that takes an open, empty repository.

    name -- the name of the clause in the contract
    """

    def decorate(
        test: Callable[[AnyKit, Repository], Awaitable[None]],
    ) -> Callable[[AnyKit], None]:
        async def opened(kit: AnyKit, place: Place) -> None:
            __tracebackhide__ = True
            async with place.open() as repository:
                await test(kit, repository)

        return place_clause(name)(wraps(test)(opened))

    return decorate


def place_clause(
    name: str, needs: str | None = None
) -> Callable[[Callable[[AnyKit, Place], Awaitable[None]]], Callable[[AnyKit], None]]:
    """Make a test of a coroutine that takes an empty place.

    name -- the name of the clause in the contract
    needs -- the capability that a backend must claim for it
    """

    def decorate(test: Callable[[AnyKit, Place], Awaitable[None]]) -> Callable[[AnyKit], None]:
        def run(self: AnyKit) -> None:
            __tracebackhide__ = True
            if needs is not None and not getattr(self.backend, needs):
                pytest.skip(f"the backend does not claim to be {needs}")
            with asyncio.Runner() as runner:
                runner.run(in_scratch(self, test))

        run.__name__ = test.__name__  # not wraps: pytest would ask for the argument as a fixture
        run.__doc__ = test.__doc__
        run.__dict__["clause"] = name
        return run

    return decorate


async def in_scratch(kit: AnyKit, test: Callable[[AnyKit, Place], Awaitable[None]]) -> None:
    """Run a test in an empty place, for `CLAUSE_SECONDS` at most.

    Where the storage cannot be reached, it is skipped; with ``PETSTORE_REQUIRE_SERVICES=1`` it
    raises `UnavailableError`.
    """
    __tracebackhide__ = True
    async with AsyncExitStack() as stack:
        try:
            settings = await stack.enter_async_context(kit.backend.scratch(kit.settings))
            async with kit.backend.open(settings):
                pass
        except UnavailableError as error:
            if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
                raise
            pytest.skip(f"the storage cannot be reached: {error}")
        async with asyncio.timeout(CLAUSE_SECONDS):
            await test(kit, Place(kit.backend, settings))


def clauses(kit: type[Kit]) -> dict[str, str]:
    """Return the clauses that a kit tests: name of the clause -> name of the test."""
    return {
        test.__dict__["clause"]: name
        for name in dir(kit)
        if "clause" in getattr(test := getattr(kit, name), "__dict__", {})
    }


def sentences() -> dict[str, str]:
    """Return the sentences of the contract: name of the clause -> what it says."""
    documented = [Repository, Backend, *vars(Repository).values()]
    found = {}
    for item in documented:
        for bullet in re.split(r"^- ", inspect.getdoc(item) or "", flags=re.MULTILINE)[1:]:
            if match := re.match(r"(.+?)\s+\[([a-z-]+)\]", bullet, re.DOTALL):
                found[match[2]] = " ".join(match[1].split())
    return found
