"""The command: python -m tests.faults.torture --minutes 60 --seed 1 [--only sqlite]."""

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from petstore_conformance.faults import session
from petstore_conformance.faults.session import Tally
from petstore_conformance.harness.alarm import OverdueError, alarm
from petstore_conformance.harness.cores import INCONCLUSIVE

from tests.faults.torture import partitions
from tests.faults.torture.runs import LeftOutError, Run, SetUp
from tests.faults.torture.setups import SET_UPS

SetUps = dict[str, tuple[SetUp, float]]

ALL: Final[SetUps] = {**SET_UPS, "redis, partitions": (partitions.isolated, 6)}
"""Each set-up, and its share of the time."""

GRACE_SECONDS: Final = 60
"""How long the last round may go on when the time is over, before it is cut short."""

INTERRUPTED: Final = 130


def attempt(set_up: SetUp, run: Run) -> Tally:
    """Run the rounds of a set-up; return what they did. What fails around them is no verdict."""
    tally = Tally(run.seconds / 60)
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            alarm(max(0.1, run.end - time.monotonic())),
            closing(set_up(Path(directory), run)) as outcomes,
        ):
            session.repeat(outcomes, tally)
    except LeftOutError as error:  # nothing passes by not running, where everything is required
        say(f"left out: {error}")
        if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
            tally.found.add("otherwise wrong", f"left out: {error}")
    except OverdueError:
        tally.slow.append("cut short at the end of the run")
    except Exception as error:  # noqa: BLE001 - its servers did not start, for instance
        traceback.print_exc()
        tally.slow.append(f"the set-up broke: {error!r}")
    return tally


def say(*lines: str) -> None:
    """Write lines to standard output, at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def torture(set_ups: SetUps, seconds: float, seed: int, limit: float = 0) -> int:
    """Run set-ups in an order drawn from the seed; report, and return the exit status.

    When the time is over, those that have not begun are left out.

    limit -- after how many seconds the last round is cut short, if not after the usual time
    """
    began = time.monotonic()
    end = began + (limit or seconds + GRACE_SECONDS)
    shares = sum(share for _, share in set_ups.values())
    order = sorted(set_ups)
    Random(seed).shuffle(order)  # noqa: S311 - no secret
    summary, statuses = [], set()
    try:
        for name in order:
            set_up, share = set_ups[name]
            left = began + seconds - time.monotonic()
            if left <= 0:
                summary.append(f"{name}: left out, the time was over")
                continue
            say(f"{name}:")
            run = Run(seed, left * share / shares, end)
            shares -= share
            tally = attempt(set_up, run)
            summary += [f"{name}: {tally.lines()[0]}", *tally.lines()[1:]]
            statuses.add(tally.status)
    except KeyboardInterrupt:
        statuses.add(INTERRUPTED)
    minutes = (time.monotonic() - began) / 60
    say(f"\n{minutes:.1f} minutes, seed {seed}", *summary)
    return next((s for s in (INTERRUPTED, 1, INCONCLUSIVE) if s in statuses), 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the torture; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", help="the beginning of the names of set-ups")
    parser.add_argument("--isolated", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    set_ups = partitions.INSIDE if options.isolated else ALL
    chosen = {name: of for name, of in set_ups.items() if name.startswith(options.only)}
    if not chosen:
        parser.error(f"no set-up begins with {options.only}: {', '.join(set_ups)}")
    return torture(chosen, options.minutes * 60, options.seed, options.isolated)


if __name__ == "__main__":
    sys.exit(main())
