"""The records of writes that had an `IdempotencyToken`, each kept until it expires.

The caller's clock decides whether a record counts. It is dropped only after its lifetime has also
passed on the monotonic clock, because the caller's clock may jump ahead and be set back.
"""

from heapq import heappop, heappush
from time import monotonic
from typing import Final

from petstore.contract import IdempotencyToken, Receipt, TokenReusedError

MAX_DROPPED: Final = 2
"""How many expired records a write drops at most: more than the one that it may add."""


class IdempotencyRecords:
    """The records by token, and a heap of their expiries to find expired ones."""

    def __init__(self) -> None:
        # until, fingerprint, id, expiry on the monotonic clock
        self._records: dict[bytes, tuple[int, bytes, int, float]] = {}
        self._expiries: list[tuple[int, bytes]] = []  # until, token

    def __len__(self) -> int:
        return len(self._records)

    def find(self, token: IdempotencyToken) -> Receipt | None:
        """Return the receipt of the earlier write with this token, or None if there is none.

        Raises `TokenReusedError` if that write had another fingerprint.
        """
        self._drop_expired(token.now)
        until, fingerprint, id_, _ = self._records.get(token.value, (token.now, b"", 0, 0))
        if until <= token.now:
            return None
        if fingerprint != token.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(id_, replayed=True)

    def add(self, token: IdempotencyToken, id_: int) -> None:
        """Record the id that a write with this token has been assigned."""
        end = monotonic() + token.until - token.now
        self._records[token.value] = (token.until, token.fingerprint, id_, end)
        heappush(self._expiries, (token.until, token.value))

    def _drop_expired(self, now: int) -> None:
        for _ in range(MAX_DROPPED):
            if not self._expiries or self._expiries[0][0] > now:
                return
            until, token = self._expiries[0]
            record = self._records.get(token)
            if record is not None and record[0] == until:  # not a newer one of the same token
                if record[3] > monotonic():
                    return
                del self._records[token]
            heappop(self._expiries)
