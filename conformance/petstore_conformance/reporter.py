"""A pytest plugin that prints a line for each clause; if it fails, also what was compared."""

import inspect
import re
from collections.abc import Callable, Collection, Generator
from typing import Any, Final

import pytest
from msgspec import Struct

from petstore_conformance import REWRITTEN
from petstore_conformance.faults.subjects import Subject
from petstore_conformance.harness import effort
from petstore_conformance.harness.alarm import is_late
from petstore_conformance.harness.kit import INCONCLUSIVE_REASON, Kit, clauses, sentences

_WORDS: Final = {"passed": "ok", "failed": "FAILED", "skipped": "-", "inconclusive": "SLOW"}

NARROW_FIRST: Final = (  # all clauses, the narrowest first
    "no-aliasing",  # what it does to a shared list is seen wherever that is read later
    *("scratch-empty", "page-empty", "id-range", "get-absent", "id-once"),
    *("status-exact", "get-stored", "order-id", "exact-types", "page-order", "page-status"),
    *("page-after", "order-of-nothing", "order-get", "order-reserves", "order-completed"),
    *("order-cancelled", "order-final", "name-exact", "page-count", "page-walk", "orders-status"),
    # The cost is that of calls which are right: it measures full pages, and orders of nothing.
    *("orders-page", "cost", "order-refused", "order-same", "token-replayed", "healthy"),
    # What an order loses on its way, it also loses when it is restored, perhaps before a refusal.
    *("category-exact", "order-exact", "restore-exact", "token-apart", "token-refused"),
    *("sold-once", "page-overlap", "failure-passed", "durable-pets", "restore-sizes"),
    # What closing loses, or a long list, is also not there before a refusal.
    *("restore-order", "restore-next", "restore-again", "restore-other"),
    # What disturbs others also holds up those beside a call that is cancelled.
    *("after-cancellation", "cancellation", "cancelled-write", "order-absent", "event-loop"),
    # What counts after its time is also not deleted, or deleted too early.
    *("token-expired", "token-deleted", "token-atomic", "token-reused", "durable-orders"),
    *("read-after-write", "durable-ids", "scratch-apart", "shared-ids", "store-kept"),
    *("durable-reads", "store-identity", "restore-token", "token-walk", "overlapping-calls"),
    # What goes wrong between processes is also not there after a kill.
    *("shared-reads", "shared-orders", "shared-processes", "durable-killed", "closed", "snapshot"),
    *("store-expected", "store-gone", "restore-live", "model"),
)
"""Most breaches fail several clauses: first are those that hardly ever fail for another reason.

That was measured with the saboteurs. What is fitted to some of them gains less on the others
(record 6), so a clause moves only for a reason that can be said.
"""


class ClauseResult(Struct, frozen=True, omit_defaults=True):
    """The result of a clause in the JSON report.

    outcome -- "passed", "failed", "skipped", "inconclusive" or "not run"
    reason -- why it has not passed
    share -- that of its values that was tried, from 0 to 1; like the next two, only if it was run
    seconds -- how long its test took
    calls -- how many calls of a repository it made
    """

    clause: str
    outcome: str
    reason: str | None = None
    share: float | None = None
    seconds: float | None = None
    calls: int | None = None


class Reporter:
    """Runs the kit against one backend.

    chosen -- the names of the clauses to run; all if there are none
    stopping -- returns whether a signal to stop has arrived since it was last called
    interrupted -- whether Ctrl-C, or a signal treated like it, has ended the run
    results -- name of each clause that was run -> its result
    """

    stopping: Callable[[], bool]
    _tested: type[Kit]

    def __init__(self, subject: Subject, chosen: Collection[str]) -> None:
        self.subject = subject
        self.chosen = chosen or sentences().keys()
        self.interrupted = False
        self.results: dict[str, ClauseResult] = {}
        self._clauses: dict[str, str] = {}  # of each test
        self._late = set[str]()  # failed because something did not end, or was unavailable

    def pytest_configure(self) -> None:
        """Import the clauses, not earlier: pytest rewrites only what is imported from now on."""
        pytest.register_assert_rewrite(*REWRITTEN)
        from petstore_conformance.suite import Conformance  # noqa: PLC0415 - see above

        Conformance.backend = self.subject.backend
        Conformance.settings = self.subject.settings
        Conformance.explains = False
        self._tested = Conformance
        self._clauses = {test: clause for clause, test in clauses(Conformance).items()}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the clauses that were not chosen."""
        items[:] = [item for item in items if self._clauses[item.name] in self.chosen]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Describe a failure by the frames of plugin and kit, even if its text cannot be had."""
        try:
            report = yield
        except Exception:  # noqa: BLE001 - the exception of a driver cannot be shown
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", None, "call")
        if call.excinfo and not isinstance(call.excinfo.value, pytest.skip.Exception):
            report.longrepr = self._describe(call.excinfo)
            clause = self._clauses[item.name]
            if is_late(clause, call.excinfo.value):
                self._late.add(clause)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the line of a clause whose test has run."""
        if report.when != "call" and report.passed:
            return
        test = report.location[2].rpartition(".")[2]
        clause = self._clauses[test]
        skip = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reason = skip.removeprefix("Skipped: ")
        slow = reason.startswith(INCONCLUSIVE_REASON)
        outcome = "inconclusive" if slow else report.outcome
        print(f"{_WORDS[outcome]:<8}{clause:<20}{sentences()[clause]}", flush=True)
        tried = effort.EFFORTS.get(clause)
        if slow:
            print(f"        {reason}", flush=True)
        elif tried and tried.share < 1:
            print(f"        tried {tried.share:.0%} of its values", flush=True)
        if report.failed:
            shown = re.sub(r"\n.*(Full output truncated|Use -v to get).*", "", report.longreprtext)
            if clause not in self._late:
                print(f"        Probably: {inspect.getdoc(getattr(self._tested, test))}")
            print(f"\n{shown}\n", flush=True)
            reason = shown.strip()
        reason = reason.encode(errors="backslashreplace").decode()
        measured = (round(tried.share, 3), round(report.duration, 3), tried.calls) if tried else ()
        self.results[clause] = ClauseResult(clause, outcome, reason or None, *measured)

    def share(self) -> tuple[float, str | None]:
        """Return the smallest share of its values that any clause has tried, and that clause.

        The clause is None if all tried all. Those that failed or were skipped do not count.
        """
        judged = [r for r in self.results.values() if r.outcome in ("passed", "inconclusive")]
        shares = [(r.share, r.clause) for r in judged if r.share is not None and r.share < 1]
        return min(shares, default=(1.0, None))

    def broken(self) -> list[str]:
        """Return the clauses that failed, first the one that names the breach most narrowly."""
        return begin_with(self.named("failed"), self._late)

    def named(self, outcome: str) -> list[str]:
        """Return the clauses with an outcome."""
        return [name for name, result in self.results.items() if result.outcome == outcome]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """End the run after a clause if a signal to stop has arrived whose exception was lost."""
        result = yield
        if self.stopping():
            self.interrupted = True
            item.session.shouldstop = "interrupted"
        return result

    def pytest_keyboard_interrupt(self) -> None:
        """Take note that the run was interrupted, which is no failure."""
        self.interrupted = True

    def _describe(self, failure: pytest.ExceptionInfo[BaseException]) -> str:
        try:
            text = str(failure.getrepr(style="long", tbfilter=self._own_frames))
        except Exception:  # noqa: BLE001 - str() or repr() of what the driver has raised fails
            return f"{object.__repr__(failure.value)}, which cannot be shown"
        module = str(failure.traceback[-1].frame.f_globals.get("__name__"))
        if failure.errisinstance((AttributeError, TypeError)) and module.startswith(REWRITTEN):
            return (
                "A method takes or returns something else than the contract says, such as None"
                f" instead of a receipt. The test has found it here:\n\n{text}"
            )
        return text

    def _own_frames(self, failure: pytest.ExceptionInfo[BaseException]) -> Any:
        """Return the frames of plugin and kit, those between the first and the last in one line."""
        backend = self.subject.backend
        parts = (backend.open, backend.scratch, backend.settings)
        plugin = {(getattr(part, "__module__", None) or "").partition(".")[0] for part in parts}

        def is_own(entry: Any) -> bool:
            name = str(entry.frame.f_globals.get("__name__"))
            return name.partition(".")[0] in plugin or name.startswith(REWRITTEN)

        own = [e for e in failure.traceback if is_own(e) and not e.ishidden(failure)]
        short = [entry.with_repr_style("short") for entry in own[1:-1]]
        return type(failure.traceback)([*own[:1], *short, *own[1:][-1:]] or failure.traceback[-1:])


def begin_with(failed: Collection[str], late: Collection[str]) -> list[str]:
    """Return the clauses that failed, first the one that names most narrowly what is wrong.

    late -- those of them whose failure `is_late`
    """
    return sorted(failed, key=lambda clause: (clause in late, NARROW_FIRST.index(clause)))
