"""The test class of `petstore conformance NAME`, which sets the backend and its settings on it."""

from petstore_conformance import Conformance


class TestSelected(Conformance):
    """Has the backend that was named on the command line."""
