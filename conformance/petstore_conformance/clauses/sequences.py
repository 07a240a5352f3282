"""The clause [model]: whole sequences of calls, made by the state machine within a minute."""

import asyncio
from collections import Counter
from time import monotonic
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from petstore_conformance.harness.alarm import OverdueError, alarm
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.kit import LIMIT_SECONDS, Kit, in_scratch, judged
from petstore_conformance.model.machine import ModelMachine

DEFAULT_EXAMPLES = 20  # how many sequences of steps are tried
MODEL_SECONDS = 40.0  # then no call is made: in the rest of the minute a failure is repeated

DRAWN = settings(
    max_examples=10,  # of more, Hypothesis makes five in six from parts of the one before
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
"""How Hypothesis draws sequences: so few at a time that each is drawn anew."""


class ModelClause(Kit):
    """The clause of whole sequences of calls."""

    machine_examples: ClassVar[int] = DEFAULT_EXAMPLES
    """How many sequences are run, at least 10 and in tens, unless the time is over before."""

    def test_it_returns_what_plain_lists_would(self) -> None:
        """Methods that work alone fail in combination."""
        __tracebackhide__ = True

        class Machine(ModelMachine):
            kit, reached, end = self, Counter[str](), monotonic() + MODEL_SECONDS

        reached, rounds = Machine.reached, max(1, self.machine_examples // DRAWN.max_examples)
        with judged(self, "model"), alarm(LIMIT_SECONDS):
            asyncio.run(in_scratch(self))  # skips if the storage cannot be reached
            try:
                for _ in range(rounds):
                    seed(current().random.random())(Machine)
                    run_state_machine_as_test(Machine, settings=DRAWN)
            except SystemError as error:
                if "AST constructor" not in f"{error}":  # a bug of CPython that Hypothesis may meet
                    raise
            except Exception:
                if Machine.failure is None:
                    raise
                raise Machine.failure from None  # time was over when Hypothesis tried it again
            sequences = reached["sequences"]
            current().note(sequences, rounds * DRAWN.max_examples)
            if not sequences:
                raise OverdueError(f"no sequence of calls has ended within {MODEL_SECONDS:g} s")
        # A machine that stores hardly anything would pass with every repository.
        assert reached["pets"] >= 5 * sequences, reached
        if sequences >= 10:  # otherwise time was over, and they may lack something by chance
            assert reached["steps"] >= 10 * sequences, reached
            for name in ("orders", "updates", "replays", "refusals", "overlaps"):
                assert reached[name] >= sequences / 5, reached

    test_it_returns_what_plain_lists_would.__dict__["clause"] = "model"
