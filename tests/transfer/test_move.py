"""The recipe for a move, with live clients: nothing is lost, and nothing takes effect twice."""

import asyncio
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from petstore_conformance.faults.races import Client, Race, play
from petstore_conformance.faults.services import Endpoint
from petstore_conformance.faults.verdicts import judge

from tests.support.command import run_command
from tests.support.services import Live, process
from tests.support.transfer import place_settings
from tests.support.waiting import HANG_SECONDS

CLIENTS: Final = 6
SECONDS: Final = 1
REPEATED: Final = 20  # how many of the oldest and of the newest keys are repeated after each move


def run(command: str, file: Path, chosen: dict[str, str]) -> str:
    """Run a command that must succeed; return its standard error."""
    done = run_command(command, str(file), **chosen)
    assert done.status == 0, done
    return done.stderr


@pytest.mark.slow
def test_a_service_moves_under_its_clients(tmp_path: Path) -> None:
    backends = ("sqlite", "postgres", "redis")
    locations = [place_settings(backend, tmp_path / backend) for backend in backends]
    locations[-1]["redis_partitions"] = "3"

    with ExitStack() as stack:

        def serve(name: str, **chosen: str) -> Live:
            directory = tmp_path / name
            directory.mkdir()
            return stack.enter_context(process(directory, workers="2", drain_seconds="5", **chosen))

        def follow(source: dict[str, str], target: dict[str, str]) -> None:
            """Follow the recipe of docs/operating.md."""
            old = race.target.live
            reading = serve(f"reading-{source['backend']}", read_only="true", **source)
            race.target.live = reading
            assert isinstance(old, Live)
            assert old.stop() == 0
            file = tmp_path / f"{source['backend']}.ndjson"
            run("export", file, source)
            run("import", file, target)
            assert run("verify", file, target).endswith("; all are equal\n")
            race.target.live = serve(f"moved-to-{target['backend']}", **target)
            assert reading.stop() == 0

        async def move(source: dict[str, str], target: dict[str, str]) -> None:
            await asyncio.to_thread(follow, source, target)
            made = [a for a in race.history if a.action in {"create", "place"} and a.got(201)]
            client = Client(race, -3)
            for attempt in made[:REPEATED] + made[-REPEATED:]:
                await client.send(attempt.action, attempt.key, attempt.id_)
            client.close()

        # An old service may close a connection that a read would use.
        race = Race(Endpoint(serve("first", **locations[0])), reconnecting=1)
        moves = [partial(move, *pair) for pair in pairwise(locations)]
        asyncio.run(asyncio.wait_for(play(race, CLIENTS, SECONDS, moves), 5 * HANG_SECONDS))
    found, _ = judge(race, ended=True)
    assert found == {}
    reads = [a for a in race.history if a.action in {"pet", "order", "pets", "orders"}]
    assert race.target.unavailable, "writes are refused meanwhile"
    assert not [attempt for attempt in reads if attempt.response is None], "a read was refused"
