"""What the parts of one running service share."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from petstore.contract import Repository


class Service:
    """One service: its storage, its public address, and whether it is about to stop.

    root -- the public prefix in front of ``/v1``, or nothing
    document -- returns the encoded OpenAPI document
    repository -- the open repository; set for as long as the application's lifespan lasts
    failure -- why the repository could not be opened
    clock -- returns the time, in UTC; tests move it
    draining -- set when the service is about to stop: it answers, but asks clients to go
    """

    repository: Repository
    document: Callable[[], bytes]

    def __init__(self, root: str = "") -> None:
        self.root = root
        self.failure: Exception | None = None
        self.clock: Callable[[], datetime] = partial(datetime.now, UTC)
        self.draining = False
