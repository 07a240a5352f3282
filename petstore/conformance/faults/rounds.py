"""Rounds: an empty place, a service on it, clients, a few strikes, a verdict."""

import asyncio
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec import Struct, field

from petstore.conformance.alarm import alarm
from petstore.conformance.faults import calls, strikes
from petstore.conformance.faults.options import FaultOptions
from petstore.conformance.faults.proxy import Proxy
from petstore.conformance.faults.racers import Client
from petstore.conformance.faults.races import Race, Strike, is_write
from petstore.conformance.faults.strikes import NotRecoveredError, Stage
from petstore.conformance.faults.subjects import Subject
from petstore.conformance.faults.verdicts import Findings, judge
from petstore.contract import SettingsError, UnavailableError

CALLS: Final = "calls"
"""The name of the rounds in which a repository is called in this process, through the proxy."""

BETWEEN: Final = 150
"""How many responses the clients get before each strike, and after the last one."""

RECONNECTING: Final = 0.1
"""The share of its turns before which a client reconnects, perhaps to another worker."""

OFFERED: Final = (8, 1, 2)
"""How many pets the clients of a round compete for, at the beginning; round 1 has one."""

TRIES: Final = 10**6
REPEATS: Final = 4
STRIKES: Final = 3
"""The maximum number of faults in a round."""

_KILLS: Final = ("kill-service", "kill-worker", "server-kill")


class RoundOutcome(Struct):
    """What one round has done and found. The texts of `found` are grouped by their kinds."""

    number: int
    what: str
    counts: Counter[str] = field(default_factory=Counter)
    found: Findings = field(default_factory=dict)


class Rounds:
    """The rounds of a run. The seed and the number of a round determine what it does.

    possible -- the faults that this backend can meet, in a fixed order
    reachable -- whether a place could be made for the last round
    """

    def __init__(self, subject: Subject, options: FaultOptions, proxy: Proxy | None) -> None:
        backend = subject.backend
        self.possible = [
            "kill-service",
            *(["kill-worker"] if backend.shared and Path("/proc/self").exists() else []),
            *((*strikes.PROXY_FAULTS, CALLS) if proxy else ()),
            *(f for f in strikes.SERVER_FAULTS if getattr(options, f.replace("-", "_"))),
        ]
        if unknown := set(options.only) - set(self.possible):
            possible = ", ".join(self.possible)
            raise SettingsError(f"--fault: {min(unknown)} is not possible here, only {possible}")
        self.possible = [name for name in self.possible if name in (options.only or self.possible)]
        self._subject = subject
        self._options = options
        self._proxy = proxy
        self.reachable = True
        self._deck: deque[str] = deque()
        self._shuffle = Random(f"{options.seed}")

    def plans(self) -> Iterator[list[str]]:
        """Yield the faults of each round: all of them once, then all of them again, shuffled."""
        while True:
            plan: list[str] = []
            while len(plan) < STRIKES and CALLS not in plan:
                if not self._deck:
                    self._deck.extend(self._shuffle.sample(self.possible, len(self.possible)))
                if plan and self._deck[0] == CALLS:
                    break
                plan.append(self._deck.popleft())
                if plan[-1] == "kill-service" and not self._subject.backend.durable:
                    break  # everything is gone then
            yield plan

    def run(self, number: int, plan: list[str]) -> RoundOutcome:
        """Run a round."""
        limit = 60 + 3 * self._seconds(plan)
        if plan == [CALLS]:
            limit = 60 + 30 * self._options.timeout_seconds
        random = Random(f"{self._options.seed} {number}")
        outcome = RoundOutcome(number, ", ".join(plan))
        outcome.counts["rounds"] += 1
        run = self._call if plan == [CALLS] else self._race
        try:
            with alarm(limit):  # a plugin may block the event loop of this process
                asyncio.run(run(outcome, random, plan))
        except AssertionError as error:
            outcome.found.setdefault("not recovered", []).append(f"the round did not end: {error}")
        except UnavailableError as error:
            self.reachable = False
            outcome.found.setdefault("not recovered", []).append(f"no place can be made: {error}")
        except SettingsError:
            raise
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            outcome.found.setdefault("wrong error", []).append(f"{error!r}")
        if self._proxy is not None:
            self._proxy.cut()
            self._proxy.heal()
        return outcome

    @asynccontextmanager
    async def _place(self, outcome: RoundOutcome) -> AsyncIterator[Any]:
        """Yield the settings of an empty place, with the proxy in them if there is one."""
        backend, options = self._subject.backend, self._options
        stack = AsyncExitStack()
        settings = await stack.enter_async_context(backend.scratch(self._subject.settings))
        if self._proxy is not None:
            address = options.server or self._subject.address() or ""
            settings = self._subject.redirect(settings, address, f"127.0.0.1:{self._proxy.port}")
        try:
            yield settings
        finally:
            try:
                await stack.aclose()
            except UnavailableError:  # the run may have ended while the server was down
                outcome.counts["places not removed"] += 1

    async def _call(self, outcome: RoundOutcome, random: Random, _: list[str]) -> None:
        assert self._proxy is not None
        backend = self._subject.backend
        async with self._place(outcome) as settings:
            caller = calls.Caller(self._options, backend, settings, self._proxy, random)
            try:
                await caller.run()
            except (NotRecoveredError, UnavailableError) as error:
                caller.found["not recovered"].append(f"{error}")
            except Exception as error:  # noqa: BLE001 - a driver may raise anything
                caller.found["wrong error"].append(f"{error!r}")
            outcome.counts += caller.counts
            outcome.found = caller.found

    async def _race(self, outcome: RoundOutcome, random: Random, plan: list[str]) -> None:
        async with self._place(outcome) as settings:
            with tempfile.TemporaryDirectory() as directory:
                texts = self._subject.texts(settings) | {"backend": self._subject.choice}
                stage = Stage(self._options, texts, Path(directory), random, self._proxy)
                stage.durable = self._subject.backend.durable
                two = self._subject.backend.shared and random.random() < 0.5
                stage.workers = 2 if two or "kill-worker" in plan else 1
                try:
                    await self._on(stage, outcome, plan)
                finally:
                    stage.close()

    async def _on(self, stage: Stage, outcome: RoundOutcome, plan: list[str]) -> None:
        random, options = stage.random, self._options
        try:
            service = await asyncio.to_thread(stage.start)
        except NotRecoveredError as error:
            outcome.found = {"not recovered": [f"{error}"]}
            return
        race = stage.race = Race(
            service,
            TRIES,
            seed=f"{options.seed} {outcome.number}",
            floor=BETWEEN,
            abandoned=random.choice((0, 0.02, 0.1)),
            repeated=REPEATS,
            limit_seconds=60 + self._seconds(plan),
        )
        race.reconnecting = RECONNECTING
        race.offered = OFFERED[outcome.number % len(OFFERED)]
        race.target.limit_seconds = options.timeout_seconds
        broken: list[str] = []
        refused: list[BaseException] = []
        try:
            async with asyncio.timeout(60 + 2 * self._seconds(plan)):
                await race.play(
                    Client.wander,
                    random.randrange(4, 12),
                    random.uniform(0.02, 0.2),
                    [self._counted(outcome, stage, name) for name in plan],
                )
        except* SettingsError as group:
            refused = _leaves(group)
        except* Exception as group:  # noqa: BLE001 - whatever it is, the round did not end
            broken = [_described(error) for error in _leaves(group)]
        if refused:  # a command of the author's
            raise refused[0]
        found, undecided = judge(race, ended=not broken and not race.gone)
        if broken:
            found["not recovered"] = broken
        if race.failed:
            found["wrong error"].insert(0, f"in the log of the service:\n{stage.error()}")
        outcome.found = found
        outcome.counts += Counter(
            {
                "requests": len(race.history),
                "acknowledged": sum(is_write(a) and a.response is not None for a in race.history),
                "unknown": race.unknown,
                "searches given up": undecided,
            }
        )

    def _seconds(self, plan: list[str]) -> float:
        """Return how long these strikes may take."""
        commands = 2 * strikes.COMMAND_SECONDS * sum(name in strikes.SERVER_FAULTS for name in plan)
        return commands + len(plan) * (20 + 2 * self._options.timeout_seconds)

    def _counted(self, outcome: RoundOutcome, stage: Stage, name: str) -> Strike:
        async def strike() -> None:
            outcome.counts["kills"] += name in _KILLS
            outcome.counts["other faults"] += name not in _KILLS
            await stage.strike(name)()

        return strike


def _leaves(group: BaseException) -> list[BaseException]:
    if isinstance(group, BaseExceptionGroup):
        return [leaf for error in group.exceptions for leaf in _leaves(error)]
    return [group]


def _described(error: BaseException) -> str:
    if isinstance(error, NotRecoveredError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "the clients did not finish in time"
    return f"{error!r}"
