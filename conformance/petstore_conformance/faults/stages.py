"""The faults: disturbances of the service and its server while clients use it."""

import asyncio
import itertools
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial, partialmethod
from pathlib import Path
from random import Random
from typing import Final

from petstore.contract import Repository, SettingsError
from petstore_conformance.faults import copies, services
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.races import NO_RESPONSE, Client, Race, served
from petstore_conformance.faults.subjects import FaultOptions, ServerCommand, Subject
from petstore_conformance.faults.verdicts import Findings, judge
from petstore_conformance.harness.alarm import send

PROXY_FAULTS: Final = ("delay", "stall", "cut", "drop", "disconnect", "refuse")
EMPTY: Final = "server-empty"
RESTORE: Final = "server-restore"
LAST: Final = (EMPTY, RESTORE)  # the faults after which nothing may be served
SERVER_FAULTS: Final = ("server-kill", "server-stop", *LAST)
COMMAND_SECONDS: Final = 120  # how long a shell command of the author's may take
_CHECK_SECONDS: Final = 2  # a service checks its store once a second


class NotRecoveredError(Exception):
    """No request got a response soon enough after a fault had ended."""


class StillServedError(Exception):
    """A request got another response than 503, though its store was emptied or an older copy."""


class NeverServedError(NotRecoveredError):
    """The service was started and has not ended, but has never served."""


@dataclass(kw_only=True)
class Stage:
    """A service on one location, and everything that disturbs it.

    another -- opens another store in the place of one that is gone; None: nothing is put there
    texts -- the settings of the location, with the proxy in them if there is one
    directory -- an empty one, for the log and for a copy of the store
    workers -- how many serve; with 1, the process serves itself
    race -- the clients; set before the first fault
    happened -- the faults so far
    """

    subject: Subject
    options: FaultOptions
    another: Callable[[], AbstractAsyncContextManager[Repository]] | None
    texts: dict[str, str]
    directory: Path
    random: Random
    proxy: Proxy | None
    workers: int
    race: Race = field(init=False)
    service: services.RunningService | None = field(default=None, init=False)
    happened: list[str] = field(default_factory=list, init=False)
    _kills: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def front(self) -> Proxy:
        """The proxy, without which no fault of it is possible."""
        assert self.proxy is not None
        return self.proxy

    def start(self) -> services.RunningService:
        """Start the service, again and again until it serves or has had its time.

        Raises `NotRecoveredError`, also if the round has been interrupted meanwhile.
        """
        settings = {
            "api_keys": services.SERVICE_KEY,
            "listen": "127.0.0.1:0",
            "log": "text",
            "drain_seconds": "0",
            "workers": str(self.workers),
            **self.texts,
        }
        end = time.monotonic() + self.options.timeout_seconds
        while True:
            try:
                with self._lock:
                    if self._closed:
                        raise NotRecoveredError("the round was interrupted")
                    log, seconds = self.directory / "serve.log", services.SERVING_SECONDS
                    self.service = services.launch(log, settings, seconds)
                    return self.service
            except services.NotServingError as error:
                if time.monotonic() > end:
                    text, ended = error.args
                    said = (text.strip().splitlines() or ["it has logged nothing"])[-1]
                    kind = NotRecoveredError if ended else NeverServedError
                    raise kind(f"the service does not start: {said}") from error

    def stop(self) -> None:
        """Kill the service, if it runs."""
        with self._lock:
            if self.service is not None:
                self.service.kill()
                self.service = None

    def close(self) -> None:
        """Kill the service for good, also one that a thread is just starting."""
        self._closed = True
        self.stop()

    def error(self) -> str:
        """Return the end of the last traceback in the log of the service."""
        log = (self.directory / "serve.log").read_text(errors="replace")
        _, mark, last = log.rpartition("Traceback (most recent")
        lines = itertools.takewhile(lambda line: not line[:2].isdigit(), last.splitlines())
        return "\n".join([*lines][-6:]) if mark else "no traceback"

    def clients(self) -> int:
        """Return how many clients are to compete."""
        return self.random.randrange(4, 12)

    def judge(self, *, ended: bool) -> tuple[Findings, Counter[str]]:
        """Return what `verdicts.judge` says of the race; others may promise more, or less."""
        return judge(self.race, ended=ended)

    async def meet(self, name: str) -> None:
        """Let a fault happen, heal the proxy, and wait until requests get responses again."""
        self.happened.append(name)
        await getattr(self, name.replace("-", "_"))()
        if self.proxy is not None:
            self.proxy.heal()
        if not self.race.gone:
            await self.recover(name)

    async def kill_service(self) -> None:
        """Kill the service with its workers, and start it again if its data is still there."""
        target = self.race.target
        await self._end_with_a_write()
        target.up.clear()
        if not self.subject.backend.durable:
            self.race.gone_at = time.monotonic()
        await asyncio.to_thread(self.stop)
        if not self.race.gone:
            target.live = await asyncio.to_thread(self.start)
            target.up.set()
            self.race.going.set()

    async def kill_worker(self) -> None:
        """Kill one worker, and wait until another one has taken its place."""
        send(self.random.choice(await self.all_workers()), signal.SIGKILL)
        await self.recover("kill-worker")  # the others respond meanwhile
        await self.all_workers()

    async def all_workers(self) -> list[int]:
        """Return the workers, once all of them run."""
        service, end = self.race.target.live, time.monotonic() + self.options.timeout_seconds
        while len(found := service.workers()) < self.workers:
            if time.monotonic() > end:
                raise NotRecoveredError(f"of {self.workers} workers only {len(found)} run")
            await asyncio.sleep(0.01)
        return sorted(found)

    async def delay(self) -> None:
        """Let every response of the server be late for a moment."""
        self.front.delay = self.random.uniform(0.001, 0.1)
        await asyncio.sleep(self.random.uniform(0.1, 0.6))

    async def stall(self) -> None:
        """Forward nothing until all calls must have ended; after the first time, often for less."""
        self.front.frozen = True
        if self.happened.count("stall") > 1 and self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0.02, 0.4))
        else:
            target, seconds = self.race.target, self.options.timeout_seconds + 0.5
            enough = target.unavailable + target.lost + self.race.clients
            await _until(lambda: target.unavailable + target.lost >= enough, seconds)

    async def cut(self) -> None:
        """Cut a connection to the server somewhere within a response."""
        self.front.cut_after = self.random.randrange(2000)
        await _until(lambda: self.front.cut_after is None, 1)  # perhaps none passes

    async def drop(self) -> None:
        """Lose exactly the next response of the server."""
        self.front.drop = 1
        await _until(lambda: not self.front.drop, 1)  # perhaps none passes

    async def disconnect(self) -> None:
        """Cut all connections to the server at once."""
        self.front.cut()

    async def refuse(self) -> None:
        """Cut all connections, and refuse new ones for a while."""
        self.front.refuse()
        self.front.cut()
        await asyncio.sleep(self.random.uniform(0.1, 0.8))

    async def _without_server(self, option: str) -> None:
        """Kill or stop the server as the author says, and start it again."""
        await self._end_with_a_write()
        try:
            await self._command(option)
            self.race.going.set()
            await asyncio.sleep(self.random.uniform(0, 0.6))
        except asyncio.CancelledError:
            await self._command("server_start")  # it was there before
            raise
        await self._command("server_start")

    server_kill = partialmethod(_without_server, "server_kill")
    server_stop = partialmethod(_without_server, "server_stop")

    async def server_empty(self) -> None:
        """Empty the server as the author says; soon nothing may be served, and never again.

        Nor may a worker that replaces another one make a new store. Another store may take its
        place before it is missed.
        """
        self.race.gone_at = time.monotonic()
        await self._command("server_empty")
        if self.another is not None:
            async with self.another():
                self.race.missed_at = time.monotonic() + self.options.timeout_seconds
        writing = self.random.random() < 0.5  # a worker that only reads must notice, too
        await self._until_all_refuse(0, writing=writing)

    async def server_restore(self) -> None:
        """Put an older copy in the place of the store; soon nothing may be served, and never again.

        Clients pause: until a worker has found that, what they write may be lost with the copy.
        """
        await self.pause()
        await self._command("server_save")
        await Client(self.race, -2).write_last()
        await asyncio.sleep(_CHECK_SECONDS)  # what no check has seen need not be missed
        self.race.gone_at = time.monotonic()
        await self._command("server_restore")
        await self._until_all_refuse(_CHECK_SECONDS, writing=False)

    async def _until_all_refuse(self, seconds: float, *, writing: bool) -> None:
        """Wait until every request is refused, and has been for so long; later all must be.

        Raises `StillServedError` if one gets another response after its time.
        """
        limit = self.options.timeout_seconds
        begin = last = time.monotonic()
        while True:
            found = await served(self.race, limit, writing=writing)
            now = time.monotonic()
            if found and now > begin + limit:
                # An id that is assigned again is wrong however busy the machine is.
                await served(self.race, limit, writing=True)
                raise StillServedError(f"{limit:g} s after that: {', '.join(sorted(found))}")
            if not found and now >= last + seconds:
                break
            last = now if found else last
        await self._check_refused("later")
        if self.workers > 1:
            await self._replace_a_worker()

    async def _replace_a_worker(self) -> None:
        """Kill a worker; what replaces it must serve nothing, also once it could."""
        old, live = set(await self.all_workers()), self.race.target.live
        send(self.random.choice(sorted(old)), signal.SIGKILL)
        await _until(lambda: not old.issuperset(live.workers()), services.SERVING_SECONDS)
        end = time.monotonic() + self.options.timeout_seconds
        while time.monotonic() < end:
            await self._check_refused("after one of its workers was killed")

    async def _check_refused(self, when: str) -> None:
        """Check that nothing is served any more; a connection may break."""
        found = await served(self.race, self.options.timeout_seconds, writing=True)
        if found := found - {NO_RESPONSE}:
            raise StillServedError(f"{when}: {', '.join(sorted(found))}")

    async def _end_with_a_write(self) -> None:
        """Every other time: let the clients pause, so that an acknowledged write comes last."""
        self._kills += 1
        if self._kills % 2 and await self.pause():
            await Client(self.race, -2 - self._kills).write_last()

    async def pause(self) -> bool:
        """Let the clients pause; return whether all of them do."""
        self.race.going.clear()
        return await _until(lambda: self.race.busy == 0, self.options.timeout_seconds)

    async def _command(self, option: str) -> None:
        command = getattr(self.options, option)
        if command is None:  # the store is a file
            copying = copies.save if option == "server_save" else copies.restore
            command = partial(copying, Path(self.texts[self.subject.file]), self.directory / "copy")
        running = asyncio.ensure_future(asyncio.to_thread(_execute, option, command, self.texts))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            await running  # the server is not left halfway
            raise

    async def recover(self, fault: str) -> None:
        """Wait for responses to a read and to a write that were sent from now on."""
        since, before = time.monotonic(), len(self.race.history)

        def recovered() -> bool:
            new = (a for a in self.race.history[before:] if a.response and a.sent >= since)
            return {attempt.writes for attempt in new} == {True, False}

        seconds = self.options.timeout_seconds
        if not await _until(recovered, seconds):
            raise NotRecoveredError(f"no responses within {seconds:g} s after the fault {fault}")


def _execute(option: str, command: ServerCommand, texts: dict[str, str]) -> None:
    """Run a command of the author's; raises `SettingsError` if it fails.

    texts -- the settings of the location, which a shell command gets as the service does
    """
    if callable(command):
        try:
            command()
        except Exception as error:
            raise SettingsError(f"{option} has raised {error!r}") from error
        return
    flag = f"--{option.replace('_', '-')}"
    quiet = subprocess.DEVNULL  # a server that it starts keeps its streams open
    try:
        status = subprocess.call(
            ["/bin/sh", "-c", command],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
            env=services.environment(texts),
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{flag} has not ended within {COMMAND_SECONDS} s") from None
    if status:
        raise SettingsError(f"{flag} has ended with the status {status}: {command}")


async def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; return whether it does."""
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:  # noqa: ASYNC110 - a thread may set it
        await asyncio.sleep(0.01)
    return held
