"""The records of writes that had an `IdempotencyToken`, each kept until it expires.

The caller's clock decides whether a record counts. It is dropped only after its lifetime has also
passed on the monotonic clock, because the caller's clock may jump ahead and be set back.
"""

from heapq import heappop, heappush, nsmallest
from operator import attrgetter
from time import monotonic
from typing import Final

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    Receipt,
    TokenRecord,
    TokenReusedError,
)

MAX_DROPPED: Final = 2
"""How many expired records a write drops at most: more than the one that it may add."""


class IdempotencyRecords:
    """The records by token, and a heap of their expiries to find expired ones."""

    def __init__(self) -> None:
        # with the expiry on the monotonic clock
        self._records: dict[bytes, tuple[TokenRecord, float]] = {}
        self._expiries: list[tuple[int, bytes]] = []  # until, token

    def __len__(self) -> int:
        return len(self._records)

    def find(self, token: IdempotencyToken) -> Receipt | None:
        """Return the receipt of the earlier write with this token, or None if there is none.

        Raises `TokenReusedError` if that write had another fingerprint.
        """
        self._drop_expired(token.now)
        record, _ = self._records.get(token.value, (None, 0))
        if record is None or record.until <= token.now:
            return None
        if record.fingerprint != token.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(record.id, replayed=True)

    def add(self, token: IdempotencyToken, id_: int) -> None:
        """Record the id that a write with this token has been assigned."""
        record = TokenRecord(token.value, token.fingerprint, token.until, id_)
        self._put(record, monotonic() + token.until - token.now)

    def page(self, after: bytes, count: int, now: int) -> list[TokenRecord]:
        """Return the first `count` records by token, after this one, that have not expired."""
        records = (record for record, _ in self._records.values())
        living = (record for record in records if record.value > after and record.until > now)
        return nsmallest(count, living, key=attrgetter("value"))

    def restore(self, record: TokenRecord) -> None:
        """Store the record of another store. Raises `ConflictError` if its token is taken."""
        stored, _ = self._records.get(record.value, (record, 0))
        if stored != record:
            raise ConflictError("its token is taken by another record")
        self._put(record, monotonic())

    def _put(self, record: TokenRecord, end: float) -> None:
        self._records[record.value] = (record, end)
        heappush(self._expiries, (record.until, record.value))

    def _drop_expired(self, now: int) -> None:
        for _ in range(MAX_DROPPED):
            if not self._expiries or self._expiries[0][0] > now:
                return
            until, token = self._expiries[0]
            record, end = self._records.get(token, (None, 0.0))
            if record is not None and record.until == until:  # not a newer one of the same token
                if end > monotonic():
                    return
                del self._records[token]
            heappop(self._expiries)
