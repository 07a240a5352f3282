"""The test class that `petstore-conformance test NAME` runs; the command sets its attributes."""

from petstore_conformance import Conformance


class TestSelected(Conformance):
    """Has the backend that was named on the command line."""
