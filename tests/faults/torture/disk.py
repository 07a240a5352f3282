"""A model of a disk that loses power: what may be left of files after any recorded call.

What a sync has covered is there. Of anything later, each sector is in some state that it had since
then, independently of all others, so writes are dropped, torn and reordered. A truncation is there
or not, with all that came before it in the file. A new, renamed or removed name is there or not,
unless its directory was synced after it.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.faults.torture import recording
from tests.faults.torture.recording import APPENDED, DIRECTORY, TRUNCATED, Record

MAX: Final = sys.maxsize


def seeded(seed: int | str) -> random.Random:
    """Return a source of choices that can be repeated."""
    return random.Random(seed)  # noqa: S311 - no secret


@dataclass(frozen=True)
class Fate:
    """What a power cut does to what was not synced.

    keep -- how probable it is that a sector, a truncation or a name is in its newest state;
        otherwise it is in any earlier one since the last sync. 1: nothing is lost
    sector -- how many bytes are written completely or not at all
    last -- the number of the last record that can have reached the disk
    in_order -- whether a name is only there if all that came before it are, as file systems with
        a journal have it
    """

    keep: float
    sector: int = 512
    last: int = MAX
    in_order: bool = False


@dataclass
class Change:
    """A write, or a truncation to `offset` if there are no data, by the record of this number.

    before -- the size of the file before it
    """

    number: int
    offset: int
    data: bytes | None
    before: int


@dataclass(eq=False)
class File:
    """What is on disk, the changes since then in order, and the size after all of them."""

    inode: int
    synced: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    size: int = 0

    def change(self, number: int, offset: int, data: bytes | None) -> None:
        """Note a change that is not synced."""
        offset, before = self.size if offset == APPENDED else offset, self.size
        self.size = offset if data is None else max(self.size, offset + len(data))
        self.pending.append(Change(number, offset, data, before))

    def take_back(self, last: Container[int], size: int) -> None:
        """Take back a write that was recorded, but whose process was killed before it made it.

        last -- the numbers of the last records of processes
        size -- that of the file, as it was found
        """
        if self.size > size and self.pending and self.pending[-1].number in last:
            self.size = self.pending.pop().before

    def sync(self, number: int) -> None:
        """Put all changes before a record on disk."""
        covered = [change for change in self.pending if change.number < number]
        self.pending = self.pending[len(covered) :]
        for change in covered:
            _apply(self.synced, change.offset, change.data)

    def remains(self, fate: Fate, chance: random.Random) -> bytes:
        """Return a content that the file may have after a power cut."""
        content = bytearray(self.synced)
        sectors: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for change in self.pending:
            if change.number > fate.last:
                break
            if change.data is not None:
                for sector, offset, piece in _pieces(change.offset, change.data, fate.sector):
                    sectors[sector].append((offset, piece))
            elif chance.random() < fate.keep:
                _tear(content, sectors, fate, chance)
                sectors.clear()
                _apply(content, change.offset, None)
            else:
                break
        _tear(content, sectors, fate, chance)
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def _pieces(offset: int, data: bytes, sector: int) -> Iterable[tuple[int, int, bytes]]:
    """Cut a write where sectors meet: the number of each sector, and what is written where."""
    begin = 0
    while begin < len(data):
        number = (offset + begin) // sector
        end = min(len(data), (number + 1) * sector - offset)
        yield number, offset + begin, data[begin:end]
        begin = end


def _tear(
    content: bytearray,
    sectors: dict[int, list[tuple[int, bytes]]],
    fate: Fate,
    chance: random.Random,
) -> None:
    for pieces in sectors.values():
        newest = chance.random() < fate.keep
        for offset, piece in pieces if newest else pieces[: chance.randrange(len(pieces))]:
            _apply(content, offset, piece)


Names = tuple[tuple[str, File | None], ...]
"""Names that change in one step, and what they then stand for."""


class Disk:
    """The files below a folder, as records of calls are applied one by one.

    last -- the numbers of the last records of processes
    """

    def __init__(self, last: Container[int] = ()) -> None:
        self.applied = 0
        self._last = last
        self.names: dict[str, File] = {}
        self._files: dict[int, File] = {}
        self._directories: dict[int, str] = {}
        self._synced_names: dict[str, File] = {}
        self._pending_names: list[tuple[int, Names]] = []
        self._begun: dict[tuple[int, int], int] = {}

    def apply(self, record: Record) -> None:
        """Apply the next record; marks change nothing."""
        number, inode = self.applied, record.inode
        self.applied += 1
        match record.kind:
            case recording.OPEN:
                self._open(number, record)
            case recording.WRITE:
                self._files[inode].change(number, record.offset, record.data)
            case recording.TRUNCATE:
                self._files[inode].change(number, record.offset, None)
            case recording.SYNC:
                self._begun[record.thread, inode] = number
            case recording.SYNCED:
                self._sync(inode, self._begun.pop((record.thread, inode)))
            case recording.UNLINK:
                self._rename(number, ((record.data.decode(), None),))
            case recording.RENAME:
                old, new = record.data.decode().split("\0")
                self._rename(number, ((old, None), (new, self.names.get(old))))

    def remains(self, fate: Fate, chance: random.Random) -> dict[str, bytes]:
        """Return paths below the folder, and contents, that a power cut now may leave."""
        names = dict(self._synced_names)
        for number, changed in self._pending_names:
            if number <= fate.last and chance.random() < fate.keep:
                _set(names, changed)
            elif fate.in_order:
                break
        return {path: file.remains(fate, chance) for path, file in names.items()}

    def _open(self, number: int, record: Record) -> None:
        path = record.data.decode()
        if record.offset & DIRECTORY:
            self._directories[record.inode] = path
            return
        file = self.names.get(path)
        if file is None or file.inode != record.inode:
            file = self._files[record.inode] = File(record.inode)
            self._rename(number, ((path, file),))
        if record.offset & TRUNCATED and file.size:
            file.change(number, 0, None)
        elif not record.offset & TRUNCATED:
            file.take_back(self._last, record.offset // 4)

    def _rename(self, number: int, changed: Names) -> None:
        _set(self.names, changed)
        self._pending_names.append((number, changed))

    def _sync(self, inode: int, begun: int) -> None:
        if inode not in self._directories:
            self._files[inode].sync(begun)
            return
        waiting: list[tuple[int, Names]] = []
        for number, changed in self._pending_names:
            # A rename to another directory is on disk when that directory is.
            if number < begun and _directory(changed[-1][0]) == self._directories[inode]:
                _set(self._synced_names, changed)
                # What these names stood for before it no longer matters.
                waiting = [(of, _without(earlier, changed)) for of, earlier in waiting]
            else:
                waiting.append((number, changed))
        self._pending_names = [change for change in waiting if change[1]]


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _without(names: Names, others: Names) -> Names:
    paths = dict(others)
    return tuple((path, file) for path, file in names if path not in paths)


def _set(names: dict[str, File], changed: Names) -> None:
    for path, file in changed:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file
