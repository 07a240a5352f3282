"""Races of the tests: run in an event loop of their own, and judged as a whole."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from petstore.conformance.faults.histories import (
    Attempt,
    Item,
    broken_promises,
    by_key,
    groundless_refusals,
    listed_twice,
    overlaps,
    sold_twice,
    wrong_keys,
    wrong_statuses,
)
from petstore.conformance.faults.linearizability import searches
from petstore.conformance.faults.racers import Turn
from petstore.conformance.faults.races import Race, is_lost, is_write
from petstore.conformance.faults.services import Service

Restart = Callable[[Any], Service]


class JudgedRace(Race):
    """A race that is run and judged by a test.

    undecided -- how many searches for an order of the requests were given up
    """

    undecided = 0

    def run(
        self,
        turn: Turn,
        *,
        clients: int,
        seconds: float,
        kills: int = 0,
        restart: Restart | None = None,
    ) -> None:
        """Run the race.

        restart -- kills a service and returns the one that replaces it
        seconds -- how long the clients go on between the start, the kills and the end
        """

        async def strike() -> None:
            assert restart is not None
            self.target.up.clear()
            self.target.live = await asyncio.to_thread(restart, self.target.live)
            if not self.gone:
                self.target.up.set()

        asyncio.run(self.play(turn, clients, seconds, [strike] * kills))

    @property
    def lost_responses(self) -> int:
        """How many keys had their effect in an attempt whose response was lost."""
        return sum(
            any(attempt.got(201) for attempt in attempts)
            and all(a.response.replayed for a in attempts if a.response and a.got(201))
            for attempts in by_key(self.history).values()
        )

    def count(self, action: str, status: int, *, replayed: bool = False) -> int:
        """How many attempts of an action got this status."""
        return sum(
            attempt.action == action and attempt.got(status) and response.replayed == replayed
            for attempt in self.history
            if (response := attempt.response)
        )

    def violations(self, *, replaced: bool = False, pages_are_moments: bool = True) -> list[str]:
        """Return all that was wrong with a race.

        replaced -- whether another server took over: then only what was acknowledged must last.
            What was read or refused may have followed from writes that were never confirmed
        pages_are_moments -- whether a page shows all its items at one moment
        """
        history, found = self.history, self.wrong + self.failed
        if replaced:
            history = [a for a in history if a.sent >= self.settled or is_write(a)]
        else:
            found += self.wrong_walks()
            found += [f"{attempt}" for attempt in history if is_lost(attempt)]
        if not self.gone:
            found += violations(*self.final, history)
        wrong, undecided = nonlinearizable(history, pages_are_moments=pages_are_moments)
        self.undecided += undecided
        return found + wrong

    def judge(self, name: str) -> list[str]:
        """Return all that was wrong, and print the figures of the race in a line."""
        pets, orders = self.final
        lost = [f"{attempt}" for attempt in self.history if is_lost(attempt)]
        found = self.wrong + self.failed + lost + violations(pets, orders, self.history)
        statuses = Counter(order["status"] for order in orders).items()
        by_status = ", ".join(f"{count} {status}" for status, count in statuses)
        replays = self.count("place", 201, replayed=True) + self.count("create", 201, replayed=True)
        sys.stdout.write(
            f"{name}: {self.clients} clients, {self.kills} kills, {len(pets)} pets,"
            f" {len(orders)} orders ({by_status}),"
            f" {self.responses} responses, {self.count('place', 409)} + {self.count('close', 409)}"
            f" refused, {replays} replayed, {self.unknown} unknown"
            f" ({self.target.unavailable} of them 503;"
            f" {self.lost_responses} had taken effect), {len(found)} violations\n"
        )
        return found


def violations(pets: list[Item], orders: list[Item], history: list[Attempt]) -> list[str]:
    """Return all that is wrong with the final pets and orders, given this history."""
    return [
        *listed_twice(pets, orders),
        *sold_twice(orders),
        *wrong_statuses(pets, orders),
        *broken_promises(pets, orders, history),
        *wrong_keys(pets, orders, history),
        *overlaps(orders, history),
        *groundless_refusals(orders, history),
    ]


def nonlinearizable(
    history: list[Attempt], *, pages_are_moments: bool = True
) -> tuple[list[str], int]:
    """Return a sentence for each part of a history that no order of its requests explains.

    pages_are_moments -- whether a page shows all its items at one moment; if not, each pet with its
        orders is searched for, but not all at once

    The second result is how many searches were given up.
    """
    found, parts = searches(history, pages_are_moments=pages_are_moments)
    for part, _, verdict, stuck in parts:
        if verdict is False:
            what = f"pet {part[0]}" if len(part) == 1 else "all pets at once"
            found.append(f"{what}: not linearizable; {stuck.attempt if stuck else 'no requests'}")
    return found, sum(verdict is None for _, _, verdict, _ in parts)
