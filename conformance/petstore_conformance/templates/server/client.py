"""REPLACE THIS MODULE: it stands in for your server and its client.

The server is a file of keys and values, which any process may open. It offers what etcd does: keys
in order, and requests that are one step and depend on conditions.
"""

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

CLIENT_ERRORS = (OSError, sqlite3.OperationalError, sqlite3.ProgrammingError)  # or it is closed

KeyValue = tuple[str, bytes]  # a key and its value

Values = Mapping[str, bytes | None]  # of some keys; None: it is absent, or is to be removed


class KeyRange(Struct, frozen=True):
    """The first `limit` keys from `begin`, up to but not including `end`."""

    begin: str
    end: str
    limit: int = -1


def only(key: str) -> KeyRange:
    """Return the range that has only this key."""
    return KeyRange(key, f"{key}\0")


class ServerReply(Struct, frozen=True):
    """What a request returns.

    held -- whether all its conditions held; otherwise it has written nothing
    found -- the items in its range, in the order of their keys
    revision -- how many writes the server has seen
    """

    held: bool
    found: list[KeyValue]
    revision: int


class StandInClient:
    """A client, which works on what is stored under a prefix."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix = f"{prefix}/"
        self._server = sqlite3.connect(url.partition("://")[2], isolation_level=None)
        self._server.execute("PRAGMA journal_mode = WAL")  # a read waits for no write
        self._server.execute("PRAGMA synchronous = OFF")  # it survives a kill, not a power cut
        self._server.execute("CREATE TABLE IF NOT EXISTS items (key TEXT PRIMARY KEY, value BLOB)")
        self._server.execute("PRAGMA busy_timeout = 10")  # it holds the event loop no longer

    async def request(
        self, keys: KeyRange | None, conditions: Values, writes: Values
    ) -> ServerReply:
        """Read a range; in the same step write, if each key of the conditions has its value."""
        while not self._server.in_transaction:
            await asyncio.sleep(0)  # the request
            with suppress(sqlite3.OperationalError):  # another process writes
                self._server.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        with self._server:
            found = self._find(keys) if keys else []
            held = all(dict(self._find(only(k))).get(k) == value for k, value in conditions.items())
            (revision,) = self._server.execute("PRAGMA user_version").fetchone()
            if held and writes:
                revision += 1
                self._server.execute(f"PRAGMA user_version = {revision}")
                for key, value in writes.items():
                    item = (self._prefix + key, value)
                    self._server.execute("DELETE FROM items WHERE key = ?", item[:1])
                    if value is not None:
                        self._server.execute("INSERT INTO items VALUES (?, ?)", item)
        await asyncio.sleep(0)  # the reply
        return ServerReply(held, found, revision)

    async def remove(self) -> None:
        """Remove what is stored under the prefix."""
        self._server.execute("PRAGMA busy_timeout = 5000")
        end = self._prefix[:-1] + "0"  # the character after the slash
        self._server.execute("DELETE FROM items WHERE key >= ? AND key < ?", (self._prefix, end))

    async def prefixes(self, begin: str) -> list[str]:
        """Return the prefixes that begin so, under which something is stored."""
        find = "SELECT DISTINCT substr(key, 1, instr(key, '/') - 1) FROM items ORDER BY 1"
        return [found for (found,) in self._server.execute(find) if found.startswith(begin)]

    async def aclose(self) -> None:
        """End the connection."""
        self._server.close()

    def _find(self, keys: KeyRange) -> list[KeyValue]:
        find = "SELECT key, value FROM items WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        between = self._prefix + keys.begin, self._prefix + keys.end
        rows = self._server.execute(find, (*between, keys.limit))
        return [(key.removeprefix(self._prefix), value) for key, value in rows]
