"""No pet is sold twice, and no key takes effect twice: under races, kills and retries."""

import os
from pathlib import Path

from petstore_memory import MemoryRepository

from petstore.conformance.faults.racers import Client, Turn
from tests.support.plugins import plugin_of
from tests.support.races import JudgedRace, Restart
from tests.support.racy import Careless, Forgetful
from tests.support.services import BACKEND, Live, Start, in_thread, place

KILLS = int(os.environ.get("PETSTORE_KILLS", "2"))
CLIENTS = int(os.environ.get("PETSTORE_CLIENTS", "240"))
SECONDS = float(os.environ.get("PETSTORE_RACE_SECONDS", "2.5"))
FLOOR = 20
"""How many orders must have been placed, and how many refused, so that there was a race."""

RACED = "sqlite" if BACKEND == "memory" else BACKEND
"""A backend that two workers can share."""


def started(start: Start, directory: Path) -> tuple[Live, Restart]:
    """Start two workers; return the service, and a function that kills and restarts it."""
    settings = {"backend": RACED, "workers": "2", "log": "off"} | place(RACED, directory)

    def restart(live: Live) -> Live:
        live.kill()
        return start(**settings)

    return start(**settings), restart


def check_floors(race: JudgedRace) -> None:
    assert race.count("place", 201) >= FLOOR
    assert race.count("place", 409) >= FLOOR
    assert race.count("close", 200) >= FLOOR
    assert race.count("place", 201, replayed=True) >= FLOOR / 2


def test_hundreds_of_clients_never_order_a_pet_twice(tmp_path: Path, start: Start) -> None:
    live, _ = started(start, tmp_path)
    race = JudgedRace(live)
    race.run(Client.shop, clients=CLIENTS, seconds=SECONDS)
    assert race.judge("race") == []
    check_floors(race)
    assert race.pages >= FLOOR
    assert race.unknown == 0


def test_no_pet_is_sold_twice_by_a_service_that_is_killed(tmp_path: Path, start: Start) -> None:
    live, restart = started(start, tmp_path)
    race = JudgedRace(live)
    race.run(Client.shop, clients=CLIENTS, seconds=SECONDS / 3, kills=KILLS, restart=restart)
    assert race.judge("killed race") == []
    check_floors(race)
    assert race.unknown >= KILLS * CLIENTS / 4  # the kills met requests in flight


def test_a_key_creates_one_pet_however_often_the_service_is_killed(
    tmp_path: Path, start: Start
) -> None:
    live, restart = started(start, tmp_path)
    race = JudgedRace(live)
    race.run(Client.create, clients=32, seconds=0.5, kills=KILLS, restart=restart)
    assert race.judge("killed retries") == []
    assert race.unknown >= KILLS * 8
    assert race.count("create", 201) >= FLOOR
    assert race.count("create", 201, replayed=True) >= FLOOR
    assert race.lost_responses > 0 or KILLS < 10  # a kill fell between an effect and its response


def raced(repository: MemoryRepository, turn: Turn) -> list[str]:
    """Run a small race with a service in a thread; return what was wrong."""
    with in_thread(plugin=plugin_of(repository)) as live:
        race = JudgedRace(live)
        race.run(turn, clients=40, seconds=1)
        return race.judge(type(repository).__name__)


def test_a_race_detects_a_store_that_checks_first_and_changes_later() -> None:
    found = raced(Careless(), Client.shop)
    assert [text for text in found if "in two orders that are placed or completed" in text]
    assert [text for text in found if "at the same time" in text]


def test_a_race_detects_a_store_that_looks_for_the_token_first_and_records_it_later() -> None:
    found = raced(Forgetful(), Client.create)
    assert [text for text in found if "different responses" in text]
    assert [text for text in found if "it is stored twice" in text]


def test_a_race_finds_nothing_wrong_with_a_correct_store() -> None:
    assert raced(MemoryRepository(), Client.shop) == []
