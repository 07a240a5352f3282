"""The records of writes that had an `IdempotencyToken`, each kept until it expires.

The caller's clock decides whether a record counts. It is dropped only after its lifetime has also
passed on the monotonic clock, because the caller's clock may jump ahead and be set back.
"""

from heapq import heappop, heappush, nsmallest
from operator import attrgetter
from time import monotonic
from typing import Final

from msgspec import Struct

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    Receipt,
    TokenRecord,
    TokenReusedError,
)

MAX_DROPPED: Final = 2
"""How many expired records a write drops at most: more than the one that it may add."""


class _Expiring(Struct):
    """The tokens that were recorded to expire at one time of the caller's clock.

    end -- when the last of them does on the monotonic clock
    """

    tokens: list[bytes]
    end: float


class IdempotencyRecords:
    """The records by token, and the tokens by expiry to find expired ones."""

    def __init__(self) -> None:
        self._records: dict[bytes, TokenRecord] = {}
        self._expiring: dict[int, _Expiring] = {}  # by `until`
        self._expiries: list[int] = []  # a heap of these

    def find(self, token: IdempotencyToken) -> Receipt | None:
        """Return the receipt of the earlier write with this token, or None if there is none.

        Raises `TokenReusedError` if that write had another fingerprint.
        """
        self._drop_expired(token.now)
        record = self._records.get(token.value)
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
        records = self._records.values()
        living = (record for record in records if record.value > after and record.until > now)
        return nsmallest(count, living, key=attrgetter("value"))

    def restore(self, record: TokenRecord) -> None:
        """Store the record of another store. Raises `ConflictError` if its token is taken."""
        if self._records.get(record.value, record) != record:
            raise ConflictError("its token is taken by another record")
        self._put(record, monotonic())

    def _put(self, record: TokenRecord, end: float) -> None:
        self._records[record.value] = record
        expiring = self._expiring.get(record.until)
        if expiring is None:
            expiring = self._expiring[record.until] = _Expiring([], end)
            heappush(self._expiries, record.until)
        expiring.tokens.append(record.value)
        expiring.end = max(expiring.end, end)

    def _drop_expired(self, now: int) -> None:
        for _ in range(MAX_DROPPED):
            if not self._expiries or (until := self._expiries[0]) > now:
                return
            expiring = self._expiring[until]
            if expiring.end > monotonic():
                return
            token = expiring.tokens.pop()
            record = self._records.get(token)
            if record is not None and record.until == until:  # not a newer one of the same token
                del self._records[token]
            if not expiring.tokens:
                del self._expiring[heappop(self._expiries)]
