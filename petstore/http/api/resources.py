"""What the controllers of pets and orders share: ids in paths, and the response to a creation."""

import re
from typing import Final, TypeVar

from petstore.contract import MAX_ID, Receipt
from petstore.http.request import Response, ServiceRequest

_ID: Final = re.compile("[1-9][0-9]{0,15}", re.ASCII)

Item = TypeVar("Item")


def parse_id(segment: str) -> int | None:
    """Return the id in a path segment, or None if no item can have it.

    An id is written ``[1-9][0-9]*`` and is at most `MAX_ID`.

    segment -- as it was sent, not decoded: ``%31`` is not 1
    """
    if not _ID.fullmatch(segment) or (id_ := int(segment)) > MAX_ID:
        return None
    return id_


def created(
    request: ServiceRequest, collection: str, item: Item, receipt: Receipt
) -> Response[Item]:
    """Return the 201 for an item that was created, by this request or an earlier one.

    Its ``Location`` (RFC 9110, section 10.2.2) is a path below the collection's. Unless it
    is a replay, which writes nothing, it shows that the storage accepts writes.

    collection -- the path of the collection
    item -- the body
    receipt -- the id, and whether this is a replay
    """
    service = request.service
    location = (b"location", f"{service.root_path}{collection}/{receipt.id}".encode())
    if receipt.replayed:
        return Response(item, [location, (b"idempotency-replayed", b"true")])
    service.storage_health.wrote()
    return Response(item, [location])
