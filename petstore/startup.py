"""What `petstore serve` does: the storage is opened, then the ports, then the service announced."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Final

from petstore import server
from petstore.configuration import Configuration
from petstore.limits import RateLimit
from petstore.settings import Settings, to_url

_BANNER: Final = """
petstore, for trying out, until Ctrl-C. {kept}

  service    {base}/v1
  reference  {base}/docs
  API key    {key}

Add an animal:

  curl -i {base}/v1/pets -H 'Authorization: Bearer {key}' \\
    -H 'Content-Type: application/json' -d '{{"name": "Rex", "categoryId": 7}}'
"""

_log = logging.getLogger("petstore")


def serve(
    configuration: Configuration, environ: Mapping[str, str], flags: Mapping[str, str | None]
) -> None:
    """Serve until a signal.

    environ, flags -- what the configuration was made of, and what workers make theirs of

    Raises `ConfigurationError` and the errors of the storage contract.
    """
    settings = configuration.settings
    open_once(configuration)
    sock = server.bind(settings)
    base = to_url(*sock.getsockname()[:2])
    with ExitStack() as stack:
        metrics = ""
        if settings.metrics_listen:
            from petstore.metrics.serving import served

            metrics = stack.enter_context(served(settings.metrics_listen))

        def ready() -> None:
            _announce(configuration, base, metrics)

        if settings.workers == 1:
            from petstore.app import create_app

            app = create_app(
                settings, configuration.plugin, configuration.storage, configuration.keys
            )
            server.make(app, settings, ready).run([sock])
        else:
            from petstore.workers import Supervisor

            more = {"PETSTORE_API_KEYS": key} if (key := configuration.dev_key) else {}
            flags = {
                **flags,
                "PETSTORE_BACKEND": settings.backend,
                "PETSTORE_LOG": settings.log,
            }
            Supervisor({**environ, **more}, flags, sock, settings).run(ready)


def open_once(configuration: Configuration) -> float:
    """Open the storage, read from it and close it again. Return the seconds of the read."""

    async def ping() -> float:
        async with configuration.plugin.backend.open(configuration.storage) as repository:
            begin = perf_counter()
            await repository.list_pets(0, 1, None)
            return perf_counter() - begin

    return asyncio.run(ping())


def _announce(configuration: Configuration, base: str, metrics: str) -> None:
    settings, plugin = configuration.settings, configuration.plugin
    parts = [
        f"serving on {base}/v1 with {plugin.title}",
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
        kept = f"Animals stay in {plugin.name}." if durable else "Then everything is gone."
        print(_BANNER.format(base=base, key=configuration.dev_key, kept=kept), flush=True)


def _total(settings: Settings) -> str:
    """Return what the rate limit means for a client whom all workers answer."""
    limit = settings.rate_limit
    each = f"{limit} per client"
    if settings.workers == 1:
        return each
    quota = RateLimit.parse(limit).quota * settings.workers
    return f"{each} and worker, {quota}{limit[limit.index('/') :]} in total"
