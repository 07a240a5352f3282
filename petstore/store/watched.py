"""The open store of one worker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

from msgspec.structs import replace

from petstore.contract import Expected, Repository, UnavailableError, WrongStoreError
from petstore.store.shared import SharedStore

CHECK_SECONDS: Final = 1
"""How often the service checks whether its store is still the one that it opened."""

_log = logging.getLogger("petstore")

_Open = Callable[[Expected], AbstractAsyncContextManager[Repository]]
_Use = Callable[[Repository], None]


@asynccontextmanager
async def watched(
    open_: _Open, expected: Expected, shared: SharedStore, use: _Use, checked: Callable[[], None]
) -> AsyncIterator[None]:
    """Within the block, a worker has its store open, unless it is lost, and checks it.

    Once any worker finds it lost, all refuse it until a restart.

    open_ -- opens the storage
    expected -- what it must find, without notes
    shared -- what the workers know together
    use -- called with the repository that serves from now on
    checked -- called when the store was opened, or found to be the same

    Raises the errors of `Backend.open`, except if other workers had the store open.
    """
    async with AsyncExitStack() as stack:
        try:
            if not shared.lost:
                opening = open_(replace(expected, notes=shared))
                repository = await stack.enter_async_context(opening)
        except WrongStoreError as error:
            if not shared.read():
                raise
            _lose(shared, str(error))
        if shared.lost:
            use(_refusing(shared.lost))
        else:
            use(repository)
            checked()
            watching = asyncio.create_task(_watch(repository, shared, use, checked))
            stack.push_async_callback(asyncio.wait, (watching,))
            stack.callback(watching.cancel)
        yield


async def _watch(
    repository: Repository, shared: SharedStore, use: _Use, checked: Callable[[], None]
) -> None:
    """Check the store once a second until it is lost, for this worker or for another one."""
    while not shared.lost:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            await repository.check()
            checked()
        except WrongStoreError as error:
            _lose(shared, str(error))
        except UnavailableError:
            pass  # requests get this error, too, and it is logged for them
        except Exception:  # noqa: BLE001 - whatever a backend raises, check again
            _log.exception("the store could not be checked")
    use(_refusing(shared.lost))


def _lose(shared: SharedStore, reason: str) -> None:
    """Let all workers refuse the store; log it once."""
    if not shared.lost:
        shared.lost = reason
        _log.error("%s; nothing is served until the service is restarted", reason)


def _refusing(reason: str) -> Repository:
    """Return what stands for the repository of a lost store: its methods raise the reason."""

    async def refuse(*_: object) -> Any:
        raise WrongStoreError(reason)

    methods = dict.fromkeys(Repository.__abstractmethods__, refuse)
    return cast("Repository", SimpleNamespace(**methods))
