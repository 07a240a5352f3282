"""Guards that need nothing but the scope of a request."""

from collections.abc import Callable
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler


class ScopeGuard:
    """A guard of Litestar that is a function of the scope, so that the fast path can call it.

    check -- raises `ApiError` for a request that is refused; may leave keys in the scope
    """

    def __init__(self, check: Callable[[Any], None]) -> None:
        self.check = check

    async def __call__(
        self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
    ) -> None:
        """Check a request on Litestar's own path."""
        self.check(connection.scope)
