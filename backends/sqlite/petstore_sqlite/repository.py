"""The repository: reads on the event loop's thread, writes in the writer's."""

from collections.abc import Sequence
from typing import Any, Final

import apsw
from msgspec import UNSET, UnsetType

from petstore.contract import NewPet, Pet, PetStatus, Receipt, Repository, UnavailableError
from petstore_sqlite.schema import unavailable
from petstore_sqlite.writer import Writer

_STATUS: Final[dict[str | None, PetStatus | UnsetType]] = {
    None: UNSET,
    **{status.value: status for status in PetStatus},
}
_COLUMNS: Final = "SELECT id, name, category_id, status FROM pets"
_GET: Final = f"{_COLUMNS} WHERE id = ?"
_PAGE: Final = f"{_COLUMNS} WHERE id > ? ORDER BY id LIMIT ?"
_STATUS_PAGE: Final = f"{_COLUMNS} WHERE status = ? AND id > ? ORDER BY id LIMIT ?"
_INSERT: Final = "INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)"


class SqliteRepository(Repository):
    """The animals of one file.

    A read takes microseconds, for WAL lets it run beside a commit: less than handing it to a
    thread and back.
    """

    def __init__(self, reader: apsw.Connection, writer: Writer, path: str) -> None:
        self._reader = reader
        self._writer = writer
        self._path = path
        self._open = True

    async def create_pet(self, new: NewPet) -> Receipt:
        """Insert a row; AUTOINCREMENT gives out no id twice."""
        self._check_open()
        status = None if isinstance(new.status, UnsetType) else new.status.value
        values = (new.name, new.category_id, status)

        def insert(connection: apsw.Connection) -> Receipt:
            connection.execute(_INSERT, values)
            return Receipt(connection.last_insert_rowid())

        return await self._writer.carry_out(insert)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look the row up by its key."""
        found = self._read(_GET, (pet_id,))
        return found[0] if found else None

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Read the page along the key, or along the index of statuses."""
        if status is None:
            return self._read(_PAGE, (after, count))
        return self._read(_STATUS_PAGE, (status.value, after, count))

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    def _read(self, query: str, values: tuple[int | str, ...]) -> list[Pet]:
        self._check_open()
        try:
            rows: list[Any] = self._reader.execute(query, values).fetchall()
        except apsw.Error as error:
            raise unavailable(self._path, error) from error
        return [
            Pet(number, name, category, _STATUS[status]) for number, name, category, status in rows
        ]

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError(f"sqlite at {self._path}: the repository is closed")
