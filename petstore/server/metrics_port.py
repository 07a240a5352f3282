"""The address that Prometheus scrapes: a server of its own, with the service's connections."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Thread
from typing import Any, Final

import uvicorn

from petstore.config.addresses import Address, cannot_listen, to_url
from petstore.observability.metrics_server import collected
from petstore.server.connection import HttpConnection
from petstore.server.head import HeaderList
from petstore.server.process import SweepingServer
from petstore.server.sockets import bind_port

_SETTING: Final = "PETSTORE_METRICS_LISTEN"

MAX_CONNECTIONS: Final = 32
"""How many connections are open at once; for a further one, an idle one is closed."""


@contextmanager
def serve_metrics(address: Address, build: Mapping[str, str]) -> Iterator[str]:
    """Serve ``/metrics`` on a port, in one thread, until the block is left; yield its URL.

    build -- the labels of ``petstore_build_info``

    Processes started within the block are included. Raises `ConfigurationError` if listening
    fails or the files cannot be created.
    """
    with ExitStack() as stack:
        app = stack.enter_context(collected(build))
        try:
            sock = stack.enter_context(bind_port(address.host, address.port))
            sock.listen()
        except (OSError, UnicodeError) as error:
            raise cannot_listen(address, error, _SETTING) from None
        config = uvicorn.Config(
            app,
            http=partial(_Connection, reject=_reject),  # type: ignore[arg-type] # any callable works
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        server = SweepingServer(config)
        thread = Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        try:
            yield f"{to_url(address.host, sock.getsockname()[1])}/metrics"
        finally:
            server.should_exit = True
            thread.join()


class _Connection(HttpConnection):
    """A connection to the metrics: one of a few."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room by closing the connection that will soon be closed for being idle."""
        super().connection_made(transport)
        connections = self._server.connections
        if len(connections) > MAX_CONNECTIONS:
            idle = [other for other in connections if other.idle_until is not None]
            closed = min(idle, key=lambda other: (other.idle_until, other is self))
            connections.discard(closed)
            closed.transport.abort()


def _reject(message: str, _: HeaderList, __: dict[str, Any] | None) -> tuple[HeaderList, bytes]:
    return [(b"content-type", b"text/plain; charset=utf-8")], f"{message}\n".encode()
