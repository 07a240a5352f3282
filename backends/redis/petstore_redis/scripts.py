"""Every write is one of these scripts: all that it checks and changes is one step on the server.

A script works on the keys of one partition, which share a slot of a cluster. It answers an array
whose first item is one of the outcomes below. Animals and orders are JSON, as they are listed, with
the status in front: the scripts change it there and leave the rest as it is.
"""

import hashlib
from typing import Final

from msgspec import Struct

from petstore_redis import lua

DONE: Final = 1
REPLAYED: Final = 2
TOKEN_REUSED: Final = 3
NOT_FOUND: Final = 4
CONFLICT: Final = 5
FULL: Final = 6


class Script(Struct, frozen=True):
    """A script: its text, its SHA-1 for EVALSHA, and which keys of a partition it is given."""

    text: str
    sha: str
    keys: tuple[str, ...]


def _script(keys: str, *parts: str) -> Script:
    names = tuple(name for key in keys.split() for name in lua.KEYS if name.split(":")[0] == key)
    text = lua.PRELUDE % ", ".join(f"'{name}'" for name in names) + "\n".join(parts)
    return Script(text, hashlib.sha1(text.encode()).hexdigest(), names)  # noqa: S324 - as Redis does


class Scripts:
    """All scripts. The line of each that unpacks ARGV says what it takes, in that order.

    An absent `Retry` is four empty arguments. Ids are decimal, items and their parts are JSON.

    guard -- whether ids leap when the master has changed; without, for servers that know no INFO
    """

    def __init__(self, *, guard: bool = True) -> None:
        ids = (lua.GUARD % (lua.LEAP, lua.LEAP) if guard else lua.NO_GUARD) + lua.IDS
        self.begin = _script(
            "meta",
            ids,
            """
            if redis.call('HSETNX', K.meta, 'schema', ARGV[1]) == 1 then
              redis.call('HSET', K.meta, 'partitions', ARGV[2])
            end
            check_master()
            return {1, unpack(redis.call('HMGET', K.meta, 'schema', 'partitions'))}
        """,
        )
        self.create_pet = _script(
            "meta pets retries expiries reservations",
            ids,
            lua.RETRIES,
            """
            local partitions, partition, head, tail = unpack(ARGV, 1, 4)
            local token, fingerprint, now, until_ = unpack(ARGV, 5, 8)
            local replay = find(token, fingerprint, now)
            if replay then return replay end
            local id = next_id('pets', partitions, partition)
            if not id then return {6} end
            add('pets', id, head .. id .. tail)
            record(token, fingerprint, now, until_, id)
            return {1, id}
        """,
        )
        self.place_order = _script(
            "meta pets orders live retries expiries reservations",
            ids,
            lua.RETRIES,
            """
            local partitions, partition, head, tail, pet_id = unpack(ARGV, 1, 5)
            local token, fingerprint, now, until_ = unpack(ARGV, 6, 9)
            local replay = find(token, fingerprint, now)
            if replay then return replay end
            local pet = get('pets', pet_id)
            if not pet then return {4} end
            if status_of(pet) ~= 'available' then return {5} end
            local id = next_id('orders', partitions, partition)
            if not id then return {6} end
            add('orders', id, head .. id .. tail)
            move('pets', pet_id, pet, 'pending')
            redis.call('HSET', K.live, pet_id, id)
            record(token, fingerprint, now, until_, id)
            return {1, id, until_}
        """,
        )
        # A status that the order has already is written down somewhere, so that WAIT has something
        # to wait for: the write that gave it may not have reached the replicas.
        self.update_order = _script(
            "meta pets orders live",
            """
            local id, status, pet_status = unpack(ARGV)
            local order = get('orders', id)
            if not order then return {4} end
            local now = status_of(order)
            if now == status then
              redis.call('HINCRBY', K.meta, 'repeats', 1)
              return {1, order}
            end
            if now ~= 'placed' then return {5} end
            local pet_id = field(order, '"petId":(%d+),')
            move('pets', pet_id, get('pets', pet_id), pet_status)
            if status == 'cancelled' then redis.call('HDEL', K.live, pet_id) end
            return {1, move('orders', id, order, status)}
        """,
        )
        self.restore_pet = _script(
            "meta pets",
            """
            local id, item = unpack(ARGV)
            local stored = get('pets', id)
            if stored and stored ~= item then return {5} end
            if stored then
              redis.call('HINCRBY', K.meta, 'repeats', 1)
              return {1}
            end
            add('pets', id, item)
            return {1}
        """,
        )
        self.restore_order = _script(
            "meta pets orders live",
            """
            local id, item, pet_id, pet_status = unpack(ARGV)
            local stored = get('orders', id)
            if stored and stored ~= item then return {5} end
            if stored then
              redis.call('HINCRBY', K.meta, 'repeats', 1)
              return {1}
            end
            local pet = get('pets', pet_id)
            if not pet then return {4} end
            if status_of(item) ~= 'cancelled' then
              if status_of(pet) ~= pet_status then return {5} end
              if redis.call('HSETNX', K.live, pet_id, id) == 0 then return {5} end
            end
            add('orders', id, item)
            return {1}
        """,
        )
        # Comes before restoring: ids that are given out later are higher, in every partition.
        self.raise_counters = _script(
            "meta",
            """
            for at, counter in ipairs({'pets', 'orders'}) do
              local known = tonumber(redis.call('HGET', K.meta, counter) or 0)
              if tonumber(ARGV[at]) > known then
                redis.call('HSET', K.meta, counter, ARGV[at])
              end
            end
            return {1}
        """,
        )
        # The token of an order whose animal is in another partition is reserved in its own one,
        # until the order is known: with its fingerprint, and how many requests hold it. What is
        # not pending any more stays until its time is over.
        self.reserve = _script(
            "meta retries expiries reservations",
            lua.RETRIES,
            """
            local token, fingerprint, now, until_ = unpack(ARGV)
            local replay = find(token, fingerprint, now)
            if replay then return replay end
            local expiry, pending, held = reservation(token)
            if expiry <= tonumber(now) then expiry, pending, held = 0, 1, 0 end
            if pending == 1 then expiry = math.max(expiry, tonumber(until_)) end
            drop(now)
            reserve(token, fingerprint, expiry, pending, held + 1)
            return {1}
        """,
        )
        self.confirm = _script(
            "expiries reservations",
            lua.RETRIES,
            """
            local token, fingerprint, until_ = unpack(ARGV)
            local _, _, _, reserved = reservation(token)
            if reserved and reserved ~= fingerprint then return {1} end  -- this one's time was over
            reserve(token, fingerprint, tonumber(until_), 0, 0)
            return {1}
        """,
        )
        self.release = _script(
            "expiries reservations",
            lua.RETRIES,
            """
            local token, fingerprint = unpack(ARGV)
            local expiry, pending, held, reserved = reservation(token)
            if pending == 0 or reserved ~= fingerprint then return {1} end
            if held > 1 then
              reserve(token, fingerprint, expiry, pending, held - 1)
            else
              redis.call('HDEL', K.reservations, token)
            end
            return {1}
        """,
        )


def keys(prefix: str, partition: int) -> dict[str, str]:
    """Return the keys of a partition by their names; the hash tag keeps them in one slot."""
    return {name: f"{{{prefix}:{partition}}}:{name}" for name in lua.KEYS}
