"""A TCP proxy that disturbs connections as networks do.

It runs in its own thread, so that tests may control it from ordinary and from asyncio code.
"""

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self


class Proxy:
    """Forwards connections to a server while its block runs. Set the attributes from any thread.

    tls -- if there is one, its clients connect with TLS
    delay -- seconds by which every chunk of a response is delayed
    cut_after -- cut the connection after so many further bytes of responses; then it is None again
    drop -- drop the chunk of a response that comes as the `drop`-th from now on, over whichever
        connection, and close that one; then it is 0 again. Responses to requests that were sent
        together may come in one chunk
    frozen -- forward nothing in either direction; connections stay open
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.delay = 0.0
        self.cut_after: int | None = None
        self.drop = 0
        self.frozen = False
        self._server = (host, port)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving = set[asyncio.Task[None]]()

    def __enter__(self) -> Self:
        self._thread.start()
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def refuse(self) -> None:
        """Refuse new connections; open ones stay open."""
        self._run(self._refuse())

    def cut(self) -> None:
        """Cut all open connections."""
        self._run(self._cut())

    def heal(self) -> None:
        """End all disturbances: accept connections, on the same port, and forward everything."""
        self.delay, self.cut_after, self.drop, self.frozen = 0.0, None, 0, False
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _refuse(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            await close_server(listener)

    async def _listen(self) -> None:
        if self._listener is None:
            listening = asyncio.start_server(self._accept, self.host, self.port, ssl=self._tls)
            self._listener = await listening
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        """Close everything, also what is only being accepted or connected."""
        await self._refuse()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut()
            for task in others:  # a TLS handshake may never end
                task.cancel()
            await asyncio.wait(others, timeout=0.01)
        await self._cut()
        await _let_handlers_run()  # what was cut is closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # If a task that asyncio makes is cancelled, Python 3.11 logs an error.
        self._writers.add(writer)
        task = self._loop.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        with suppress(OSError):
            responses, requests = await asyncio.open_connection(*self._server)
            writers.insert(0, requests)
            self._writers.add(requests)
            directions = (self._requests(reader, requests), self._responses(responses, writer))
            tasks = [asyncio.ensure_future(direction) for direction in directions]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for each in writers:
            each.close()
        for each in writers:  # until then a cut closes them, too
            with suppress(OSError):
                await each.wait_closed()
            self._writers.discard(each)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            await self._thaw()
            writer.write(chunk)
            await writer.drain()

    async def _responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            await asyncio.sleep(self.delay)
            await self._thaw()
            if self.drop:
                self.drop -= 1
                if not self.drop:
                    return
            if (rest := self.cut_after) is not None:
                self.cut_after = rest - len(chunk) if len(chunk) < rest else None
                chunk = chunk[:rest]
            writer.write(chunk)
            await writer.drain()
            if rest is not None and self.cut_after is None:
                return

    async def _thaw(self) -> None:
        while self.frozen:  # noqa: ASYNC110 - it is set from other threads
            await asyncio.sleep(0.002)


async def close_server(server: asyncio.Server) -> None:
    """Let a server accept nothing more; what it has accepted is being served when this returns.

    `asyncio.Server.close` alone would lose the sockets that the event loop has just accepted.
    """
    for sock in server.sockets:
        asyncio.get_running_loop().remove_reader(sock.fileno())
    await _let_handlers_run()
    server.close()


async def _let_handlers_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
