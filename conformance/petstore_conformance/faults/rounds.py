"""Rounds: an empty location, a service on it, clients, a few faults, a verdict."""

import asyncio
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

from petstore.contract import Expected, SettingsError, UnavailableError
from petstore_conformance.faults import stages
from petstore_conformance.faults.lost_replies import Caller
from petstore_conformance.faults.options import FaultOptions
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.racers import Fault, play
from petstore_conformance.faults.races import Race, is_write
from petstore_conformance.faults.services import SERVING_SECONDS
from petstore_conformance.faults.stages import (
    NeverServedError,
    NotRecoveredError,
    Stage,
    StillServedError,
)
from petstore_conformance.faults.subjects import Subject
from petstore_conformance.faults.verdicts import BY_TIME, RoundOutcome
from petstore_conformance.faults.wire import Endpoint
from petstore_conformance.harness.alarm import OverdueError, alarm
from petstore_conformance.harness.cores import Cores

CALLS: Final = "calls"
"""The name of the rounds in which a repository is called in this process, through the proxy."""

RECONNECTING: Final = 0.1
"""The share of its actions before which a client reconnects, perhaps to another worker."""

ABANDONED: Final = (0, 0.02, 0.1)
"""The share of writes whose response a client does not read: of a round one of these."""

OFFERED: Final = (8, 1, 2)
"""How many pets the clients of a round compete for, at the beginning; round 1 has one."""

FAULTS_IN_A_ROUND: Final = 3
"""The maximum number of faults in a round."""


class Rounds:
    """The rounds of a run. The seed and the number of a round determine what it does.

    stage -- makes the stages, whose methods are the faults
    more -- the names of faults that only these stages have
    file -- the setting that names the file of a store, if one does
    end -- when a round that still runs is cut short, and not judged; on the monotonic clock
    possible -- the faults that this backend can meet, in a fixed order
    """

    def __init__(  # noqa: PLR0913 - each of the others has a default
        self,
        subject: Subject,
        options: FaultOptions,
        proxy: Proxy | None,
        *,
        stage: Callable[..., Stage] = Stage,
        more: Sequence[str] = (),
        file: str = "",
        end: float = inf,
    ) -> None:
        backend = subject.backend
        self.possible = [
            "kill-service",
            *(["kill-worker"] if backend.shared and Path("/proc/self").exists() else []),
            *((*stages.PROXY_FAULTS, CALLS) if proxy else ()),
            *(
                name
                for name in stages.SERVER_FAULTS
                if getattr(options, name.replace("-", "_")) or (name == stages.RESTORE and file)
            ),
            *more,
        ]
        if unknown := set(options.only) - set(self.possible):
            possible = ", ".join(self.possible)
            raise SettingsError(f"--fault: {min(unknown)} is not possible here, only {possible}")
        self.possible = [name for name in self.possible if name in (options.only or self.possible)]
        self._subject = subject
        self._options = options
        self._proxy = proxy
        self._make_stage = stage
        self._file = file
        self._end = end
        self._reachable = True
        self._shuffled: deque[str] = deque()
        self._shuffle = Random(f"{options.seed}")

    def __iter__(self) -> Iterator[RoundOutcome]:
        """Run rounds, until no location can be made for one."""
        for number, plan in enumerate(self.plans(), start=1):
            yield self.run(number, plan)
            if not self._reachable:
                break

    def plans(self) -> Iterator[list[str]]:
        """Yield the faults of each round: all of them once, then all of them again, shuffled."""
        while True:
            plan: list[str] = []
            while len(plan) < FAULTS_IN_A_ROUND and CALLS not in plan:
                if not self._shuffled:
                    self._shuffled.extend(self._shuffle.sample(self.possible, len(self.possible)))
                if plan and self._shuffled[0] == CALLS:
                    break
                plan.append(self._shuffled.popleft())
                kept = self._subject.backend.durable
                if plan[-1] in stages.LAST or (plan[-1] == "kill-service" and not kept):
                    break  # everything is gone then
            yield plan

    def run(self, number: int, plan: list[str]) -> RoundOutcome:
        """Run the faults of a plan on a new service at a new location; return what was found."""
        left = self._end - monotonic()
        limit = 60 + 3 * self._seconds(plan)
        random = Random(f"{self._options.seed} {number}")
        outcome = RoundOutcome(", ".join(plan))
        self._cores = Cores()
        try:
            with alarm(max(0.1, min(limit, left))):  # a plugin may block the event loop
                asyncio.run(
                    self._call(outcome, random)
                    if plan == [CALLS]
                    else self._race(outcome, random, number, plan)
                )
        except OverdueError as error:
            outcome.found.add("not recovered", f"the round did not end: {error}")
        except NeverServedError as error:  # before any fault, this says nothing about the backend
            outcome.slow.append(f"{error}; it never served within {SERVING_SECONDS} s")
        except (NotRecoveredError, UnavailableError) as error:
            outcome.found.add("not recovered", f"{error}")
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            outcome.found.add("wrong error", f"{error!r}")
        if self._proxy is not None:
            self._proxy.cut()
            self._proxy.heal()
        if left < limit and monotonic() > self._end:
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
        backend = self._subject.backend
        try:
            settings = await stack.enter_async_context(backend.scratch(self._subject.settings))
        except UnavailableError as error:
            self._reachable = False
            raise NotRecoveredError(f"no location can be made: {error}") from error
        if self._proxy is not None:
            address = self._options.server or self._subject.address() or ""
            settings = self._subject.redirect(settings, address, f"127.0.0.1:{self._proxy.port}")
        try:
            yield settings
        finally:
            try:
                await stack.aclose()
            except UnavailableError:  # the run may have ended while the server was down
                outcome.counts["locations not removed"] += 1

    async def _call(self, outcome: RoundOutcome, random: Random) -> None:
        assert self._proxy is not None
        async with self._location(outcome) as settings:
            opened = partial(self._subject.backend.open, settings, Expected())
            await Caller(self._options, opened, self._proxy, random, outcome).run()

    async def _race(
        self, outcome: RoundOutcome, random: Random, number: int, plan: list[str]
    ) -> None:
        backend = self._subject.backend
        several = random.random() < 0.5 or any(
            "worker" in name or name in stages.LAST for name in plan
        )
        async with self._location(outcome) as settings:
            with tempfile.TemporaryDirectory() as directory:
                stage = self._make_stage(
                    options=self._options,
                    texts=self._subject.texts(settings) | {"backend": self._subject.choice},
                    directory=Path(directory),
                    random=random,
                    proxy=self._proxy,
                    file=self._file,
                    durable=backend.durable,
                    workers=2 if several and backend.shared else 1,
                )
                try:
                    await self._on(stage, outcome, number, plan)
                finally:
                    self._cores.note()
                    stage.close()

    async def _on(self, stage: Stage, outcome: RoundOutcome, number: int, plan: list[str]) -> None:
        random, options = stage.random, self._options
        service = await asyncio.to_thread(stage.start)
        race = stage.race = Race(
            Endpoint(service, options.timeout_seconds),
            seed=f"{options.seed} {number}",
            offered=OFFERED[number % len(OFFERED)],
            abandoned=random.choice(ABANDONED),
            reconnecting=RECONNECTING,
        )
        broken: list[BaseException] = []
        try:
            async with asyncio.timeout(60 + 2 * self._seconds(plan)):
                await play(
                    race,
                    stage.clients(),
                    random.uniform(0.02, 0.2),
                    [self._counted(outcome, stage, name) for name in plan],
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, the round did not end
            broken = _leaves(error)
        for cause in broken:
            if isinstance(cause, SettingsError):  # a command of the author's
                raise cause
        outcome.found, counts = stage.judge(ended=not broken and not race.gone)
        for cause in broken:
            outcome.found.add(*_described(cause))
        if race.failed:
            log = f"in the log of the service:\n{stage.error()}"
            outcome.found["wrong error"].insert(0, log)
        acknowledged = sum(is_write(a) and a.response is not None for a in race.history)
        outcome.counts += counts
        outcome.counts.update(
            {"requests": len(race.history), "acknowledged": acknowledged, "unknown": race.unknown}
        )

    def _seconds(self, plan: list[str]) -> float:
        """Return how long these faults may take."""
        if plan == [CALLS]:
            return 10 * self._options.timeout_seconds
        commands = 2 * stages.COMMAND_SECONDS * sum(name in stages.SERVER_FAULTS for name in plan)
        return commands + len(plan) * (20 + 2 * self._options.timeout_seconds)

    def _counted(self, outcome: RoundOutcome, stage: Stage, name: str) -> Fault:
        async def fault() -> None:
            outcome.counts["kills" if "kill" in name else "other faults"] += 1
            await stage.fault(name)()

        return fault


def _leaves(group: BaseException) -> list[BaseException]:
    if isinstance(group, BaseExceptionGroup):
        return [leaf for error in group.exceptions for leaf in _leaves(error)]
    return [group]


def _described(error: BaseException) -> tuple[str, str]:
    """Return the kind of what has ended a race too early, and a text."""
    match error:
        case NotRecoveredError():
            return "not recovered", str(error)
        case StillServedError():
            return "emptied", str(error)
        case TimeoutError():
            return "not recovered", "the clients did not finish in time"
    return "otherwise wrong", f"{error!r}"
