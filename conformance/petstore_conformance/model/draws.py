"""What the machine draws for its steps: strategies of Hypothesis."""

from hypothesis import strategies as st

from petstore.contract import NewPet, OrderStatus, PetStatus
from petstore_conformance.model.values import CATEGORIES, DAY_SECONDS, NAMES, PET_STATUSES, TIMES

HANDLES = 3
"""How many times a location that can be shared is opened at once."""

NEW_PETS = st.builds(
    NewPet,
    name=st.sampled_from(["", "Rex", "rex", " Rex", *NAMES]) | st.text(max_size=6),
    category_id=st.sampled_from([0, *CATEGORIES]) | st.integers(-(2**63), 2**63 - 1),
    status=st.sampled_from([PET_STATUSES[-1], *PetStatus]),
)
PET_FILTERS = st.sampled_from([None, *PetStatus])
ORDER_FILTERS = st.sampled_from([None, *OrderStatus])
INDEXES = st.integers(0, 40)
FEW_INDEXES = st.integers(0, 5)

# Distances from the id of a pet or an order, for ids that may be absent and pages that begin there.
OFFSETS = st.sampled_from([-2, -1, 0, 1, 2])

RARELY = st.sampled_from([False, False, True])
TOKEN_NAMES = st.none() | st.sampled_from("abcdefgh")
GAPS = st.sampled_from([0, 1, 3, 2**31, 2**33 + 1])
HOURS = st.sampled_from([1, 11, 12, 24])
PLACED_AT = st.sampled_from(TIMES)

# The clock of a caller may be slow, and its records may be valid for less or more than a day.
BEHIND = st.sampled_from([0, 0, 1, 3600, DAY_SECONDS])
SECONDS = st.sampled_from([DAY_SECONDS, DAY_SECONDS, 1, 3600, 10 * DAY_SECONDS])

OVERLAPPING = st.lists(
    st.tuples(
        st.sampled_from(["create", "place", "place", "update", "update", "pet", "order"]),
        FEW_INDEXES,
        st.sampled_from([None, None, "a", "b"]),
        st.sampled_from(OrderStatus),
        st.integers(0, HANDLES - 1),
    ),
    min_size=2,
    max_size=5,
)
