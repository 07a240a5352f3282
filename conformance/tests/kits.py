"""The conformance kit as an object whose tests are called one by one."""

from typing import Any

from petstore_conformance import Conformance
from petstore_conformance.clauses.sequences import DEFAULT_EXAMPLES

from petstore.contract import Backend


def kit(backend: Backend, settings: Any, examples: int = DEFAULT_EXAMPLES) -> Conformance:
    """Return the kit of a backend.

    examples -- how many sequences of calls the clause `model` tries
    """

    class Tested(Conformance):
        machine_examples = examples

    Tested.backend, Tested.settings = backend, settings
    return Tested()
