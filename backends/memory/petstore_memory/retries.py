"""What is remembered of writes that came with a `Retry`, for as long as it has to be."""

from heapq import heappop, heappush
from typing import Final

from petstore.contract import Receipt, Retry, TokenReusedError

DROPPED: Final = 2
"""How many expired records one write drops at most: more than the one that it may add."""


class Retries:
    """Records of writes by their token."""

    def __init__(self) -> None:
        self._records: dict[bytes, tuple[int, bytes, int]] = {}  # until, fingerprint, id
        self._expiries: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._records)

    def find(self, retry: Retry) -> Receipt | None:
        """Return the receipt of a write that was carried out before, or None for a new one.

        Raises `TokenReusedError` if the token is that of another write.
        """
        self._drop(retry.now)
        until, fingerprint, number = self._records.get(retry.token, (retry.now, b"", 0))
        if until <= retry.now:
            return None
        if fingerprint != retry.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(number, replayed=True)

    def record(self, retry: Retry, number: int) -> None:
        """Remember the id that a new write gave out."""
        self._records[retry.token] = (retry.until, retry.fingerprint, number)
        heappush(self._expiries, (retry.until, retry.token))

    def _drop(self, now: int) -> None:
        for _ in range(DROPPED):
            if not self._expiries or self._expiries[0][0] > now:
                return
            until, token = heappop(self._expiries)
            if token in self._records and self._records[token][0] == until:  # not a newer one
                del self._records[token]
