"""The open store of one worker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

from msgspec.structs import replace

from petstore.contract import Expected, Repository, UnavailableError, WrongStoreError
from petstore.store.shared import SharedStore

CHECK_SECONDS: Final = 1
"""How often the service checks whether its store is still the one that it opened."""

_log = logging.getLogger("petstore")


class WatchedStore:
    """The open store of one worker. Once any worker finds it lost, all refuse it until a restart.

    open_ -- opens the storage
    expected -- what it must find, without notes
    shared -- what the workers know together
    use -- called with the repository that serves from now on
    checked -- called when the store was opened, or found to be the same
    """

    def __init__(
        self,
        open_: Callable[[Expected], AbstractAsyncContextManager[Repository]],
        expected: Expected,
        shared: SharedStore,
        use: Callable[[Repository], None],
        checked: Callable[[], None],
    ) -> None:
        self._open = open_
        self._expected = replace(expected, notes=shared)
        self._shared = shared
        self._use = use
        self._checked = checked

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the store, unless it is lost, and check it within the block.

        Raises the errors of `Backend.open`, except if other workers had the store open.
        """
        async with AsyncExitStack() as stack:
            try:
                if not self._shared.lost:
                    repository = await stack.enter_async_context(self._open(self._expected))
            except WrongStoreError as error:
                if not self._shared.read():
                    raise
                self._lose(str(error))
            if self._shared.lost:
                self._refuse()
            else:
                self._use(repository)
                self._checked()
                watching = asyncio.create_task(self._watch(repository))
                stack.push_async_callback(asyncio.wait, (watching,))
                stack.callback(watching.cancel)
            yield

    async def _watch(self, repository: Repository) -> None:
        """Check the store once a second until it is lost, for this worker or for another one."""
        while not self._shared.lost:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await repository.check()
                self._checked()
            except WrongStoreError as error:
                self._lose(str(error))
            except UnavailableError:
                pass  # requests get this error, too, and it is logged for them
            except Exception:  # noqa: BLE001 - whatever a backend raises, check again
                _log.exception("the store could not be checked")
        self._refuse()

    def _lose(self, reason: str) -> None:
        """Let all workers refuse the store; log it once."""
        if not self._shared.lost:
            self._shared.lost = reason
            _log.error("%s; nothing is served until the service is restarted", reason)

    def _refuse(self) -> None:
        self._use(cast("Repository", _Lost(self._shared.lost)))


class _Lost:
    """Stands for a repository whose store is lost: each of its methods raises the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, _: str) -> Any:
        return self._raise

    async def _raise(self, *_: object) -> None:
        raise WrongStoreError(self._reason)
