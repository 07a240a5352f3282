"""The start of ``petstore serve``: open the storage, then the ports, then log the start line."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Final

from petstore.config.loading import Configuration
from petstore.config.settings import Settings
from petstore.http.limits import RateLimit
from petstore.observability.output import standard_error
from petstore.server import sockets
from petstore.server.process import make_server

_BANNER: Final = """
petstore for trying out; press Ctrl-C to stop. {kept}

  service    {base}/v1
  reference  {base}/docs
  API key    {key}

Add a pet:

  curl -i{via} {base}/v1/pets -H 'Authorization: Bearer {key}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"name": "Rex", "categoryId": 7, "status": "available"}}'
"""

_log = logging.getLogger("petstore")


def serve(
    configuration: Configuration, environ: Mapping[str, str], flags: Mapping[str, str | None]
) -> None:
    """Serve until a signal.

    environ, flags -- what the configuration was read from; workers read theirs from it again

    Raises `ConfigurationError` and the errors of the storage contract.
    """
    settings = configuration.settings
    open_once(configuration)
    with ExitStack() as stack:
        sock = stack.enter_context(sockets.bind(settings.listen))
        stack.enter_context(standard_error.nonblocking())
        metrics = ""
        if settings.metrics_listen:
            from petstore.observability.metrics_server import serve_metrics

            metrics = stack.enter_context(serve_metrics(settings.metrics_listen))

        def ready() -> None:
            _announce(configuration, sock, metrics)

        if settings.workers == 1:
            from petstore.http.app import create_app

            app = create_app(
                settings, configuration.plugin, configuration.storage, configuration.keys
            )
            reload = None if configuration.dev_key else configuration.keys.reload_soon
            make_server(app, settings, ready, reload).run([sock])
        else:
            from petstore.server.workers import Supervisor

            more = {"PETSTORE_API_KEYS": key} if (key := configuration.dev_key) else {}
            flags = {
                **flags,
                "PETSTORE_BACKEND": settings.backend,
                "PETSTORE_LOG": settings.log,
            }
            Supervisor({**environ, **more}, flags, sock, settings, reloads=not more).run(ready)


def open_once(configuration: Configuration) -> float:
    """Open the storage, read from it and close it again. Return the seconds of the read."""

    async def ping() -> float:
        async with configuration.plugin.backend.open(configuration.storage) as repository:
            begin = perf_counter()
            await repository.list_pets(0, 1, None)
            return perf_counter() - begin

    return asyncio.run(ping())


def _announce(configuration: Configuration, sock: socket.socket, metrics: str) -> None:
    base = sockets.display_address(sock)
    local = sock.family == socket.AF_UNIX
    settings, plugin = configuration.settings, configuration.plugin
    parts = [
        f"serving on {base}{'' if local else '/v1'} with {plugin.title}",
        f"workers: {settings.workers}",
        f"keys: {len(configuration.keys)}",
    ]
    if settings.rate_limit:
        parts.append(f"rate limit: {_total(settings)}")
    if metrics:
        parts.append(f"metrics on {metrics}")
    _log.info("%s", ", ".join(parts))
    if configuration.dev_key:
        durable = plugin.backend.durable
        kept = f"Data is kept in {plugin.name}." if durable else "All data is lost then."
        via = f" --unix-socket {sock.getsockname()}" if local else ""
        base = "http://localhost" if local else base
        print(_BANNER.format(base=base, via=via, key=configuration.dev_key, kept=kept), flush=True)


def _total(settings: Settings) -> str:
    """Return the rate limit of a client whose requests reach all workers."""
    limit = settings.rate_limit
    each = f"{limit} per client"
    if settings.workers == 1:
        return each
    quota = RateLimit.parse(limit).quota * settings.workers
    return f"{each} and worker, {quota}{limit[limit.index('/') :]} in total"
