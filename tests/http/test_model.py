"""The HTTP interface against a model: writes, retries, reads and pages in any order.

The model is plain lists and dictionaries: pets, orders, and the bodies sent with each key.
"""

from collections import Counter
from contextlib import ExitStack

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

from petstore.conformance.faults.histories import Item
from tests.support.interface import ORDERS, PETS
from tests.support.orders import PET_STATUS
from tests.support.pets import NEW_PETS, STATUSES
from tests.support.responses import next_link
from tests.support.services import Live, in_thread

FILTERS_BY_PATH = {PETS: STATUSES, ORDERS: tuple(PET_STATUS)}

FREE = NEW_PETS.map(lambda new: new | {"status": "available"})
INDEXES = st.integers(0, 50)
PATHS = st.sampled_from([PETS, PETS, ORDERS])
LIMITS = st.sampled_from([1, 1, 2, 2, 3, None, 100])  # mostly fewer than there are items
FILTERS = st.sampled_from([None, None, None, 0, 1, 2])  # the index of a status of the collection
STATUSES_TO_ORDER = ("available", "available", "pending", "sold", "no such status")
NEW_STATUSES = ("completed", "completed", "cancelled", "cancelled", "placed")
KEYS = st.sampled_from([None, None, "a", "b", "c"])

reached = Counter[str]()
"""What all examples together did: the test must not pass because nothing happened."""


class Walk(Struct):
    """A walk from page to page that has not ended.

    promised -- the ids of the items that have existed and matched since it began
    """

    path: str
    status: str | None
    link: str
    promised: set[int]
    seen: list[int]


class ServiceMachine(RuleBasedStateMachine):
    """Drives one service and records what it must return."""

    live: Live

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.items: dict[str, list[Item]] = {PETS: [], ORDERS: []}
        self.repeatable: dict[tuple[str, str], tuple[Item, Item]] = {}
        self.walks: list[Walk] = []

    @initialize(
        universe=st.lists(NEW_PETS | FREE, min_size=6, max_size=12),
        free=FREE,
        ended=st.sampled_from(["completed", "cancelled"]),
    )
    def begin(self, universe: list[Item], free: Item, ended: str) -> None:
        """Open an empty store and put a small universe of pets and two orders into it."""
        self.live = self.stack.enter_context(in_thread())
        for new in universe:
            self.create(new, None)
        self.create(free, None)
        self.place("available", 0, None)
        self._update(self.items[ORDERS][0], ended)
        self.create(free, None)
        self.place("available", 0, "a")  # every run has an order, a key and a walk
        self.place("pending", 0, None)
        self.first_page(PETS, 2, None)

    def teardown(self) -> None:
        """Finish every walk."""
        with self.stack:
            while self.walks:
                self.next_page(0, to_the_end=True)

    @rule(new=NEW_PETS, key=KEYS)
    def create(self, new: Item, key: str | None) -> None:
        """Add a pet."""
        if (response := self._write(PETS, new, key)) is not None:
            pet = self._added(PETS, new, response, key)
            assert pet == {"id": pet["id"], **new}
            self._count("creates")

    @rule(pet_status=st.sampled_from(STATUSES_TO_ORDER), index=INDEXES, key=KEYS)
    def place(self, pet_status: str, index: int, key: str | None) -> None:
        """Order a pet with a status, or an unknown pet."""
        pet = self._pick(self._matching(PETS, pet_status) or [{"id": 2**53 - 1}], index)
        body = {"petId": pet["id"]}
        if (response := self._write(ORDERS, body, key)) is None:
            return
        if pet not in self.items[PETS]:
            assert response.status_code == 404
        elif pet.get("status") != "available":
            assert response.status_code == 409
            self._count("refused orders")
        else:
            order = self._added(ORDERS, body, response, key)
            assert set(order) == {"id", "petId", "status", "placedAt"}
            assert (order["petId"], order["status"]) == (pet["id"], "placed")
            self._change(PETS, pet, "pending")
            self._count("orders")

    @rule(index=INDEXES)
    def retry(self, index: int) -> None:
        """Repeat a write unchanged."""
        (path, key), (body, _) = list(self.repeatable.items())[index % len(self.repeatable)]
        assert self._write(path, body, key) is None

    @rule(
        current=st.sampled_from(["placed", None]),
        index=INDEXES,
        status=st.sampled_from(NEW_STATUSES),
    )
    def update(self, current: str | None, index: int, status: str) -> None:
        """Change the status of an order, possibly to one that is refused."""
        found = self._matching(ORDERS, current) or self.items[ORDERS]
        self._update(self._pick(found, index), status)

    def _update(self, order: Item, status: str) -> None:
        response = self.live.client.patch(f"{ORDERS}/{order['id']}", json={"status": status})
        if order["status"] not in ("placed", status):
            assert response.status_code == 409
            self._count("refused updates")
            return
        if order["status"] != status:
            [pet] = [pet for pet in self.items[PETS] if pet["id"] == order["petId"]]
            self._change(ORDERS, order, status)
            self._change(PETS, pet, PET_STATUS[status])
            self._count(status)
        assert response.status_code == 200
        assert response.json() == order

    @rule(path=PATHS, index=INDEXES)
    def get(self, path: str, index: int) -> None:
        """Read a pet or an order that exists."""
        item = self._pick(self.items[path], index)
        assert self.live.client.get(f"{path}/{item['id']}").json() == item
        self._count("gets")

    @rule(path=PATHS, id_=st.integers(1, 2**53 - 1))
    def get_absent(self, path: str, id_: int) -> None:
        """Read a pet or an order that does not exist."""
        if id_ not in [item["id"] for item in self.items[path]]:
            assert self.live.client.get(f"{path}/{id_}").status_code == 404

    @rule(path=PATHS, limit=LIMITS, filter_=FILTERS)
    def first_page(self, path: str, limit: int | None, filter_: int | None) -> None:
        """Read a first page, and begin a walk if there is a next page."""
        status = None if filter_ is None else FILTERS_BY_PATH[path][filter_]
        response = self._page(path, limit, status)
        matching = self._matching(path, status)
        expected = matching[: limit or 20]
        assert response.json() == expected
        link = next_link(response)
        assert (link is not None) == (len(matching) > (limit or 20))
        if link is not None:
            promised = {item["id"] for item in matching}
            seen = [item["id"] for item in expected]
            self.walks.append(Walk(path, status, link, promised, seen))
            self._count("walks")

    @rule(index=INDEXES, to_the_end=st.booleans())
    def next_page(self, index: int, to_the_end: bool) -> None:
        """Continue a walk; when it ends, it has seen everything that existed throughout."""
        if not self.walks:
            return
        walk = self.walks.pop(index % len(self.walks))
        link: str | None = walk.link
        while link is not None:
            response = self.live.client.get(link)
            assert response.status_code == 200
            assert all(item in self._matching(walk.path, walk.status) for item in response.json())
            walk.seen += [item["id"] for item in response.json()]
            assert walk.seen == sorted(set(walk.seen))
            link = next_link(response)
            if link is not None and not to_the_end:
                walk.link = link
                self.walks.append(walk)
                return
        assert walk.promised <= set(walk.seen)
        self._count("finished walks")

    @invariant()
    def lists_match_the_model(self) -> None:
        """Pets and orders are listed in ascending id, in their current state."""
        for path, items in self.items.items():
            if items:
                assert self._page(path, 100, None).json() == self._matching(path, None)[:100]

    @invariant()
    def no_pet_is_in_two_live_orders(self) -> None:
        """Check that the model itself sells no pet twice."""
        live = [order["petId"] for order in self.items[ORDERS] if order["status"] != "cancelled"]
        assert len(live) == len(set(live))

    def _write(self, path: str, body: Item, key: str | None) -> httpx.Response | None:
        """Send a POST; if its key was used before, check the response and return None."""
        headers = {} if key is None else {"Idempotency-Key": key}
        response = self.live.client.post(path, json=body, headers=headers)
        if key is None or (path, key) not in self.repeatable:
            assert "idempotency-replayed" not in response.headers
            return response
        sent, first = self.repeatable[path, key]
        if sent == body:
            assert response.status_code == 201
            assert response.headers["idempotency-replayed"] == "true"
            assert response.headers["location"] == f"{path}/{first['id']}"
            assert response.json() == first
            self._count("replays")
        else:
            assert response.status_code == 409
            self._count("reused keys")
        return None

    def _added(self, path: str, body: Item, response: httpx.Response, key: str | None) -> Item:
        """Check the response to a creation, and record the item."""
        assert response.status_code == 201
        item: Item = response.json()
        assert item["id"] not in [other["id"] for other in self.items[path]]
        assert response.headers["location"] == f"{path}/{item['id']}"
        self.items[path].append(item)
        if key is not None:
            self.repeatable[path, key] = (body, dict(item))
        return item

    def _change(self, path: str, item: Item, status: str) -> None:
        """Change an item's status; a walk with a filter no longer promises to visit it."""
        item["status"] = status
        for walk in self.walks:
            if walk.path == path and walk.status not in (None, status):
                walk.promised.discard(item["id"])

    def _page(self, path: str, limit: int | None, status: str | None) -> httpx.Response:
        parameters = {"limit": limit, "status": status}
        given = {name: value for name, value in parameters.items() if value is not None}
        response = self.live.client.get(path, params=given)
        assert response.status_code == 200
        return response

    def _matching(self, path: str, status: str | None) -> list[Item]:
        found = [item for item in self.items[path] if status in (None, item.get("status"))]
        return sorted(found, key=lambda item: int(item["id"]))

    def _pick(self, items: list[Item], index: int) -> Item:
        return items[index % len(items)]

    def _count(self, event: str) -> None:
        reached[event] += 1


def test_the_service_responds_as_the_model() -> None:
    reached.clear()
    run_state_machine_as_test(
        ServiceMachine, settings=settings(max_examples=25, stateful_step_count=30)
    )
    assert reached["creates"] >= 150, reached
    assert reached["walks"] >= 15, reached
    assert reached["finished walks"] >= 15, reached
    for event in (
        "gets",
        "orders",
        "refused orders",
        "completed",
        "cancelled",
        "refused updates",
        "replays",
        "reused keys",
    ):
        assert reached[event], reached
