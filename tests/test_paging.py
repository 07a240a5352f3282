"""Pages: opaque cursors, `Link`, and what a walk promises."""

import re
import threading
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore import paging
from petstore.contract import MAX_ID, PetStatus
from petstore.errors import ApiError
from petstore.settings import Settings
from tests.live import Live, in_thread
from tests.test_specification import check_error

COLLECTION = paging.Collection("p", PetStatus, "/v1/pets")


def add(live: Live, count: int, status: str | None = None) -> list[int]:
    body = {"name": "n", "categoryId": 1} | ({"status": status} if status else {})
    return [live.client.post("/v1/pets", json=body).json()["id"] for _ in range(count)]


def next_link(answer: httpx.Response) -> str | None:
    if (link := answer.headers.get("link")) is None:
        return None
    match = re.fullmatch(r'<(/[^>]*)>; rel="next"', link)
    assert match is not None
    return match[1]


def walk(live: Live, url: str) -> Iterator[list[int]]:
    following: str | None = url
    while following is not None:
        answer = live.client.get(following)
        assert answer.status_code == 200
        yield [pet["id"] for pet in answer.json()]
        following = next_link(answer)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("count", [0, 1, 6, 7, 21])
def test_a_walk_visits_every_animal_once_in_ascending_id(limit: int, count: int) -> None:
    with in_thread() as live:
        ids = sorted(add(live, count))
        pages = list(walk(live, f"/v1/pets?limit={limit}"))
    assert [id_ for page in pages for id_ in page] == ids
    assert all(len(page) == limit for page in pages[:-1])
    assert pages[-1] or not ids, "the last page of an exact multiple of the limit has no successor"


def test_the_link_is_path_absolute_and_repeats_limit_and_status(fresh: Live) -> None:
    add(fresh, 3, "sold")
    link = next_link(fresh.client.get("/v1/pets?limit=2&status=sold&unknown=1"))
    assert link is not None
    url = httpx.URL(link)
    assert url.path == "/v1/pets"
    assert set(url.params) == {"limit", "status", "cursor"}
    assert (url.params["limit"], url.params["status"]) == ("2", "sold")


def test_the_link_stands_under_the_public_prefix() -> None:
    with in_thread(Settings(root_path="/shop", drain_seconds=0)) as live:
        created = live.client.post("/v1/pets", json={"name": "n", "categoryId": 1})
        path = f"/v1/pets/{created.json()['id']}"
        assert created.headers["location"] == f"/shop{path}"
        assert live.client.get(path).headers["link"].startswith("</shop/v1/pets>")
        add(live, 1)
        assert (next_link(live.client.get("/v1/pets?limit=1")) or "").startswith("/shop/v1/pets?")
        document = live.client.get("/openapi.json").json()
        assert document["servers"][0]["url"] == "/shop/v1"


def test_a_cursor_combines_with_any_status_and_limit(fresh: Live) -> None:
    ids = {"sold": add(fresh, 3, "sold"), "pending": add(fresh, 3, "pending"), "available": []}
    after = sorted([*ids["sold"], *ids["pending"], *add(fresh, 3)])[1]
    cursor = httpx.URL(next_link(fresh.client.get("/v1/pets?limit=2")) or "").params["cursor"]
    for status, all_ in ids.items():
        url = f"/v1/pets?status={status}&limit=50&cursor={cursor}"
        expected = sorted(id_ for id_ in all_ if id_ > after)
        assert [id_ for page in walk(fresh, url) for id_ in page] == expected


def test_a_well_formed_cursor_is_accepted_though_it_was_never_issued(fresh: Live) -> None:
    ids = sorted(add(fresh, 3))
    for after in (0, 2, 3, *ids, 1000, MAX_ID):
        answer = fresh.client.get(f"/v1/pets?cursor={paging.cursor('p', after)}")
        assert [pet["id"] for pet in answer.json()] == [id_ for id_ in ids if id_ > after]


@pytest.mark.parametrize(
    "cursor",
    ["", "p", "1", "p1", "p0000000000000", "p000000000000001", "p2fffffffffffff",
     "o00000000000001", "P00000000000001", "p0000000000000A", "p0000000000000g",
     "p00000000000001%00", "p0000000000000%D9%A1", "%20p00000000000001", "p00000000000001%0A"],
)  # fmt: skip
def test_a_malformed_cursor_is_400(service: Live, cursor: str) -> None:
    answer = service.client.get(f"/v1/pets?cursor={cursor}")
    assert "cursor" in check_error(answer, 400, "invalid_request")


@pytest.mark.parametrize("status", [None, "sold"])
@pytest.mark.parametrize("limit", [1, 3, 20])
def test_a_walk_keeps_its_promise_while_animals_are_added(limit: int, status: str | None) -> None:
    with in_thread() as live, in_thread_client(live) as adding:
        before = add(live, 40, status)
        added: list[int] = []
        stop = threading.Event()

        def keep_adding() -> None:
            while not stop.is_set():
                body = {"name": "n", "categoryId": 1} | ({"status": status} if status else {})
                added.append(adding.post("/v1/pets", json=body).json()["id"])

        thread = threading.Thread(target=keep_adding)
        thread.start()
        try:
            seen: list[int] = []
            for page in walk(
                live, f"/v1/pets?limit={limit}" + (f"&status={status}" if status else "")
            ):
                seen += page
                if len(seen) > 400:  # the adder may be as fast as the walk
                    break
        finally:
            stop.set()
            thread.join()
    there = [id_ for id_ in seen if id_ in set(before)]
    assert there == sorted(before), "what was there is visited once, in order"
    assert len(set(seen)) == len(seen), "what is added is visited once at most"
    assert set(seen) <= set(before) | set(added)


def in_thread_client(live: Live) -> httpx.Client:
    return httpx.Client(base_url=live.url, headers=live.client.headers, timeout=10)


@given(after=st.integers(0, MAX_ID))
def test_every_id_has_a_cursor_that_parses_back(after: int) -> None:
    query = f"cursor={paging.cursor('p', after)}".encode()
    assert COLLECTION.parse(query).after == after
    assert re.fullmatch(paging.cursor_pattern("p"), paging.cursor("p", after))


@given(
    limit=st.integers(1, 100),
    status=st.none() | st.sampled_from(PetStatus),
    after=st.integers(0, MAX_ID - 101),
)
def test_a_link_parses_back_to_the_query_of_the_next_page(
    limit: int, status: PetStatus | None, after: int
) -> None:
    class Item:
        def __init__(self, number: int) -> None:
            self.id = number

    items = [Item(after + n + 1) for n in range(limit + 1)]
    page, link = COLLECTION.page(paging.Query(limit, after, status), items)
    assert len(page) == limit
    assert link is not None
    query = httpx.URL(link[1 : link.index(">")]).query
    assert COLLECTION.parse(query) == paging.Query(limit, after + limit, status)


@given(st.binary(max_size=40) | st.text("limtscuror=&%0159pfd+", max_size=40).map(str.encode))
def test_any_query_string_is_read_or_refused(query: bytes) -> None:
    try:
        parsed = COLLECTION.parse(query)
    except ApiError as error:
        assert error.code.code == "invalid_request"  # noqa: PT017 - either outcome is right
    else:
        assert 1 <= parsed.limit <= 100
        assert 0 <= parsed.after <= MAX_ID
