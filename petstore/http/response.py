"""What a handler returns."""

from typing import Generic, TypeVar

from msgspec import Struct

from petstore.http.headers import Header

Content = TypeVar("Content")


class Response(Struct, Generic[Content], gc=False):
    """What a handler returns if its content does not say everything.

    headers -- beside those of every response of the operation, names in lower case; it is changed
    status -- None for that of the operation
    media_type -- None for that of the operation
    """

    content: Content
    headers: list[Header] = []
    status: int | None = None
    media_type: str | None = None
