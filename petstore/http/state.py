"""What the parts of one running service share."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from petstore.contract import Repository
from petstore.http.clock import TokenClock
from petstore.http.shares import Shares
from petstore.observability.storage_health import StorageHealth


class ServiceState:
    """The state of one service; guards and handlers get it as their request's `service`.

    root_path -- the public prefix in front of ``/v1``, or the empty string
    document -- the OpenAPI document, as JSON
    shares -- what each client holds of this process
    storage_health -- logs when the storage fails
    suspect -- to be called once a request has found that the store is lost
    repository -- the open store, while the application's lifespan is active
    startup_error -- why the repository could not be opened
    clock -- returns the current time in UTC; tests replace it
    token_clock -- the times of idempotency tokens; tests replace it
    draining -- True once the service is about to stop: it still responds, but closes connections
    """

    repository: Repository

    def __init__(
        self,
        root_path: str,
        document: bytes,
        shares: Shares,
        storage_health: StorageHealth,
        suspect: Callable[[], None],
    ) -> None:
        self.root_path = root_path
        self.document = document
        self.shares = shares
        self.storage_health = storage_health
        self.suspect = suspect
        self.startup_error: Exception | None = None
        self.clock: Callable[[], datetime] = partial(datetime.now, UTC)
        self.token_clock = TokenClock()
        self.draining = False
