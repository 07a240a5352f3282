"""The kit for one backend that `petstore.conformance.command` fills in; pytest collects it here."""

from petstore.conformance import Conformance


class TestConfigured(Conformance):
    """All clauses."""
