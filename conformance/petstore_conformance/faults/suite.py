"""The class with which authors of backends run fault injection from pytest."""

import asyncio
import secrets
from typing import ClassVar

import pytest

from petstore_conformance.faults import session
from petstore_conformance.faults.options import FaultOptions
from petstore_conformance.faults.subjects import Subject
from petstore_conformance.harness.kit import INCONCLUSIVE_REASON, Kit, in_scratch


class FaultConformance(Kit):
    """Starts services on scratch locations and kills them, as the option ``--faults`` does.

    name -- that of the entry point, by which a service finds the backend
    minutes, timeout_seconds, server, faults -- those options of the command
    seed -- that of the run to repeat; if there is none, each run has its own

    With the methods `server_kill` or `server_stop`, and `server_start`, the server is killed or
    stopped, too; with `server_empty`, it is emptied; with `server_save` and `server_restore`, an
    older copy takes its place. They have no arguments, and are called in a
    thread. Each returns when it has done its work, and raises an exception if it cannot.
    """

    name: ClassVar[str]
    minutes: ClassVar[float] = 2
    timeout_seconds: ClassVar[float] = 10
    server: ClassVar[str | None] = None
    faults: ClassVar[tuple[str, ...]] = ()
    seed: ClassVar[int | None] = None

    def test_faults(self) -> None:
        """Responses of the service, while it was killed, contradict the contract."""
        commands = (field for field in FaultOptions.__struct_fields__ if field[:7] == "server_")
        options = FaultOptions(
            minutes=self.minutes,
            seed=secrets.randbelow(2**32) if self.seed is None else self.seed,
            timeout_seconds=self.timeout_seconds,
            server=self.server,
            only=self.faults,
            **{name: getattr(self, name, None) for name in commands},
        )
        asyncio.run(in_scratch(self))  # skips if the storage cannot be reached
        subject = Subject(self.name, self.name, self.backend, self.settings)
        tally = session.run(subject, options)
        if tally.violations:
            pytest.fail("\n".join(tally.lines()), pytrace=False)
        if tally.slow:
            pytest.skip(f"{INCONCLUSIVE_REASON}: {tally.slow[0]}")
