"""Every write is one Lua script: all that it checks and changes is one step on the server.

Each script is a file in `lua/`; what several share is in `lua/shared/`. A script works on the keys
of one partition, which share a slot of a cluster, and returns an array whose first item is an
`Outcome`.

The files are sent as they are: Python formats nothing into them. What Lua and Python share is
declared once, in Python, and reaches Lua through the header that `_header` generates.
"""

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from importlib.resources import files
from typing import Final

from msgspec import Struct

from petstore.contract import MAX_ID

LUA: Final = files("petstore_redis") / "lua"
"""Where the scripts are."""

RUN: Final = 2**16
"""How many ids in a row belong to one id range. Every partition has some of them."""

ID_RANGES: Final = 2**20
"""How many there are, so that servers that know nothing of each other draw different ones.
See lua/shared/ids.lua."""

STORE_KEYS: Final = {
    # hash: schema, partitions, complete (set once all partitions exist), store (its identity),
    # counters (pets, orders), replid and id range; revision, a counter of all else that changes it
    "meta": ("meta",),
    # sorted sets of JSON by id: all, and those of each status
    "pets": ("pets", "pets:available", "pets:pending", "pets:sold"),
    "orders": ("orders", "orders:placed", "orders:completed", "orders:cancelled"),
    # hash: pet -> its order that is placed or completed
    "live": ("live",),
    # hashes by token, and a sorted set of tokens by their expiry: see lua/shared/tokens.lua
    "tokens": ("tokens",),
    "expiries": ("expiries",),
    "reservations": ("reservations",),
    "retries": ("retries",),  # of schema 1: the tokens
}
"""The names of a partition's keys, in groups that scripts use together."""


class Outcome(IntEnum):
    """The first item of what a script returns."""

    DONE = 1
    REPLAYED = 2
    TOKEN_REUSED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    FULL = 6
    OTHER_STORE = 7


class Script(Struct, frozen=True):
    """A script: its text, its SHA-1 for EVALSHA, and the names of the keys that it takes."""

    text: str
    sha: str
    keys: tuple[str, ...]


class Scripts:
    """All scripts. The comment in each file says what it takes and returns.

    A write without a token takes one empty argument for it. The last three arguments of each
    script but `create_store` say where it runs: see lua/shared/store.lua. Ids are decimal, items
    JSON.
    """

    def __init__(self) -> None:
        tokens = ("tokens", "expiries", "reservations")
        items = ("meta", "pets", "orders", "live")
        write = ("store", "items", "ids", "reservations", "tokens")
        self.create_store = self._load("create_store", ["ids"], ["meta"])
        self.create_pets = self._load("create_pets", write, [*items[:2], *tokens])
        self.place_orders = self._load("place_orders", write, [*items, *tokens])
        self.update_order = self._load("update_order", ["store", "items"], items)
        self.list_tokens = self._load("list_tokens", ["store", "ids"], ["meta", "tokens"])
        self.restore = self._load("restore", ["store", "items"], [*items, *tokens[:2]])
        self.reserve = self._load("reserve", ["store", "reservations", "tokens"], ["meta", *tokens])
        self.confirm = self._load("confirm", ["store", "reservations"], ["meta", *tokens[1:]])
        self.release = self._load("release", ["store", "reservations"], ["meta", *tokens[1:]])

    def upgrade(self, schema: int) -> Script:
        """Return the script that upgrades a partition from this schema to the next one."""
        return self._load(f"upgrade_{schema}", ["upgrade"], list(STORE_KEYS))

    def _load(self, name: str, shared: Sequence[str], groups: Sequence[str]) -> Script:
        names = tuple(key for group in groups for key in STORE_KEYS[group])
        paths = [*(LUA / "shared" / f"{part}.lua" for part in shared), LUA / f"{name}.lua"]
        parts = [_header(names), *(path.read_text("utf-8") for path in paths)]
        text = "\n".join(parts)
        return Script(text, hashlib.sha1(text.encode()).hexdigest(), names)  # noqa: S324 - as Redis does


def _header(names: Sequence[str]) -> str:
    """Return the Lua that precedes every script: outcomes, constants, and `key`, keys by name."""
    constants: dict[str, int] = {outcome.name: outcome.value for outcome in Outcome}
    constants |= {"MAX_ID": MAX_ID, "RUN": RUN, "ID_RANGES": ID_RANGES}
    lines = [f"local {name} = {value}" for name, value in constants.items()]
    entries = (f"['{name}'] = KEYS[{index}]" for index, name in enumerate(names, start=1))
    lines.append(f"local key = {{{', '.join(entries)}}}")
    return "\n".join([*lines, ""])


def keys(prefix: str, partition: int) -> dict[str, str]:
    """Return the keys of a partition by their names; the hash tag keeps them in one slot."""
    return {
        name: f"{{{prefix}:{partition}}}:{name}" for names in STORE_KEYS.values() for name in names
    }
