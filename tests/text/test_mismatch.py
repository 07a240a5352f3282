"""What the client is told about JSON that does not match its type."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from petstore.text.mismatch import MAX_CHARACTERS, explain


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(Struct, forbid_unknown_fields=True):
    color: Color | UnsetType = UNSET
    tags: list[str] = []


class Outer(Struct, rename="camel"):
    item_name: str = "x"
    count: Annotated[int, Meta(ge=1, le=9)] | None = None
    ratio: Annotated[float, Meta(gt=0)] = 1.0
    at: Annotated[datetime, Meta(tz=True)] | None = None
    inner: Inner | UnsetType = UNSET


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", "body: expected an object, got an integer"),
        ('{"count": 0}', "body.count: expected an integer of at least 1"),
        ('{"count": 10}', "body.count: expected an integer of at most 9"),
        ('{"count": "1"}', "body.count: expected an integer or null, got a string"),
        ('{"ratio": 0.0}', "body.ratio: expected a number of more than 0.0"),
        ('{"ratio": true}', "body.ratio: expected a number, got a boolean"),
        ('{"at": "today"}', "body.at: expected a time with its offset from UTC, for instance 2"),
        ('{"inner": {"color": "red "}}', "body.inner.color: expected one of `blue`, `red`"),
        ('{"inner": {"tags": [7]}}', "body.inner.tags[0]: expected a string, got an integer"),
        ('{"inner": {"a - at `$.b`": 1}}', "body.inner: unknown member `a - at `$.b``; leave it"),
        ('{"inner": {"%s": 1}}' % ("a" * 999), "body.inner: unknown member `aaa"),
    ],
)
def test_it_is_said_in_plain_words(text: str, expected: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=Outer)
    message = explain(caught.value, Outer, "body")
    assert message.startswith(expected)
    assert len(message) <= MAX_CHARACTERS + len("...")
