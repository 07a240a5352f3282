"""The records of writes that had an `IdempotencyToken`, each kept until it expires."""

from heapq import heappop, heappush
from typing import Final

from petstore.contract import IdempotencyToken, Receipt, TokenReusedError

MAX_DROPPED: Final = 2
"""How many expired records a write drops at most: more than the one that it may add."""


class IdempotencyRecords:
    """The records by token, and a heap of their expiries, by which expired ones are found."""

    def __init__(self) -> None:
        self._records: dict[bytes, tuple[int, bytes, int]] = {}  # until, fingerprint, id
        self._expiries: list[tuple[int, bytes]] = []  # until, token

    def __len__(self) -> int:
        return len(self._records)

    def find(self, token: IdempotencyToken) -> Receipt | None:
        """Return the receipt of the earlier write with this token, or None if there is none.

        Raises `TokenReusedError` if that write had another fingerprint.
        """
        self._drop_expired(token.now)
        until, fingerprint, id_ = self._records.get(token.value, (token.now, b"", 0))
        if until <= token.now:
            return None
        if fingerprint != token.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(id_, replayed=True)

    def add(self, token: IdempotencyToken, id_: int) -> None:
        """Record the id that a write with this token has been assigned."""
        self._records[token.value] = (token.until, token.fingerprint, id_)
        heappush(self._expiries, (token.until, token.value))

    def _drop_expired(self, now: int) -> None:
        for _ in range(MAX_DROPPED):
            if not self._expiries or self._expiries[0][0] > now:
                return
            until, token = heappop(self._expiries)
            if token in self._records and self._records[token][0] == until:  # not a newer one
                del self._records[token]
