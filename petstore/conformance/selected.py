"""The test class of `petstore conformance NAME`, which sets the backend and its settings on it."""

from petstore.conformance import Conformance


class TestSelected(Conformance):
    """All clauses."""
