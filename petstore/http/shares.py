"""What clients hold of this process: slots, large bodies, pages, and what they have not read.

Who holds pays, not who comes next. A client may hold `FACTOR` times what is left for all others
(the dynamic threshold of Choudhury and Hahne, 1998): eight ninths if it is alone, 47 percent each
if there are two, and so on. So something is always left for a client that holds nothing.
"""

import asyncio
from collections import defaultdict, deque
from typing import Final

from petstore.http.errors import OVER_SLOTS, overloaded

FACTOR: Final = 8
"""How many times what is left for others a client may hold."""

SMALL_BODY_BYTES: Final = 64 * 1024
"""Bodies up to this size are not counted.

Slots already limit how many request bodies there are, and a connection writes one response at a
time.
"""

LARGE_BODIES_BYTES: Final = 64 * 1024 * 1024
"""The total size of the larger bodies in flight, in bytes; more if a single one may be larger."""

UNREAD_BYTES: Final = 64 * 1024 * 1024
"""How much of all responses may wait in this process for clients to read them."""

PAGES_BYTES: Final = 32 * 1024 * 1024
"""How large the pages may be that are fetched at once, if each of their items is the longest.

With bodies of 64 KiB that is 24 pages of 20 items, or 5 of 100. Usual pages take a hundredth of
that, and are back before so many are asked for.
"""

PAGE_SECONDS: Final = 5.0
"""How long a request for a page waits for earlier ones of its client, and its turn."""


class Share:
    """One resource, and how much of it each client holds.

    free -- how much of it nobody holds; negative if there is more than the total

    total -- how much there is of it
    message -- what is refused, as a sentence
    """

    def __init__(self, total: int, message: str) -> None:
        self.total = self.free = total
        self._message = message
        self._held = defaultdict[str, int](int)  # by the names of all that have held something

    def acquire(self, client: str, amount: int = 1) -> None:
        """Let a client hold so much more; whoever holds nothing gets whatever is left.

        Raises `ApiError` (503) if too little is left for others.
        """
        held = self._held[client] + amount
        free = self.free - amount
        if held > FACTOR * free and (held > amount or free < 0):
            raise overloaded(self._message)
        self._held[client] = held
        self.free = free

    def release(self, client: str, amount: int = 1) -> None:
        """Let a client hold so much less."""
        self._held[client] -= amount
        self.free += amount

    def count(self, client: str, amount: int) -> None:
        """Count that a client holds so much more, whether it may or not."""
        self._held[client] += amount
        self.free -= amount

    def check(self, client: str, amount: int) -> None:
        """Raise `ApiError` (503) if a client holds too much to get any more.

        amount -- how much; 0 if it is little, which whoever holds nothing gets in any case
        """
        held = self._held[client]
        if held > FACTOR * self.free and (held or amount):
            raise overloaded(self._message)


class PageTurns:
    """How many pages are fetched at once: as many as may take `PAGES_BYTES`, and at least one.

    Further requests wait. The clients take turns, so nobody waits behind the queue of another.
    """

    def __init__(self) -> None:
        self._free = PAGES_BYTES
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}  # by their clients

    def acquire(self, size: int) -> bool:
        """Begin to fetch a page that may have so many bytes; return False if it must `wait`."""
        free = self._free - size
        if self._waiting or (free < 0 and self._free < PAGES_BYTES):
            return False
        self._free = free
        return True

    async def wait(self, client: str, size: int) -> None:
        """Begin to fetch a page once it is the client's turn.

        Raises `ApiError` (503) if that takes too long.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append((size, turn))
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # at the same instant
                self.release(size)
            if isinstance(error, TimeoutError):
                raise overloaded("Too many pages are being fetched.") from None
            raise

    def release(self, size: int) -> None:
        """End it: the page is sent, or there is none."""
        self._free += size
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Let those begin whose turn it is, as far as there is room."""
        while self._waiting:
            client, queue = next(iter(self._waiting.items()))
            size, turn = queue[0]
            waits = not turn.done()  # otherwise its request has given up
            if waits and self._free < min(size, PAGES_BYTES):
                return
            queue.popleft()
            if waits:
                self._free -= size
                turn.set_result(None)
                self._waiting[client] = self._waiting.pop(client)  # behind all others
            if not queue:
                del self._waiting[client]


class Shares:
    """What the clients of this process hold.

    slots -- of the requests in flight
    bodies -- bytes of the large bodies among them
    unread -- bytes of the responses that wait in this process to be read
    pages -- which pages are being fetched

    max_item_bytes -- the maximum size of an item of a page, about: that of the body that made it

    max_in_flight -- how many requests may be in flight at once
    max_body_bytes -- the maximum size of one body
    """

    def __init__(self, max_in_flight: int, max_body_bytes: int) -> None:
        self.slots = Share(max_in_flight, OVER_SLOTS)
        self.bodies = Share(
            max(LARGE_BODIES_BYTES, max_body_bytes), "Too many large request bodies in flight."
        )
        self.unread = Share(UNREAD_BYTES, "Too much of earlier responses has not been read.")
        self.pages = PageTurns()
        self.max_item_bytes = max_body_bytes
