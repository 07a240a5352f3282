"""The Store group over HTTP: pages, paths, methods and hostile bodies."""

import re

import httpx

from petstore.settings import Settings
from tests.live import Live, in_thread
from tests.test_hostile import (
    AUTHORIZED,
    BAD_BODIES,
    BAD_QUERIES,
    BAD_VALUES,
    JSON,
    NO_INTEGERS,
    ODD_IDS,
    ask,
    each,
)
from tests.test_paging import next_link, walk
from tests.test_specification import check_error
from tests.test_store import ORDERS, PET_STATUS, add, ids, ordered, place


class TestListOrders:
    """GET /store/orders. Its queries are read as those of listPets: test_paging.py."""

    def test_a_walk_visits_every_order_once_in_ascending_id(self, fresh: Live) -> None:
        expected: list[int] = []
        for count in (0, 1, 6, 7, 21):
            expected += [place(fresh, add(fresh)).json()["id"] for _ in range(len(expected), count)]
            for limit in (1, 2, 3, 7, 100):
                pages = list(walk(fresh, f"{ORDERS}?limit={limit}"))
                assert [id_ for page in pages for id_ in page] == sorted(expected)
                assert all(len(page) == limit for page in pages[:-1])
                assert pages[-1] or not expected
        assert ids(fresh, ORDERS) == sorted(expected)[:20]

    def test_the_link_repeats_limit_and_status_and_the_cursor_takes_others(
        self, fresh: Live
    ) -> None:
        numbers: dict[str, list[int]] = {"placed": [], "completed": [], "cancelled": []}
        for status in list(numbers) * 3:
            numbers[status].append(int(ordered(fresh, status).rpartition("/")[2]))
        completed, cancelled = sorted(numbers["completed"]), sorted(numbers["cancelled"])
        link = next_link(fresh.client.get(f"{ORDERS}?limit=2&status=completed&x=1"))
        url = httpx.URL(link or "")
        assert url.path == ORDERS
        assert set(url.params) == {"limit", "status", "cursor"}
        assert (url.params["limit"], url.params["status"]) == ("2", "completed")
        assert ids(fresh, str(url)) == completed[2:]
        rest = ids(fresh, f"{ORDERS}?status=cancelled&cursor={url.params['cursor']}")
        assert rest == [id_ for id_ in cancelled if id_ > completed[1]]

    def test_cursors_and_statuses_of_animals_and_orders_are_told_apart(self, fresh: Live) -> None:
        for _ in range(2):
            place(fresh, add(fresh))
        for own, other, values in (
            (ORDERS, "/v1/pets", PET_STATUS.keys()), ("/v1/pets", ORDERS, PET_STATUS.values()),
        ):  # fmt: skip
            cursor = httpx.URL(next_link(fresh.client.get(f"{own}?limit=1")) or "").params["cursor"]
            for query in (f"cursor={cursor}", *(f"status={value}" for value in values)):
                assert fresh.client.get(f"{own}?{query}").status_code == 200
                check_error(fresh.client.get(f"{other}?{query}"), 400, "invalid_request")

    def test_bad_queries_are_400(self, service: Live) -> None:
        for query in BAD_QUERIES:
            assert ask(service, f"GET {ORDERS}?{query}").status_code == 400


class TestAround:
    @each("id_", ODD_IDS)
    def test_an_odd_id_is_404(self, service: Live, id_: str) -> None:
        for method in ("GET", "HEAD", "PATCH"):
            assert ask(service, f"{method} {ORDERS}/{id_}").status_code == 404
            assert ask(service, f"{method} {ORDERS}/{id_}", key="").status_code == 401

    @each("key", [AUTHORIZED, ""])
    def test_other_methods_are_405_and_options_names_all(self, service: Live, key: str) -> None:
        for path, own in ((ORDERS, "POST"), (f"{ORDERS}/1", "PATCH"), (f"{ORDERS}/x", "PATCH")):
            for method in {"DELETE", "PUT", "PATCH", "POST", "OPTIONS"} - {own}:
                answer = ask(service, f"{method} {path}", key=key)
                assert answer.status_code == (204 if method == "OPTIONS" else 405)
                assert answer.headers["allow"] == f"GET, HEAD, OPTIONS, {own}"

    def test_head_answers_as_get_without_a_body(self, service: Live) -> None:
        location = ordered(service)
        got, headed = (ask(service, f"{m} {location}", "X-Request-Id: a") for m in ("GET", "HEAD"))
        assert (headed.status_code, headed.content) == (200, b"")
        headed.headers["date"] = got.headers["date"]
        assert headed.headers == got.headers

    def test_locations_and_links_stand_under_the_public_prefix(self) -> None:
        with in_thread(Settings(root_path="/shop", drain_seconds=0)) as live:
            places = [place(live, add(live)).headers["location"] for _ in range(2)]
            link = next_link(live.client.get(f"{ORDERS}?limit=1")) or ""
        assert all(re.fullmatch(f"/shop{ORDERS}/[1-9][0-9]*", place) for place in places)
        assert link.startswith(f"/shop{ORDERS}?")

    def test_hostile_bodies_are_400(self, service: Live) -> None:
        location = ordered(service)
        for line, field in ((f"POST {ORDERS}", b"petId"), (f"PATCH {location}", b"status")):
            bodies = [b'{"%s":%s}' % (field, value) for value in (*BAD_VALUES, *NO_INTEGERS)]
            odd = [b'{"petId":1,"status":"placed","x":%s}' % value for value in BAD_VALUES]
            for body in (*bodies, *odd, *BAD_BODIES):
                assert ask(service, line, JSON, body=body).status_code == 400
