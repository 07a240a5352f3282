"""Id ranges, without a server: servers that draw different id ranges never meet."""

from typing import Any

import pytest
from fakeredis import FakeRedis
from petstore_redis.scripts import ID_RANGES, RUN, Outcome, Scripts, keys

from petstore.contract import MAX_ID

NO_TOKEN = ""
ROUND = RUN * ID_RANGES
ASKED = "redis.call('INFO', 'replication')"
ANSWER = "'master_replid:known'"  # fakeredis has no INFO


class Partition:
    """A partition of an empty store on a server that has drawn this id range."""

    def __init__(self, id_range: int, size: int = 1, number: int = 0) -> None:
        self.place = size, number
        self.names = keys("test", number)
        self.server = FakeRedis()
        meta = {"id_range": id_range, "replid": "known", "store": "s"}
        self.server.hset(self.names["meta"], mapping=meta)

    def restored(self, highest: int) -> None:
        """Raise the counter as a restored pet does."""
        self._run("restore", "counters", (highest + self.place[0] - 1) // self.place[0], 0)

    def assign(self) -> int | None:
        """Return the id of a new pet, None if none is left."""
        _, result = self._run("create_pets", '{"id":', ',"a":1}', NO_TOKEN)
        return None if result == [Outcome.FULL] else int(result)

    def _run(self, name: str, *arguments: object) -> list[Any]:
        script = getattr(Scripts(), name)
        text = script.text.replace(ASKED, ANSWER)
        given = [self.names[key] for key in script.keys]
        result: list[Any] = self.server.eval(text, len(given), *given, *arguments, *self.place, "s")
        return result


@pytest.mark.parametrize(("size", "id_range"), [(1, 0), (3, ID_RANGES - 2), (7, 1), (1024, 77)])
def test_a_server_assigns_only_ids_of_its_range_upwards(size: int, id_range: int) -> None:
    for number in {0, size // 2, size - 1}:
        partition = Partition(id_range, size, number)
        ids: list[int] = []
        for known in (
            0,
            RUN - 3 * size,
            5 * ROUND + id_range * RUN + RUN // 2,
            9 * ROUND + 8 * RUN,
        ):
            partition.restored(known)
            for _ in range(8):
                id_ = partition.assign()
                assert id_ is not None
                assert id_ > max([known, *ids])
                assert id_ // RUN % ID_RANGES == id_range
                assert (id_ - 1) % size == number
                ids.append(id_)


def test_no_id_of_a_range_is_skipped_within_a_run_and_the_next_run_is_one_round_later() -> None:
    partition = Partition(5)
    partition.restored(5 * RUN - 1)
    assert [partition.assign() for _ in range(3)] == [5 * RUN, 5 * RUN + 1, 5 * RUN + 2]
    partition.restored(6 * RUN - 2)
    assert [partition.assign() for _ in range(2)] == [6 * RUN - 1, ROUND + 5 * RUN]


def test_only_the_first_server_has_the_last_run() -> None:
    first, other = Partition(0), Partition(ID_RANGES - 2)
    for partition in (first, other):
        partition.restored(MAX_ID - RUN - 1)
    assert other.assign() == MAX_ID - RUN
    assert other.assign() is None
    first.restored(MAX_ID - RUN)
    assert first.assign() == MAX_ID - RUN + 1
    first.restored(MAX_ID - 2)
    assert [first.assign() for _ in range(3)] == [MAX_ID - 1, MAX_ID, None]
