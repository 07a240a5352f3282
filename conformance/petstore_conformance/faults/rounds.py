"""Rounds: an empty location, a service on it, clients, a few faults, a verdict."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

from petstore.contract import Expected, SettingsError, UnavailableError
from petstore_conformance.faults import stages
from petstore_conformance.faults.lost_replies import Caller
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.races import Race, play
from petstore_conformance.faults.services import SERVING_SECONDS, Endpoint
from petstore_conformance.faults.stages import Stage
from petstore_conformance.faults.subjects import FaultOptions, Subject
from petstore_conformance.faults.verdicts import BY_TIME, RoundOutcome
from petstore_conformance.harness.alarm import OverdueError, alarm, within
from petstore_conformance.harness.cores import Cores

ABANDONED: Final = (0, 0.02, 0.1)  # the share of writes whose response a client does not read
OFFERED: Final = (8, 1, 2)  # how many pets clients compete for at the beginning; in round 1 for one
FAULTS_IN_A_ROUND: Final = 3  # at most
CALLS: Final = "calls"  # the rounds in which a repository of this process calls through the proxy


@dataclass
class Rounds:
    """The rounds of a run. The seed and the number of a round determine what it does.

    stage -- makes the stages, whose methods are the faults
    more -- the names of faults that only these stages have
    end -- when a round that still runs is cut short, and not judged; on the monotonic clock
    possible -- the faults that this backend can meet, in a fixed order
    """

    subject: Subject
    options: FaultOptions
    proxy: Proxy | None
    stage: Callable[..., Stage] = Stage
    more: Sequence[str] = ()
    end: float = inf

    def __post_init__(self) -> None:
        """Find out what is possible. Raises `SettingsError` if something else was chosen."""
        self._reachable = True
        options, only, file = self.options, self.options.only, self.subject.file
        possible = ["kill-service"]
        if self.subject.backend.shared and Path("/proc/self").exists():
            possible.append("kill-worker")
        if self.proxy:
            possible += [*stages.PROXY_FAULTS, CALLS]
        for name in stages.SERVER_FAULTS:
            if getattr(options, name.replace("-", "_")) or (name == stages.RESTORE and file):
                possible.append(name)
        possible += self.more
        if unknown := set(only) - set(possible):
            known = ", ".join(possible)
            raise SettingsError(f"--fault: {min(unknown)} is not possible here, only {known}")
        self.possible = [name for name in possible if name in (only or possible)]

    def __iter__(self) -> Iterator[RoundOutcome]:
        """Run rounds, until no location can be made for one."""
        for number, plan in enumerate(self.plans(), start=1):
            yield self.run(number, plan)
            if not self._reachable:
                break

    def plans(self) -> Iterator[list[str]]:
        """Yield up to three faults for each round: all of them once, then all again, shuffled."""
        ending = {CALLS, *stages.LAST}
        if not self.subject.backend.durable:
            ending.add("kill-service")  # everything is gone then
        random, plan = Random(f"{self.options.seed}"), list[str]()
        while True:
            for name in random.sample(self.possible, len(self.possible)):
                if plan and name == CALLS:  # a round of its own
                    yield plan
                    plan = []
                plan.append(name)
                if len(plan) == FAULTS_IN_A_ROUND or name in ending:
                    yield plan
                    plan = []

    def run(self, number: int, plan: list[str]) -> RoundOutcome:
        """Run the faults of a plan on a new service at a new location; return what was found."""
        left = self.end - monotonic()
        limit = 60 + 3 * self._seconds(plan)
        outcome = RoundOutcome(", ".join(plan))
        self._cores = Cores()
        try:
            with alarm(max(0.1, min(limit, left)), "the round"):  # a plugin may block the loop
                asyncio.run(self._round(outcome, number, plan))
        except stages.NeverServedError as error:  # before any fault, this proves nothing
            outcome.slow.append(f"{error}; it never served within {SERVING_SECONDS} s")
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            outcome.found.add(*_described(error, "wrong error"))
        if self.proxy is not None:
            self.proxy.cut()
            self.proxy.heal()
        if left < limit and monotonic() > self.end:
            outcome.found.clear()
            outcome.slow = ["the round was cut short at the end of the run"]
        elif shortage := self._cores.shortage():
            for kind in BY_TIME:
                found = outcome.found.pop(kind, [])
                outcome.slow += [f"{kind}: {text}; {shortage}" for text in found]
        return outcome

    @asynccontextmanager
    async def _location(self, outcome: RoundOutcome) -> AsyncIterator[Any]:
        """Yield the settings of an empty location, with the proxy in them if there is one."""
        stack = AsyncExitStack()
        backend = self.subject.backend
        try:
            settings = await stack.enter_async_context(backend.scratch(self.subject.settings))
        except UnavailableError as error:
            self._reachable = False
            raise stages.NotRecoveredError(f"no location can be made: {error}") from error
        try:
            if self.proxy is not None:
                address = self.options.server or self.subject.address() or ""
                settings = self.subject.redirect(settings, address, f"127.0.0.1:{self.proxy.port}")
            yield settings
        finally:
            try:
                await stack.aclose()
            except UnavailableError:  # the run may have ended while the server was down
                outcome.counts["locations not removed"] += 1

    async def _round(self, outcome: RoundOutcome, number: int, plan: list[str]) -> None:
        random, shared = Random(f"{self.options.seed} {number}"), self.subject.backend.shared
        async with self._location(outcome) as settings:
            opened = partial(self.subject.backend.open, settings, Expected())
            if plan == [CALLS]:
                assert self.proxy is not None
                await Caller(self.options, opened, self.proxy, random, outcome).run()
                return
            several = random.random() < 0.5
            several |= any("worker" in name or name in stages.LAST for name in plan)
            with tempfile.TemporaryDirectory() as directory:
                stage = self.stage(
                    subject=self.subject,
                    options=self.options,
                    another=opened if number % 2 else None,
                    texts=self.subject.texts(settings) | {"backend": self.subject.choice},
                    directory=Path(directory),
                    random=random,
                    proxy=self.proxy,
                    workers=2 if several and shared else 1,
                )
                try:
                    await self._race(stage, outcome, number, plan)
                finally:
                    stage.close()

    async def _race(
        self, stage: Stage, outcome: RoundOutcome, number: int, plan: list[str]
    ) -> None:
        random, options = stage.random, self.options
        service = await asyncio.to_thread(stage.start)
        race = stage.race = Race(
            Endpoint(service, options.timeout_seconds),
            seed=f"{options.seed} {number}",
            offered=OFFERED[number % len(OFFERED)],
            abandoned=random.choice(ABANDONED),
        )
        broken: Sequence[Exception] = ()
        try:
            async with within(60 + 2 * self._seconds(plan), "the race"):
                faults = [partial(stage.meet, name) for name in plan]
                await play(race, stage.clients(), random.uniform(0.02, 0.2), faults)
        except Exception as error:  # noqa: BLE001 - whatever it is, the round did not end
            broken = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        for cause in broken:
            if isinstance(cause, SettingsError):  # a command of the author's
                raise cause
        outcome.found, counts = stage.judge(ended=not broken and not race.gone)
        for cause in broken:
            outcome.found.add(*_described(cause, "otherwise wrong"))
        if race.failed:
            outcome.found["wrong error"].insert(0, f"in the log of the service:\n{stage.error()}")
        outcome.counts.update(
            counts, requests=len(race.history), unknown=len(race.history) - race.responses
        )
        outcome.counts["acknowledged"] += sum(a.effect is not None for a in race.history)
        for name in stage.happened:
            outcome.counts["kills" if "kill" in name else "other faults"] += 1

    def _seconds(self, plan: list[str]) -> float:
        """Return how long these faults may take."""
        if plan == [CALLS]:
            return 10 * self.options.timeout_seconds
        commands = 2 * stages.COMMAND_SECONDS * sum(name in stages.SERVER_FAULTS for name in plan)
        return commands + len(plan) * (20 + 2 * self.options.timeout_seconds)


def _described(error: Exception, otherwise: str) -> tuple[str, str]:
    """Return the kind of what has ended a round too early, and a text."""
    match error:
        case stages.NotRecoveredError() | UnavailableError() | OverdueError():
            return "not recovered", str(error)
        case stages.StillServedError():
            return "emptied", str(error)
    return otherwise, repr(error)
