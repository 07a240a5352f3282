"""The start of ``petstore serve``: open the storage, then the ports, then log the start line."""

import asyncio
import logging
import os
import socket
from contextlib import ExitStack, suppress
from functools import partial
from platform import python_version
from time import perf_counter
from typing import Final

from msgspec.structs import replace

from petstore import __version__
from petstore.config.errors import ConfigurationError
from petstore.config.loading import Configuration
from petstore.contract import Access, Expected, PetQuery
from petstore.http.routes import API_PREFIX
from petstore.observability.output import standard_error
from petstore.server import sockets
from petstore.server.process import Server, thread_errors

_BANNER: Final = """
petstore in development mode; press Ctrl-C to stop. {kept}

  service    {api}
  reference  {base}/docs
  API key    {key}

Add a pet, in another terminal:

  export KEY={key}
  curl -i{via} {api}/pets -w '\\n' -H "Authorization: Bearer $KEY" \\
    -H 'Content-Type: application/json' \\
    -d '{{"name": "Rex", "categoryId": 7, "status": "available"}}'
"""

NOTIFY_SECONDS: Final = 1
"""How long a manager that reads nothing may hold up the start."""

_log = logging.getLogger("petstore")


def serve(configuration: Configuration) -> None:
    """Serve until a signal.

    Raises `ConfigurationError` and the errors of the storage contract.
    """
    settings = configuration.settings
    with thread_errors():
        store, _ = open_once(configuration)
    if configuration.plugin.backend.durable:  # from here on, no worker creates a store
        settings = replace(settings, store=store)
        configuration = replace(configuration, settings=settings)
    with ExitStack() as stack:
        stack.enter_context(thread_errors())
        sock = stack.enter_context(sockets.bind(settings.listen))
        standard_error.own_terminal()
        stack.enter_context(standard_error.nonblocking())
        metrics, workers = "", dict[str, int]()
        if settings.metrics_listen is not None:
            from petstore.server.metrics_port import serve_metrics

            build = {"version": __version__, "python": python_version()}
            build["backend"] = configuration.plugin.name
            listen = settings.metrics_listen
            served = serve_metrics(listen, build, workers, settings.workers)
            metrics = stack.enter_context(served)

        ready = partial(_announce, configuration, sock, metrics)
        if settings.workers == 1:
            from petstore.http.app import create_app

            app = create_app(configuration)
            reload = None if configuration.dev_key else configuration.keys.reload_soon
            Server(app, settings, ready, reload).run([sock])
        else:
            from petstore.server.workers import Supervisor

            Supervisor(configuration, sock, workers).run(ready)


def open_once(configuration: Configuration, *, changes: bool = True) -> tuple[str, float]:
    """Open the storage, read from it and close it; return its identity, and the read's seconds.

    changes -- whether the store may be created or upgraded; never if it is served read-only

    Raises `ConfigurationError` and the errors of `Backend.open`.
    """
    settings, backend = configuration.settings, configuration.plugin.backend
    if settings.store is not None and not backend.durable:
        raise ConfigurationError(
            f"PETSTORE_STORE is set, but {configuration.plugin.title} keeps no store: unset it"
        )
    access = Access.CREATE if changes else Access.WRITE
    if settings.read_only:
        access = Access.READ
    expected = Expected(settings.store, access, settings.workers)

    async def ping() -> tuple[str, float]:
        async with backend.open(configuration.storage, expected) as repository:
            begin = perf_counter()
            await repository.list_pets(PetQuery(0, 1))
            return repository.store, perf_counter() - begin

    return asyncio.run(ping())


def notify_manager() -> None:
    """Tell the manager that NOTIFY_SOCKET names, if any, that the service is ready (sd_notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract name
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(NOTIFY_SECONDS)
        manager.sendto(b"READY=1", address)


def _announce(configuration: Configuration, sock: socket.socket, metrics: str) -> None:
    notify_manager()
    base = sockets.display_address(sock)
    local = sock.family == socket.AF_UNIX
    settings, plugin = configuration.settings, configuration.plugin
    parts = [
        f"serving on {base}{'' if local else API_PREFIX} with {plugin.title}",
        f"workers: {settings.workers}",
        f"keys: {len(configuration.keys)}",
    ]
    if settings.rate_limit is not None:
        parts.append(f"rate limit: {settings.rate_limit} per client")
    if settings.read_only:
        parts.append("read-only")
    if metrics:
        parts.append(f"metrics on {metrics}")
    _log.info("%s", ", ".join(parts))
    if configuration.dev_key:
        durable = plugin.backend.durable
        kept = f"Data is kept in {plugin.name}." if durable else "All data is then lost."
        via = f" --unix-socket {sock.getsockname()}" if local else ""
        base = "http://localhost" if local else base
        banner = _BANNER.format(
            base=base, api=base + API_PREFIX, via=via, key=configuration.dev_key, kept=kept
        )
        with suppress(OSError):  # nobody can read it, and the service serves nevertheless
            os.write(1, banner.encode())
