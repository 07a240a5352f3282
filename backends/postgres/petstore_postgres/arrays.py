"""Connections that know the types of arrays, for which asyncpg asks the server otherwise.

It does so over each new connection, with a recursive query that costs the server more CPU than a
connection does. There is no documented way to tell it what is the same on every server.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import asyncpg

_ALIKE: Final = dict.fromkeys(("basetype", "range_subtype", "attrtypoids", "attrnames"))

# The ids are those of pg_type.dat, a file of PostgreSQL's source.
ARRAYS: Final[dict[int, dict[str, Any]]] = {
    oid: {**_ALIKE, "oid": oid, "ns": "pg_catalog", "name": name, "elemtype": of, "elemdelim": b","}
    for oid, name, of in (
        (1001, "_bytea", 17),
        (1009, "_text", 25),
        (1016, "_int8", 20),
        (1185, "_timestamptz", 1184),
    )
}
"""The id of an array's type -> what asyncpg would find for it."""

_NO_STATEMENT: Final = SimpleNamespace(name="none")  # none took the place of the unnamed one


class ArrayConnection(asyncpg.Connection):  # type: ignore[misc] # it has no types
    """A connection that asks for no type that it knows."""

    async def _introspect_types(self, typeoids: Sequence[int], *seconds: float) -> tuple[Any, Any]:
        if ARRAYS.keys() >= {*typeoids}:
            return [ARRAYS[oid] for oid in typeoids], _NO_STATEMENT
        found: tuple[Any, Any] = await super()._introspect_types(typeoids, *seconds)
        return found
