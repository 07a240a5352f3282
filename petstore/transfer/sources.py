"""What a store holds, as an export and a comparison read it: page after page."""

from asyncio import Runner
from collections.abc import Iterator, Sequence
from typing import Final

from petstore.contract import Order, OrderQuery, Pet, PetQuery, Repository, TokenRecord

PAGE_ITEMS: Final = 500
"""The maximum number of items that are read from the storage at once."""

FIRST_ITEMS: Final = 16
"""How many are read first: their names may be long."""

PAGE_CHARACTERS: Final = 2**20
"""About how long the names of a page are together, at most."""

ItemType = type[Pet] | type[Order]
Items = Sequence[Pet] | Sequence[Order]


class Source:
    """An open repository, read from outside the event loop of its runner."""

    def __init__(self, runner: Runner, repository: Repository) -> None:
        self._runner = runner
        self._repository = repository

    def pages(self, type_: ItemType) -> Iterator[Items]:
        """Yield all items in ascending id; no page is empty."""
        after, count = 0, FIRST_ITEMS
        while page := self.page(type_, after, count):
            yield page
            after = page[-1].id
            length = 1 + sum(len(item.name) for item in page if isinstance(item, Pet))
            count = max(1, min(2 * count, PAGE_ITEMS, len(page) * PAGE_CHARACTERS // length))

    def page(self, type_: ItemType, after: int, count: int) -> Items:
        """Return at most `count` items whose ids are higher than `after`, in ascending id."""
        if type_ is Pet:
            return self._runner.run(self._repository.list_pets(PetQuery(after, count)))
        return self._runner.run(self._repository.list_orders(OrderQuery(after, count)))

    def tokens(self, now: int) -> Iterator[list[TokenRecord]]:
        """Yield the records that have not expired now, each at least once.

        now -- in seconds since 1970
        """
        cursor, last = "", False
        while not last:
            page = self._runner.run(self._repository.list_tokens(cursor, PAGE_ITEMS, now))
            yield page.records
            cursor, last = page.next, not page.next
