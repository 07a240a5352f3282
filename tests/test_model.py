"""The HTTP surface against a model: writes, retries, reads and pages in any order.

The model is plain lists and dictionaries: animals, orders, what was sent under which key.
"""

from collections import Counter
from contextlib import ExitStack
from typing import Any

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct

from tests.live import Live, in_thread
from tests.test_paging import next_link

PETS, ORDERS = "/v1/pets", "/v1/store/orders"
STATUSES = ("available", "pending", "sold")
PET_STATUS = {"placed": "pending", "completed": "sold", "cancelled": "available"}
FILTERS_BY_PATH = {PETS: STATUSES, ORDERS: tuple(PET_STATUS)}

ANIMALS = st.fixed_dictionaries(
    {"name": st.text(max_size=8), "categoryId": st.integers(-(2**63), 2**63 - 1)},
    optional={"status": st.sampled_from(STATUSES)},
)
FREE = ANIMALS.map(lambda animal: animal | {"status": "available"})
INDEXES = st.integers(0, 50)
PATHS = st.sampled_from([PETS, PETS, ORDERS])
LIMITS = st.sampled_from([1, 1, 2, 2, 3, None, 100])  # mostly less than there are items
FILTERS = st.sampled_from([None, None, None, 0, 1, 2])  # which status of the collection
ORDERED = ("available", "available", "pending", "sold", "none at all")
ASKED = ("completed", "completed", "cancelled", "cancelled", "placed")
KEYS = st.sampled_from([None, None, "a", "b", "c"])
Item = dict[str, Any]

reached = Counter[str]()
"""What all examples together did, so that a machine that does nothing does not pass for one."""


class Walk(Struct):
    """A walk from page to page that is under way.

    promised -- the ids of what has been there, and has matched, since it began
    """

    path: str
    status: str | None
    link: str
    promised: set[int]
    seen: list[int]


class ServiceMachine(RuleBasedStateMachine):
    """Drives one service and remembers what it must answer."""

    live: Live

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.items: dict[str, list[Item]] = {PETS: [], ORDERS: []}
        self.retries: dict[tuple[str, str], tuple[Item, Item]] = {}
        self.walks: list[Walk] = []

    @initialize(
        universe=st.lists(ANIMALS | FREE, min_size=6, max_size=12),
        free=FREE,
        ended=st.sampled_from(["completed", "cancelled"]),
    )
    def begin(self, universe: list[Item], free: Item, ended: str) -> None:
        """Open an empty store and put a small universe of animals and two orders into it."""
        self.live = self.stack.enter_context(in_thread())
        for animal in universe:
            self.create(animal, None)
        self.create(free, None)
        self.place("available", 0, None)
        self._update(self.items[ORDERS][0], ended)
        self.create(free, None)
        self.place("available", 0, "a")  # every run has an order, a retry and a walk under way
        self.place("pending", 0, None)
        self.first_page(PETS, 2, None)

    def teardown(self) -> None:
        """Bring every walk to its end."""
        with self.stack:
            while self.walks:
                self.next_page(0, to_the_end=True)

    @rule(animal=ANIMALS, key=KEYS)
    def create(self, animal: Item, key: str | None) -> None:
        """Add an animal."""
        if (answer := self._write(PETS, animal, key)) is not None:
            pet = self._added(PETS, animal, answer, key)
            assert pet == {"id": pet["id"], **animal}
            self._count("creates")

    @rule(of=st.sampled_from(ORDERED), index=INDEXES, key=KEYS)
    def place(self, of: str, index: int, key: str | None) -> None:
        """Order an animal of a status, or one that does not exist."""
        pet = self._pick(self._matching(PETS, of) or [{"id": 2**53 - 1}], index)
        body = {"petId": pet["id"]}
        if (answer := self._write(ORDERS, body, key)) is None:
            return
        if pet not in self.items[PETS]:
            assert answer.status_code == 404
        elif pet.get("status") != "available":
            assert answer.status_code == 409
            self._count("refused orders")
        else:
            order = self._added(ORDERS, body, answer, key)
            assert set(order) == {"id", "petId", "status", "placedAt"}
            assert (order["petId"], order["status"]) == (pet["id"], "placed")
            self._change(PETS, pet, "pending")
            self._count("orders")

    @rule(index=INDEXES)
    def retry(self, index: int) -> None:
        """Repeat a write as it was."""
        (path, key), (body, _) = list(self.retries.items())[index % len(self.retries)]
        assert self._write(path, body, key) is None

    @rule(of=st.sampled_from(["placed", None]), index=INDEXES, status=st.sampled_from(ASKED))
    def update(self, of: str | None, index: int, status: str) -> None:
        """Change the status of an order, or ask for one that it cannot take."""
        found = self._matching(ORDERS, of) or self.items[ORDERS]
        self._update(self._pick(found, index), status)

    def _update(self, order: Item, status: str) -> None:
        answer = self.live.client.patch(f"{ORDERS}/{order['id']}", json={"status": status})
        if order["status"] not in ("placed", status):
            assert answer.status_code == 409
            self._count("refused updates")
            return
        if order["status"] != status:
            [pet] = [pet for pet in self.items[PETS] if pet["id"] == order["petId"]]
            self._change(ORDERS, order, status)
            self._change(PETS, pet, PET_STATUS[status])
            self._count(status)
        assert answer.status_code == 200
        assert answer.json() == order

    @rule(path=PATHS, index=INDEXES)
    def get(self, path: str, index: int) -> None:
        """Read an animal or an order that exists."""
        item = self._pick(self.items[path], index)
        assert self.live.client.get(f"{path}/{item['id']}").json() == item
        self._count("gets")

    @rule(path=PATHS, number=st.integers(1, 2**53 - 1))
    def get_absent(self, path: str, number: int) -> None:
        """Read an animal or an order that does not exist."""
        if number not in [item["id"] for item in self.items[path]]:
            assert self.live.client.get(f"{path}/{number}").status_code == 404

    @rule(path=PATHS, limit=LIMITS, which=FILTERS)
    def first_page(self, path: str, limit: int | None, which: int | None) -> None:
        """Read a first page, and begin a walk if it has a successor."""
        status = None if which is None else FILTERS_BY_PATH[path][which]
        answer = self._page(path, limit, status)
        matching = self._matching(path, status)
        expected = matching[: limit or 20]
        assert answer.json() == expected
        link = next_link(answer)
        assert (link is not None) == (len(matching) > (limit or 20))
        if link is not None:
            promised = {item["id"] for item in matching}
            seen = [item["id"] for item in expected]
            self.walks.append(Walk(path, status, link, promised, seen))
            self._count("walks")

    @rule(index=INDEXES, to_the_end=st.booleans())
    def next_page(self, index: int, to_the_end: bool) -> None:
        """Go on with a walk; when it ends, it has seen what was there all the time."""
        if not self.walks:
            return
        walk = self.walks.pop(index % len(self.walks))
        link: str | None = walk.link
        while link is not None:
            answer = self.live.client.get(link)
            assert answer.status_code == 200
            assert all(item in self._matching(walk.path, walk.status) for item in answer.json())
            walk.seen += [item["id"] for item in answer.json()]
            assert walk.seen == sorted(set(walk.seen))
            link = next_link(answer)
            if link is not None and not to_the_end:
                walk.link = link
                self.walks.append(walk)
                return
        assert walk.promised <= set(walk.seen)
        self._count("finished walks")

    @invariant()
    def all_is_as_it_must_be(self) -> None:
        """Animals and orders are listed in ascending id, as they are now."""
        for path, items in self.items.items():
            if items:
                assert self._page(path, 100, None).json() == self._matching(path, None)[:100]

    @invariant()
    def no_animal_is_in_two_live_orders(self) -> None:
        """Check that the model itself keeps what the service promises."""
        live = [order["petId"] for order in self.items[ORDERS] if order["status"] != "cancelled"]
        assert len(live) == len(set(live))

    def _write(self, path: str, body: Item, key: str | None) -> httpx.Response | None:
        """Send a POST; check the answer here and return None if its key is a used one."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self.live.client.post(path, json=body, headers=headers)
        if key is None or (path, key) not in self.retries:
            assert "idempotency-replayed" not in answer.headers
            return answer
        sent, first = self.retries[path, key]
        if sent == body:
            assert answer.status_code == 201
            assert answer.headers["idempotency-replayed"] == "true"
            assert answer.headers["location"] == f"{path}/{first['id']}"
            assert answer.json() == first
            self._count("replays")
        else:
            assert answer.status_code == 409
            self._count("reused keys")
        return None

    def _added(self, path: str, body: Item, answer: httpx.Response, key: str | None) -> Item:
        """Check the answer of what was added, and remember it."""
        assert answer.status_code == 201
        item: Item = answer.json()
        assert item["id"] not in [other["id"] for other in self.items[path]]
        assert answer.headers["location"] == f"{path}/{item['id']}"
        self.items[path].append(item)
        if key is not None:
            self.retries[path, key] = (body, dict(item))
        return item

    def _change(self, path: str, item: Item, status: str) -> None:
        """Give an item another status; a walk that filters no longer promises to visit it."""
        item["status"] = status
        for walk in self.walks:
            if walk.path == path and walk.status not in (None, status):
                walk.promised.discard(item["id"])

    def _page(self, path: str, limit: int | None, status: str | None) -> httpx.Response:
        parameters = {"limit": limit, "status": status}
        given = {name: value for name, value in parameters.items() if value is not None}
        answer = self.live.client.get(path, params=given)
        assert answer.status_code == 200
        return answer

    def _matching(self, path: str, status: str | None) -> list[Item]:
        found = [item for item in self.items[path] if status in (None, item.get("status"))]
        return sorted(found, key=lambda item: int(item["id"]))

    def _pick(self, items: list[Item], index: int) -> Item:
        return items[index % len(items)]

    def _count(self, what: str) -> None:
        reached[what] += 1


def test_the_service_answers_as_the_model() -> None:
    reached.clear()
    run_state_machine_as_test(
        ServiceMachine, settings=settings(max_examples=25, stateful_step_count=30)
    )
    assert reached["creates"] >= 150, reached
    assert reached["walks"] >= 15, reached
    assert reached["finished walks"] >= 15, reached
    for what in (
        "gets", "orders", "refused orders", "completed", "cancelled", "refused updates",
        "replays", "reused keys",
    ):  # fmt: skip
        assert reached[what], reached
