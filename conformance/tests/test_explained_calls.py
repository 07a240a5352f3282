"""The kit's search for an order of overlapping calls: what it must find, and what it must not."""

import pytest
from petstore_conformance.model.calls import Call, explain
from petstore_conformance.model.model import Model, Stored, Write

from petstore.contract import (
    ConflictError,
    Pet,
    PetStatus,
    RefusedError,
    Repository,
    TokenReusedError,
)

PETS = [Pet(1, "Rex", 7, PetStatus.SOLD), Pet(2, "Bo", 7, PetStatus.AVAILABLE)]
REFUSED = Write(1, "a"), ConflictError


async def never(_: Repository) -> None: ...


@pytest.mark.parametrize(
    ("calls", "explained"),
    [
        ([REFUSED, (Write(2, "a"), TokenReusedError)], True),
        ([(Write(2, "a"), TokenReusedError), REFUSED], True),
        ([(Write(2, "a"), TokenReusedError)], False),
        ([REFUSED, (Write(2, "b"), TokenReusedError)], False),
        ([REFUSED, (Write(1, "a"), TokenReusedError)], False),
    ],
)
def test_a_token_is_used_while_a_write_that_is_refused_is_in_flight(
    calls: list[tuple[Write, type[RefusedError]]], *, explained: bool
) -> None:
    model = Model(PETS, [])
    made = [Call(never, write, result, unknown=False) for write, result in calls]
    if explained:
        assert explain(model, made, Stored(PETS, [])).pets == PETS
    else:
        with pytest.raises(AssertionError, match="No order"):
            explain(model, made, Stored(PETS, []))
