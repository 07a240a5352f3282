"""The violations in the history of a race, by kind, and the shortest piece that shows each."""

from collections import Counter
from typing import Final

from msgspec import Struct, field

from petstore_conformance.faults import histories
from petstore_conformance.faults.linearizability import RecordedCall, operations_of, search
from petstore_conformance.faults.races import Race

KINDS: Final = {  # the kinds of violations, and what they mean
    "lost": "acknowledged, and gone or changed later",
    "given out twice": "one id for two pets, or for two orders",
    "sold twice": "a pet in two orders at the same time",
    "retried twice": "an Idempotency-Key with two effects, or forgotten",
    "sent twice": "a call without a token that took effect twice",
    "not linearizable": "no order of the requests explains the responses",
    "too late": "calls that took longer than --timeout-seconds",
    "wrong error": "another status than 503, another error than UnavailableError",
    "not recovered": "no responses soon after a fault had ended",
    "emptied": "served, though the store was emptied, or was an older copy",
    "not cancelled": "cancelled calls that did not end soon",
    "otherwise wrong": "a response that is wrong whatever happened before",
}

# A busy machine may explain these.
BY_TIME: Final = ("too late", "not recovered", "emptied", "not cancelled")


class Findings(dict[str, list[str]]):
    """The violations that were found, by their kinds."""

    def add(self, kind: str, *texts: str) -> None:
        """Add violations of a kind, if there are any."""
        if texts:
            self.setdefault(kind, []).extend(texts)


class RoundOutcome(Struct):
    """The faults of one round, and the violations that were found.

    what -- the faults
    slow -- what was inconclusive, because the machine is too busy
    """

    what: str
    counts: Counter[str] = field(default_factory=Counter)
    found: Findings = field(default_factory=Findings)
    slow: list[str] = field(default_factory=list)


def judge(race: Race, *, ended: bool) -> tuple[Findings, Counter[str]]:
    """Return the violations of a race by kind, and how many searches were given up.

    ended -- whether it came to its end, so that `race.final` is what was stored then
    """
    history = race.before_gone()
    found = Findings()
    found.add("too late", *race.target.late)
    found.add("wrong error", *race.failed)
    # A write that did not find its pet or order, which had been acknowledged.
    found.add("lost", *(str(a) for a in history if a.writes and a.got(404)))
    by_one_store = [a for a in race.history if a.ended < race.gone_at or a.sent > race.missed_at]
    found.add("given out twice", *histories.given_twice(by_one_store))
    found.add("retried twice", *histories.wrong_keys(history))
    found.add("otherwise wrong", *histories.wrong_items(history))
    found.add("lost", *histories.changed(history))
    if ended:
        pets, orders = race.final
        gone = histories.lost(pets, orders, history)
        found.add("lost", *(f"{attempt}, but at the end that is lost" for attempt in gone))
        found.add("sold twice", *histories.sold_twice(orders))
        found.add("retried twice", *histories.unreturned(pets, orders, history))
        found.add("not linearizable", *histories.wrong_statuses(pets, orders))
    counts = Counter[str]()
    for pet, operations in operations_of(history).items():
        verdict, stuck = search(operations)
        counts["searches given up"] += verdict is None
        if stuck:
            piece = "\n".join(f"  {line}" for line in shorten(operations, stuck))
            found.add("not linearizable", f"pet {pet}:\n{piece}")
    return found, counts


def shorten(operations: list[RecordedCall], stuck: RecordedCall) -> list[str]:
    """Return the shortest piece of a history that cannot be explained, a line for each request.

    What was sent after the request at which the search got stuck explains nothing, and is dropped;
    then each request that changes nothing and without which the piece still cannot be explained.
    """
    kept = [o for o in operations if o.sent <= stuck.ended]
    for operation in [o for o in kept if o is not stuck and not o.attempt.may_have_written]:
        fewer = [o for o in kept if o is not operation]
        if search(fewer)[0] is False:
            kept = fewer
    begin, lines = kept[0].sent, []
    for o in kept:
        times = f"{o.attempt.sent - begin:8.3f} to {o.attempt.ended - begin:.3f} s"
        lines.append(f"{times}: {o.attempt}{' <- here' if o is stuck else ''}")
    before = len(lines) - 24  # these fit on a screen, and most pieces are shorter
    return [f"... {before} requests before", *lines[before:]] if before > 0 else lines
