"""What may happen to our own services and servers, besides what the kit's fault injection does."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from msgspec import Struct
from petstore_conformance.faults.histories import given_twice, lost
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.races import Client, Race
from petstore_conformance.faults.rounds import Rounds
from petstore_conformance.faults.services import RunningService
from petstore_conformance.faults.stages import EMPTY, NotRecoveredError, Stage
from petstore_conformance.faults.subjects import FaultOptions, Subject
from petstore_conformance.faults.verdicts import Findings, judge
from petstore_conformance.harness.alarm import send

from petstore.contract import Backend, SettingsError
from tests.faults.torture.clocks import Clock
from tests.faults.torture.runs import Run

SHORT: Final = (0.02, 0.3)
"""Seconds of a stall: less than a server may be silent before it counts as down."""

HOUR: Final = 3600
DAY: Final = int(timedelta(hours=25).total_seconds())  # longer than a key is remembered

WRITES_AHEAD: Final = 10
REPEATED: Final = 8  # how many of the oldest keys are repeated when the clock was a day ahead

MANY_CLIENTS: Final = 48
MANY_CLIENTS_PART: Final = 0.1  # in what part of the rounds there are so many clients

CLOCK_FAULTS: Final = ("set-clock", "jump-a-day")


class Suspendable(Protocol):
    """A server that can be suspended."""

    def freeze(self) -> None:
        """Suspend it."""

    def resume(self) -> None:
        """Let it go on."""


class Topology(Struct, frozen=True, kw_only=True):
    """A backend on its servers, what may happen to them, and what lasts then.

    name -- that of the entry point
    faults -- of the methods of `TortureStage`, those that are possible for its services
    kill, start -- kill a server, and start it again: the fault server-kill
    empty -- removes the store from the server: the fault server-empty
    stalled -- returns servers that may be suspended together: the fault stall-server
    stall_seconds -- the bounds of how long
    cut_off -- cuts a server off from the others, and ends that: the fault cut-off
    masters -- returns who is master: if that changes, only what was acknowledged must last
    lossless -- whether that much lasts if it changes
    timeout_seconds -- how long a call, and the recovery after a fault, may take
    """

    name: str
    backend: Backend
    settings: Any
    faults: Sequence[str] = ("kill-workers", "stall-worker")
    kill: Callable[[], object] | None = None
    start: Callable[[], object] | None = None
    empty: Callable[[], object] | None = None
    stalled: Callable[[Random], Sequence[Suspendable]] | None = None
    stall_seconds: tuple[float, float] = SHORT
    cut_off: Callable[[Random], object] | None = None
    masters: Callable[[], list[str]] = list
    lossless: bool = True
    timeout_seconds: float = 10


def rounds(set_up: Topology, run: Run, directory: Path, proxy: Proxy | None = None) -> Rounds:
    """Return the kit's rounds on a set-up, with the faults of this module.

    directory -- an empty one, for the clock
    proxy -- the one in front of its only server
    """
    clock = Clock(directory)
    subject = Subject(set_up.name, set_up.name, set_up.backend, set_up.settings)
    options = FaultOptions(
        seed=run.seed,
        timeout_seconds=set_up.timeout_seconds,
        server_kill=set_up.kill,
        server_start=set_up.start,
        server_empty=set_up.empty,
    )
    more = [*set_up.faults, *(CLOCK_FAULTS if clock.works else ())]
    servers = {"stall-server": set_up.stalled, "cut-off": set_up.cut_off}
    more += [name for name, act in servers.items() if act is not None]
    stage = partial(TortureStage, set_up=set_up, clock=clock)
    return Rounds(subject, options, proxy, stage=stage, more=more, end=run.end)


def confirmed(race: Race) -> Race:
    """Return a race of which only acknowledged writes count, and what was read at the end.

    Other reads and refusals may have followed from writes that were never confirmed, and are gone.
    """
    history = [a for a in race.history if a.sent >= race.quiet_since or a.may_have_written]
    return replace(race, history=history)


@dataclass(kw_only=True)
class TortureStage(Stage):
    """A service on one of our set-ups."""

    set_up: Topology
    clock: Clock
    _ahead: Iterator[int] = field(default_factory=lambda: count(-1000, -1), init=False)

    def __post_init__(self) -> None:
        """Remember who was master at the beginning."""
        self._masters = self.set_up.masters()

    def start(self) -> RunningService:
        """Start the service with a clock that can be set."""
        with self.clock.used():
            return super().start()

    def clients(self) -> int:
        """Return how many clients are to compete: now and then, many."""
        return MANY_CLIENTS if self.random.random() < MANY_CLIENTS_PART else super().clients()

    def judge(self, *, ended: bool) -> tuple[Findings, Counter[str]]:
        """Judge by what this set-up promises, which is more than the contract, or less."""
        race, set_up = self.race, self.set_up
        replaced = set_up.masters() != self._masters
        if replaced and not set_up.lossless:
            gone = len(lost(*race.final, race.history)) if ended else 0
            found = Findings()
            found.add("wrong error", *race.failed)
            found.add("given out twice", *given_twice(race.history))
            return found, Counter({"lost acknowledged writes": gone})
        found, counts = judge(confirmed(race) if replaced else race, ended=ended)
        broken = race.target.lost - len(race.target.late)
        if broken and not {"kill-service", "kill-worker", "kill-workers", EMPTY} & {*self.happened}:
            text = f"{broken} connections broke, though the service was not killed"
            found.add("otherwise wrong", text)
        return found, counts

    async def kill_workers(self) -> None:
        """Kill all workers, between the writes and the syncs of both; their parent lives."""
        for worker in await self.all_workers():
            send(worker, signal.SIGKILL)

    async def stall_worker(self) -> None:
        """Suspend a worker for a moment; what clients sent it meanwhile is executed later."""
        service = self.race.target.live
        assert service.process is not None
        worker = self.random.choice(service.workers() or [service.process.pid])
        send(worker, signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(*SHORT))
        send(worker, signal.SIGCONT)

    async def stall_server(self) -> None:
        """Suspend servers for a moment."""
        stalled = self.set_up.stalled
        assert stalled is not None

        def stall() -> None:
            servers = stalled(self.random)
            for server in servers:
                server.freeze()
            time.sleep(self.random.uniform(*self.set_up.stall_seconds))
            for server in servers:
                server.resume()

        await self._to_servers(stall)

    async def cut_off(self) -> None:
        """Cut a server off from the others."""
        assert self.set_up.cut_off is not None
        await self._to_servers(partial(self.set_up.cut_off, self.random))

    async def set_clock(self) -> None:
        """Set the clock of the service up to an hour ahead or back."""
        self.clock.set(self.random.randrange(-HOUR, HOUR))

    async def jump_a_day(self) -> None:
        """Write while the clock is 25 hours ahead; keys from before must still be known after.

        The other clients pause: a key that they repeat meanwhile may have expired.
        """
        race, client = self.race, Client(self.race, next(self._ahead))
        if not await self.pause():
            raise NotRecoveredError("the clients do not pause")
        created = [a for a in race.history if a.action == "create" and a.got(201)]
        now = self.clock.seconds
        self.clock.set(now + DAY)
        for _ in range(WRITES_AHEAD):
            await Client(race, next(self._ahead)).write_last()
        self.clock.set(now)
        for attempt in created[:REPEATED]:  # those that expired first
            await client.send(attempt.action, attempt.key, attempt.id_)
        client.close()
        race.going.set()

    async def _to_servers(self, act: Callable[[], object]) -> None:
        """Do something to the servers; if that fails, this is not the fault of the service."""
        try:
            await asyncio.to_thread(act)
        except Exception as error:
            raise SettingsError(f"the servers: {error!r}") from error
