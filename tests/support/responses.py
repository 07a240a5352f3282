"""Responses: check error bodies, and follow pages from one to the next."""

import re
from collections.abc import Iterable, Iterator

import httpx
from petstore_conformance.faults.histories import Item


def check_error(response: httpx.Response, status: int, code: str) -> str:
    """Check that a response is the documented error and nothing else; return its message."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"code", "message", "status"}
    assert body["code"] == code
    assert body["status"] == status
    assert isinstance(body["message"], str)
    assert body["message"]
    return str(body["message"])


def next_link(response: httpx.Response) -> str | None:
    """Return the link to the next page, or None on the last page."""
    if (link := response.headers.get("link")) is None:
        return None
    match = re.fullmatch(r'<(/[^>]*)>; rel="next"', link)
    assert match is not None
    return match[1]


def pages(client: httpx.Client, url: str) -> Iterator[list[Item]]:
    """Yield the items of a page and of all pages after it."""
    following: str | None = url
    while following is not None:
        response = client.get(following)
        assert response.status_code == 200
        yield response.json()
        following = next_link(response)


def walk(client: httpx.Client, path: str) -> list[Item]:
    """Return all pets or orders, from page to page."""
    return [item for page in pages(client, f"{path}?limit=100") for item in page]


def ids(items: Iterable[Item]) -> list[int]:
    """Return the ids of pets or orders."""
    return [item["id"] for item in items]
