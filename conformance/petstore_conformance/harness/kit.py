"""How a clause is run: in an empty location, with a time limit, in its own event loop."""

import asyncio
import contextlib
import inspect
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import cache, wraps
from random import Random
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar

import pytest

from petstore.contract import Backend, Expected, NewPet, Repository, UnavailableError
from petstore_conformance.harness.alarm import (
    OverdueError,
    alarm,
    is_late,
    timed,
    uninterrupted,
    within,
)
from petstore_conformance.harness.cores import EXCUSED_SECONDS
from petstore_conformance.harness.effort import Counted, begin
from petstore_conformance.harness.served import FolderNotes

CLAUSE_SECONDS: Final = 55  # of a clause: the rest of its minute is left for closing
ANY_STORE: Final = Expected()
INCONCLUSIVE_REASON: Final = "inconclusive"  # too little was tried, or the machine was too busy

AnyEntered = TypeVar("AnyEntered")

LIMIT_SECONDS: Final = 60  # for a clause in total, even if the plugin never lets the loop run


class RaisedOnPurposeError(Exception):
    """Raised by the kit in the block of a backend, and never mistaken for a backend's own error."""


class CancelledOnPurposeError(asyncio.CancelledError):
    """Raised by the kit in the block of a backend, and never mistaken for Ctrl-C."""


@contextlib.contextmanager
def judged(kit: "Kit", clause: str) -> Iterator[None]:
    """Skip the test of a clause if it passes with too few of its values, or was held up.

    It was held up if the block fails only by time, and this process and its children, or the
    machine as a whole, had too little of the cores. Only by time means that something has not
    ended, or that the backend raised `UnavailableError` after a time-out of its own. What it raises
    at once, no machine explains.
    """
    __tracebackhide__ = True
    effort = begin(clause, kit.write_seconds)
    try:
        yield
    except (OverdueError, UnavailableError) as error:
        seconds = getattr(error, "seconds", 0)  # nobody may have noted it
        at_once = isinstance(error, UnavailableError) and seconds < EXCUSED_SECONDS
        if not at_once and (shortage := effort.cores.shortage()):
            pytest.skip(f"{INCONCLUSIVE_REASON}: {error!r}; {shortage}")
        raise
    if too_little := effort.shortage():
        pytest.skip(f"{INCONCLUSIVE_REASON}: {too_little}")


@contextlib.asynccontextmanager
async def reraising(
    manager: contextlib.AbstractAsyncContextManager[AnyEntered],
) -> AsyncIterator[AnyEntered]:
    """Enter a context manager of a backend; raise what the block raises in any case.

    What an `UnavailableError` of entering or leaving took is noted.
    """
    __tracebackhide__ = True
    with timed():
        entered = await manager.__aenter__()
    try:
        yield entered
    except BaseException as error:
        with timed():
            await manager.__aexit__(type(error), error, error.__traceback__)
        raise
    with timed():
        await manager.__aexit__(None, None, None)


class Location:
    """An empty location of a backend, which may be opened several times, also at the same time.

    settings -- those that `Backend.scratch` has yielded
    """

    def __init__(self, backend: Backend, settings: Any) -> None:
        self.backend = backend
        self.settings = settings

    @contextlib.asynccontextmanager
    async def open(self, expected: Expected = ANY_STORE) -> AsyncIterator[Repository]:
        """Open a repository at this location. No failure of the block is suppressed."""
        __tracebackhide__ = True
        async with reraising(self.backend.open(self.settings, expected)) as repository:
            assert isinstance(repository, Repository), "`open` yields no Repository"
            yield Counted(repository)

    @contextlib.asynccontextmanager
    async def open_several(self, count: int, notes: str = "") -> AsyncIterator[list[Repository]]:
        """Open this location so many times at once, or once if it cannot be shared.

        notes -- the folder of the notes of all of them, if they have any
        """
        async with contextlib.AsyncExitStack() as stack:
            count = count if self.backend.shared else 1
            folders = (FolderNotes(notes) if notes else None for _ in range(count))
            each = (Expected(processes=count, notes=folder) for folder in folders)
            yield [await stack.enter_async_context(self.open(expected)) for expected in each]

    @contextlib.asynccontextmanager
    async def new(self) -> AsyncIterator["Location"]:
        """Yield another location, which is made from the settings of this one."""
        async with reraising(self.backend.scratch(self.settings)) as settings:
            yield Location(self.backend, settings)


class Kit:
    """Base class of the clauses. The author of a backend sets both attributes in a subclass.

    backend -- the backend to be tested
    settings -- settings with which it can work; tests run only in scratch locations made from them
    """

    backend: ClassVar[Backend]
    settings: ClassVar[Any]

    remote: ClassVar[bool] = True
    """Whether a service is in between, so that the kit can neither set the clock nor restore."""

    explains: ClassVar[bool] = True
    """Whether a failure says what its clause says; the command does so itself."""

    write_seconds: ClassVar[dict[bool, list[float]]]
    """How long writes of the backend took in the clauses so far; see `Effort`."""

    def longest_name(self, length: int) -> int:
        """Return a length in bytes, cut to that of the longest name that can be stored."""
        return min(length, self.backend.max_name_bytes or length)

    def long_name(self, length: int) -> str:
        """Return a name of this length, or the longest: no part is like another, or compresses."""
        return Random(length).randbytes(length).hex()[: self.longest_name(length)]  # noqa: S311

    def storable(self, news: Iterable[NewPet]) -> list[NewPet]:
        """Return those of the pets whose names can be stored."""
        sizes = ((new, len(new.name.encode())) for new in news)
        return [new for new, size in sizes if self.longest_name(size) == size]

    def __init_subclass__(cls) -> None:
        """Refuse a class that overrides or deletes the test of a clause."""
        super().__init_subclass__()
        cls.write_seconds = {True: [], False: []}
        for name in cls.__dict__:
            if name.startswith("test_") and any(hasattr(base, name) for base in cls.__bases__):
                raise TypeError(f"{cls.__name__}.{name} would replace a clause of the contract")


AnyKit = TypeVar("AnyKit", bound=Kit)

Steps = Callable[[AnyKit, AnyEntered], Awaitable[None]]
"""The steps of a clause: a method of the kit that takes an open repository or a location."""


def clause(name: str) -> Callable[[Steps[AnyKit, Repository]], Callable[[AnyKit], None]]:
    """Turn a coroutine function that takes an open, empty repository into a test of a clause."""

    def decorate(test: Steps[AnyKit, Repository]) -> Callable[[AnyKit], None]:
        async def with_repository(kit: AnyKit, location: Location) -> None:
            __tracebackhide__ = True
            async with location.open() as repository:
                await test(kit, repository)

        return location_clause(name)(wraps(test)(with_repository))

    return decorate


def location_clause(
    name: str, needs: str | None = None
) -> Callable[[Steps[AnyKit, Location]], Callable[[AnyKit], None]]:
    """Turn a coroutine function that takes an empty location into a test of a clause.

    needs -- the capability without which the test is skipped: "shared", "durable", "snapshots"
    """

    def decorate(test: Steps[AnyKit, Location]) -> Callable[[AnyKit], None]:
        def run(self: AnyKit) -> None:
            __tracebackhide__ = True
            if needs is not None and not getattr(self.backend, needs):
                pytest.skip(f"not claimed by the backend: {needs}")
            try:
                with judged(self, name), alarm(LIMIT_SECONDS), asyncio.Runner() as runner:
                    runner.run(in_scratch(self, test))
            except BaseException as error:
                if self.explains and not isinstance(error, pytest.skip.Exception):
                    error.add_note(f"[{name}] {sentences()[name]}")
                    if not is_late(name, error):
                        error.add_note(f"Probably: {inspect.getdoc(test)}")
                error.__traceback__ = _without_runner(error.__traceback__)
                raise

        run.__name__ = test.__name__  # no wraps: pytest would take the argument for a fixture
        run.__doc__, run.__module__ = test.__doc__, test.__module__
        run.__dict__["clause"] = name
        return run

    return decorate


def _without_runner(frames: TracebackType | None) -> TracebackType | None:
    """Return the frames from `in_scratch` on: pytest would show asyncio's `run` at length."""
    while frames and frames.tb_next and frames.tb_frame.f_code is not in_scratch.__code__:
        frames = frames.tb_next
    return frames


async def in_scratch(kit: AnyKit, test: Steps[AnyKit, Location] | None = None) -> None:
    """Run a test in an empty location, for at most `CLAUSE_SECONDS`.

    test -- if there is none, the location is only opened

    If the storage cannot be reached, the test is skipped; with ``PETSTORE_REQUIRE_SERVICES=1``
    `UnavailableError` is raised.
    """
    __tracebackhide__ = True
    async with contextlib.AsyncExitStack() as stack:
        removing = stack.enter_context(contextlib.ExitStack())  # left once the location is removed
        try:
            async with within(CLAUSE_SECONDS, "making and opening a location"):
                scratch = reraising(kit.backend.scratch(kit.settings))
                settings = await stack.enter_async_context(scratch)
                stack.callback(removing.enter_context, uninterrupted())
                async with reraising(kit.backend.open(settings, ANY_STORE)):
                    pass
        except UnavailableError as error:
            if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
                raise
            pytest.skip(f"the storage cannot be reached: {error}")
        if test is not None:
            async with within(CLAUSE_SECONDS):
                await test(kit, Location(kit.backend, settings))


def clauses(kit: type[Kit]) -> dict[str, str]:
    """Return the clauses that a kit tests: name of the clause -> name of its test."""
    return {
        test.__dict__["clause"]: name
        for name in dir(kit)
        if "clause" in getattr(test := getattr(kit, name), "__dict__", {})
    }


@cache
def sentences() -> dict[str, str]:
    """Return the sentences of the contract: name of the clause -> its sentence, in one line.

    A clause is a list item of a docstring, "- sentence [name]", wrapped anywhere.
    """
    found = {}
    for item in (Repository, Backend, *vars(Repository).values()):
        for bullet in re.split(r"^- ", inspect.getdoc(item) or "", flags=re.MULTILINE)[1:]:
            if match := re.match(r"(.+?)\s+\[([a-z-]+)\]", bullet, re.DOTALL):
                found[match[2]] = " ".join(match[1].split())
    return found
