"""What the workers know of their store, in memory that they share."""

from struct import Struct as Format
from typing import Final
from zlib import crc32

from petstore.contract import MAX_NOTE_BYTES

_REASON_BYTES: Final = 1024

_HEAD: Final = Format("<QII")  # number of the note, bytes, checksum
_SLOT: Final = _HEAD.size + MAX_NOTE_BYTES


def shared_store_bytes(workers: int) -> int:
    """Return the size of a `SharedStore`, of which little is ever touched."""
    return _REASON_BYTES + 2 * _SLOT * workers


class SharedStore:
    """What the workers know of their store, in shared memory: `petstore.contract.Notes`.

    Each worker has two slots and writes them in turn, so that the last note can always be read,
    also if a worker is killed while it writes.

    memory -- zeros, `shared_store_bytes` of them
    worker, workers -- which of how many workers this one is
    """

    def __init__(
        self, memory: "bytearray | memoryview[int]", worker: int = 0, workers: int = 1
    ) -> None:
        view = memoryview(memory).cast("B")
        self._lost = view[:_REASON_BYTES]
        begins = range(_REASON_BYTES, len(view), _SLOT)
        slots = [view[begin : begin + _SLOT] for begin in begins]
        self._rows = [(slots[2 * n], slots[2 * n + 1]) for n in range(workers)]
        self._own = self._rows[worker]
        self._number = max(self._parse(slot)[0] for slot in self._own)

    @property
    def lost(self) -> str:
        """Why the store is lost, as a worker has found; empty if it is not."""
        size = self._lost[0] << 8 | self._lost[1]
        return bytes(self._lost[2 : 2 + size]).decode(errors="ignore")

    @lost.setter
    def lost(self, reason: str) -> None:
        text = reason.encode()[: _REASON_BYTES - 2]
        self._lost[2 : 2 + len(text)] = text
        self._lost[:2] = len(text).to_bytes(2)

    def read(self) -> list[bytes]:
        """Return the last note of each worker that has written one."""
        notes = []
        for row in self._rows:
            number, note = max(map(self._parse, row))
            if number:
                notes.append(note)
        return notes

    def write(self, note: bytes) -> None:
        """Replace the note of this worker."""
        self._number += 1
        slot = self._own[self._number % 2]
        slot[_HEAD.size : _HEAD.size + len(note)] = note
        _HEAD.pack_into(slot, 0, self._number, len(note), crc32(note, self._number & 0xFFFFFFFF))

    @staticmethod
    def _parse(slot: memoryview) -> tuple[int, bytes]:
        """Return the number and the text of the note in a slot; 0 if there is none."""
        number, size, checksum = _HEAD.unpack_from(slot)
        note = bytes(slot[_HEAD.size : _HEAD.size + size])
        return (number, note) if crc32(note, number & 0xFFFFFFFF) == checksum else (0, b"")
