"""Pages: opaque cursors, and `Link`. The guarantees of a walk, the kit tests over HTTP, too."""

import re
from itertools import product

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore.config.settings import Settings
from petstore.contract import MAX_ID, Pet, PetQuery, PetStatus
from petstore.http import pagination
from petstore.http.errors import ApiError
from tests.support.interface import ORDERS, PETS
from tests.support.pets import REX, add_pet, add_pets
from tests.support.responses import ids, next_link, pages
from tests.support.services import Live, in_thread

COLLECTION = pagination.Collection("p", PetQuery, "/v1/pets")


@pytest.mark.parametrize("count", [0, 1, 6, 7, 21])
def test_only_the_last_page_has_no_link_and_no_page_is_empty(fresh: Live, count: int) -> None:
    added = sorted(add_pets(fresh, count))
    for limit in (1, 2, 3, 7, 100):
        found = [ids(page) for page in pages(fresh.client, f"{PETS}?limit={limit}")]
        assert [id_ for page in found for id_ in page] == added
        assert all(len(page) == limit for page in found[:-1])
        assert found[-1] or not added


def test_links_and_locations_begin_with_the_public_prefix() -> None:
    with in_thread(Settings(root_path="/shop", drain_seconds=0)) as live:
        for path in (PETS, ORDERS):
            for _ in range(2):
                body = REX | {"petId": add_pet(live)}
                location = live.client.post(path, json=body).headers["location"]
                assert re.fullmatch(f"/shop{path}/[1-9][0-9]*", location)
            link = next_link(live.client.get(f"{path}?limit=1"))
            assert (link or "").startswith(f"/shop{path}?")
        successor = live.client.get(f"{PETS}/1").headers["link"]
        assert successor.startswith("</shop/v1/pets>")
        document = live.client.get("/openapi.json").json()
        assert document["servers"][0]["url"] == "/shop/v1"


@given(after=st.integers(0, MAX_ID))
def test_every_id_has_a_cursor_that_parses_back(after: int) -> None:
    query = f"cursor={pagination.encode_cursor('p', after)}".encode()
    assert COLLECTION.parse(query).after == after
    assert re.fullmatch(COLLECTION.cursor_pattern, pagination.encode_cursor("p", after))


@given(
    limit=st.integers(1, 100),
    status=st.none() | st.sampled_from(PetStatus),
    after=st.integers(0, MAX_ID - 101),
)
def test_a_link_parses_back_to_the_query_of_the_next_page(
    limit: int, status: PetStatus | None, after: int
) -> None:
    items = [Pet(after + n + 1, "", 0) for n in range(limit + 1)]
    page = COLLECTION.page(PetQuery(after, limit + 1, status), items, "/shop")
    assert len(page.content) == limit
    ((name, link),) = page.headers
    assert name == b"link"
    query = httpx.URL(link[1 : link.index(b">")].decode()).query
    assert COLLECTION.parse(query) == PetQuery(after + limit, limit + 1, status)


def _outcome(query: bytes) -> object:
    try:
        return COLLECTION.parse(query)
    except ApiError as error:
        return str(error)


def test_a_query_means_the_same_whether_or_not_its_parts_are_remembered() -> None:
    cursor = b"cursor=p00000000000014"
    before = (b"", b"&", b"x", b"=", b"%26", b"status=", b"limit=7&", b"limit=7", b"limit=0&")
    texts = (b"p1fffffffffffff", b"p2fffffffffffff", b"p0000000000001A", b"o00000000000014", b"p2")
    cursors = (cursor, *(b"cursor=" + text for text in texts))
    behind = (b"", b"&", b"f", b"=", b"%20", b"+", b"\xff", b"&status=sold", b"&status=x", b"&%")
    more = (b"", b"&other=1", b"&" + cursor, b"&%63ursor=", b"&limit=8")
    for parts in product(before, cursors, behind, more):
        query = b"".join(parts)
        long = query + b"&" + b"x" * 100  # nothing of it is kept
        assert _outcome(query) == _outcome(long), query
