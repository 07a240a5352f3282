"""The controllers: thin, they translate between HTTP and the repository and decide nothing."""

import re
from typing import ClassVar, Final, Self, TypeVar

from litestar import Controller, Response

from petstore.api.lean import Reply
from petstore.contract import MAX_ID, Receipt
from petstore.service import Service

_ID: Final = re.compile("[1-9][0-9]{0,15}", re.ASCII)


Item = TypeVar("Item")


class ServiceController(Controller):
    """A controller of one service; `of` makes the class that Litestar is given."""

    service: ClassVar[Service]

    @classmethod
    def of(cls, service: Service) -> type[Self]:
        """Return this controller, bound to a service."""
        return type(cls.__name__, (cls,), {"service": service})


def parse_id(text: str) -> int | None:
    """Return the id that a path segment names, or None if no item can have it.

    An id is written ``[1-9][0-9]*`` and is at most `MAX_ID`; nothing else names an item.

    text -- the segment as it was sent, not unescaped: ``%31`` is no 1
    """
    if not _ID.fullmatch(text) or (number := int(text)) > MAX_ID:
        return None
    return number


def created(item: Item, collection: str, receipt: Receipt) -> Response[Item]:
    """Return the 201 of an item that was added to a collection, now or by an earlier request.

    Its ``Location`` (RFC 9110, section 10.2.2) is a path below the collection's.

    item -- the body
    collection -- its public path
    receipt -- which id it has, and whether ``Idempotency-Replayed`` is told
    """
    headers = {"location": f"{collection}/{receipt.id}"}
    if receipt.replayed:
        headers["idempotency-replayed"] = "true"
    return Reply(item, status_code=201, headers=headers)
