"""Tokens whose own partition is not that of the pet: any interleaving is as one step.

Real calls run against a real server; each script of a call waits for its turn. The results must be
those of some order in which the calls run one after the other.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from itertools import count, permutations, product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from petstore_redis import RedisRepository
from petstore_redis.batches import Arguments, Batches
from petstore_redis.repository import checked
from petstore_redis.scripts import Script

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import fresh, opened
from petstore.contract import ConflictError, OrderQuery, OrderStatus, Receipt, TokenReusedError
from tests.support.repositories import AT, REX, make_token

SIZE = 3
FREE = -1
_tokens = count(10**6)


def token_of(partition: int) -> int:
    """Return the value of a token that no test has used and that belongs to this partition."""
    return next(_tokens) * SIZE + partition


class Stepped(RedisRepository):
    """A repository whose scripts wait for permission to run."""

    def __init__(self, other: RedisRepository) -> None:
        super().__init__(other._open_store)  # noqa: SLF001 - its own class
        self.gates: dict[asyncio.Task[Any], asyncio.Event] = {}
        self.blocked = asyncio.Event()

    async def _run(
        self, partition: int, script: Script, *arguments: Any, write: bool = True
    ) -> list[Any]:
        task = asyncio.current_task()
        if task in self.gates:
            self.gates[task].clear()
            self.blocked.set()
            await self.gates[task].wait()
        return await super()._run(partition, script, *arguments, write=write)

    async def _create(self, batches: Batches, arguments: Arguments) -> bytes | list[Any]:
        """Run the script in the task of its caller, which is the one that waits."""
        [result] = await batches._send([arguments])  # noqa: SLF001 - without others
        return result if isinstance(result, bytes) else checked(result)


class Call(Struct):
    """A call: the pet that it orders, and after how many scripts its process is killed.

    FREE is not a pet: such a call makes pet 1 available, if it is not.
    """

    pet: int
    killed_after: int | None = None
    begun: int = -1
    ended: int = -1
    outcome: object = None


async def step(repository: Stepped, task: asyncio.Task[Any]) -> None:
    """Let a call run until its next script, or its end."""
    repository.blocked.clear()
    repository.gates[task].set()
    waiting = asyncio.ensure_future(repository.blocked.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def interleave(
    repository: Stepped,
    calls: Sequence[Call],
    works: Sequence[Coroutine[Any, Any, Any]],
    schedule: Sequence[int],
) -> None:
    """Run calls script by script; the schedule chooses the next one."""
    tasks: dict[int, asyncio.Task[Any]] = {}
    scripts = [0] * len(calls)
    left, turns = list(range(len(calls))), deque(schedule)
    for moment in count():
        if not left:
            break
        index = left[(turns.popleft() if turns else 0) % len(left)]
        call = calls[index]
        if index not in tasks:
            task = tasks[index] = asyncio.ensure_future(works[index])
            repository.gates[task] = asyncio.Event()
            call.begun = moment
            await step(repository, task)  # to its first script
        task = tasks[index]
        if call.killed_after == scripts[index]:
            task.cancel()
            await asyncio.wait([task])
        else:
            scripts[index] += 1
            await step(repository, task)
        if task.done():
            left.remove(index)
            call.ended = moment
            failed = asyncio.CancelledError() if task.cancelled() else task.exception()
            call.outcome = failed or task.result()


def explained(calls: Sequence[Call], free: set[int], ordered: set[int]) -> bool:
    """Return whether the calls, one after the other in some order, have these results.

    A killed call may or may not have taken effect. A token also counts as used for another write
    while such a write is in flight, and after it was killed.
    """
    indexes = range(len(calls))
    for sequence in permutations(indexes):
        rank = {index: position for position, index in enumerate(sequence)}
        if any(
            calls[a].ended < calls[b].begun and rank[a] > rank[b] for a in indexes for b in indexes
        ):
            continue
        killed = [i for i in indexes if isinstance(calls[i].outcome, asyncio.CancelledError)]
        for happened in product([False, True], repeat=len(killed)):
            ghosts = {index for index, did in zip(killed, happened, strict=True) if not did}
            if _replays([calls[i] for i in sequence if i not in ghosts], calls, free, ordered):
                return True
    return False


def _replays(
    order: Sequence[Call], calls: Sequence[Call], free: set[int], ordered: set[int]
) -> bool:
    record: tuple[int, int | None] | None = None
    free = set(free)
    for call in order:
        outcome = call.outcome
        open_ = isinstance(outcome, asyncio.CancelledError)
        if call.pet == FREE:
            free.add(1)
        elif isinstance(outcome, TokenReusedError):
            if not _contended(call, calls) and (record is None or record[0] == call.pet):
                return False
        elif record is None:
            if call.pet in free:
                record = call.pet, outcome.id if isinstance(outcome, Receipt) else None
            fits = _placed(outcome) if record else isinstance(outcome, ConflictError)
            if not (fits or open_):
                return False
        elif not (open_ or (record[0] == call.pet and _repeats(outcome, record[1]))):
            return False
        elif isinstance(outcome, Receipt):
            record = call.pet, outcome.id
    return ordered == ({record[0]} if record else set())


def _contended(call: Call, calls: Sequence[Call]) -> bool:
    """Return whether another write with the token is in flight, or was killed."""
    return any(
        other.ended > call.begun or isinstance(other.outcome, asyncio.CancelledError)
        for other in calls
        if other.pet not in (FREE, call.pet) and other.begun < call.ended
    )


def _repeats(outcome: object, known: int | None) -> bool:
    return isinstance(outcome, Receipt) and outcome.replayed and known in (None, outcome.id)


def _placed(outcome: object) -> bool:
    return isinstance(outcome, Receipt) and not outcome.replayed


COUNT_ORPHANS = """local orphans = 0
for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if redis.call('HEXISTS', KEYS[2], token) + redis.call('HEXISTS', KEYS[3], token) == 0 then
    orphans = orphans + 1
  end
end
return orphans"""


def orphans(server: Server, prefix: str) -> int:
    """Return how many expiries belong to no record and no reservation."""
    names = "expiries", "tokens", "reservations"
    keys = [[f"{{{prefix}:{number}}}:{name}" for name in names] for number in range(SIZE)]
    return sum(server.call("EVAL", COUNT_ORPHANS, 3, *each) for each in keys)


CALLS = st.lists(
    st.builds(
        Call, st.integers(FREE, SIZE), st.one_of(st.none(), st.none(), st.none(), st.integers(0, 2))
    ),
    min_size=2,
    max_size=4,
)


@pytest.fixture(scope="module")
def prefix() -> str:
    return fresh()


@settings(max_examples=50, deadline=None)
@given(
    calls=CALLS,
    schedule=st.lists(st.integers(0, 3), max_size=14),
    free=st.sets(st.integers(0, SIZE)),
)
@example([Call(1), Call(2)], [0, 1, 0, 1, 0, 1], {1, 2})
@example([Call(1), Call(1)], [0, 1, 0, 1, 0, 1], {1})
@example([Call(1, 1), Call(1), Call(2)], [0, 0, 0, 0], {1, 2})
@example([Call(1, 2), Call(2), Call(1)], [0, 0, 0, 0], {1, 2})
@example([Call(1), Call(0)], [0, 1, 0, 0, 0], {0, 1})
@example([Call(1), Call(1), Call(FREE), Call(2)], [0, 1, 0, 2, 0, 1, 0, 0, 0], {2})
@example([Call(1), Call(1), Call(FREE), Call(2)], [0, 1, 0, 2, 1, 1, 0], {2})
def test_one_token_takes_effect_once_whatever_the_interleaving(
    valkey: Server, prefix: str, calls: list[Call], schedule: list[int], free: set[int]
) -> None:
    async def run() -> None:
        async with opened(valkey, prefix=prefix, partitions=SIZE, timeout_seconds=2) as plain:
            ids, blocking = dict[int, int](), dict[int, int]()
            for pet in range(SIZE + 1):  # two of them in the partition of the token
                ids[pet] = (await plain.create_pet(REX, make_token(token_of(pet % SIZE)))).id
                if pet not in free:
                    blocking[pet] = (await plain.place_order(ids[pet], AT)).id
            before = {order.id for order in await plain.list_orders(OrderQuery(0, 9999))}
            token, repository = token_of(0), Stepped(plain)
            made = [Call(call.pet, call.killed_after) for call in calls]

            async def work(call: Call) -> Receipt | None:
                if call.pet != FREE:
                    return await repository.place_order(
                        ids[call.pet], AT, make_token(token, call.pet)
                    )
                if 1 in blocking:
                    await repository.update_order(blocking[1], OrderStatus.CANCELLED)
                return None

            works = [work(call) for call in made]
            await interleave(repository, made, works, schedule)
            orders = [o for o in await plain.list_orders(OrderQuery(0, 9999)) if o.id not in before]
            ordered = [pet for order in orders for pet, one in ids.items() if one == order.pet_id]
            assert len(ordered) == len(set(ordered)) <= 1
            assert explained(made, free, set(ordered)), (made, ordered)
            if ordered:  # only this write is replayed from now on, the others are refused
                for pet, one in ids.items():
                    again = plain.place_order(one, AT, make_token(token, pet))
                    if pet == ordered[0]:
                        assert await again == Receipt(orders[0].id, replayed=True)
                    else:
                        with pytest.raises(TokenReusedError):
                            await again
                with pytest.raises(TokenReusedError):
                    await plain.create_pet(REX, make_token(token, 99))

    asyncio.run(run())
    assert orphans(valkey, prefix) == 0  # a refused order once left its expiry for a day


def test_the_check_notices_forgotten_reservations() -> None:
    """Two effects, a lost replay and a wrong refusal are not explained."""
    effect, other = Receipt(1), Receipt(2)
    apart = [Call(1, None, 0, 1, effect), Call(2, None, 2, 3, other)]
    assert not explained(apart, {1, 2}, {1, 2})
    assert not explained(apart, {1, 2}, {1})
    overlapping = [Call(1, None, 0, 3, effect), Call(1, None, 1, 2, other)]
    assert not explained(overlapping, {1}, {1})
    refused = [Call(1, None, 0, 1, ConflictError()), Call(2, None, 2, 3, TokenReusedError())]
    assert not explained(refused, {2}, set())
    assert explained([refused[0], Call(2, None, 2, 3, other)], {2}, {2})


async def test_writes_without_a_token_go_to_each_partition_in_turn(valkey: Server) -> None:
    async with opened(valkey, partitions=SIZE) as repository:
        ids = [(await repository.create_pet(REX)).id for _ in range(4 * SIZE)]
        partitions = [(pet_id - 1) % SIZE for pet_id in ids]
        assert {*partitions[:SIZE]} == {*range(SIZE)}
        assert partitions == 4 * partitions[:SIZE]
        assert len({*ids}) == 4 * SIZE


async def test_a_reservation_ends_when_its_record_does(valkey: Server) -> None:
    async with opened(valkey, partitions=SIZE) as plain:
        one, two = [(await plain.create_pet(REX, make_token(token_of(p)))).id for p in (1, 2)]
        token, repository = token_of(0), Stepped(plain)
        dead = Call(one, 1)
        await interleave(
            repository, [dead], [repository.place_order(one, AT, make_token(token, 1, 0, 50))], []
        )
        assert isinstance(dead.outcome, asyncio.CancelledError)
        with pytest.raises(TokenReusedError):
            await plain.place_order(two, AT, make_token(token, 2, 49, 99))
        assert not (await plain.place_order(two, AT, make_token(token, 2, 50, 99))).replayed
        with pytest.raises(TokenReusedError):
            await plain.place_order(one, AT, make_token(token, 1, 98, 150))
        assert not (await plain.place_order(one, AT, make_token(token, 1, 99, 150))).replayed
