"""What a development service begins with: the pets and orders of a file, anew at each start."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from petstore.config.errors import ConfigurationError
from petstore.config.loading import Configuration
from petstore.contract import Access, Expected, RefusedError, Repository
from petstore.text.strict_json import check_depth, check_members, why_malformed
from petstore.transfer import ndjson
from petstore.transfer.ndjson import InvalidLineError, Transferred

_NDJSON: Final = re.compile(rb'\s*\{\s*"(pet|order|token|end)"\s*:')
_EXPECTED: Final = (
    "expected NDJSON as petstore export writes it, an array of pets, or an object with the arrays"
    " pets and orders"
)

_Open = Callable[[Any, Expected], AbstractAsyncContextManager[Repository]]
_Items = list[tuple[str, Transferred]]
"""Items, each with the place where it is."""


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    pets: list[Raw] = []
    orders: list[Raw] = []


def seeded(configuration: Configuration, file: str) -> Configuration:
    """Return the configuration with a backend whose repositories begin with what a file has.

    file -- NDJSON as `petstore export` writes it; or JSON: an array of pets, or an object with the
        arrays ``pets`` and ``orders``

    Raises `InvalidLineError` for an item that is malformed or, when the backend is opened, refused;
    `ConfigurationError` if the file cannot be read, or the backend keeps or shares what it stores.
    """
    plugin = configuration.plugin
    if plugin.backend.durable or plugin.backend.shared:
        raise ConfigurationError(
            f"the backend '{plugin.name}' keeps or shares its data, so it cannot begin with {file}"
            " at each start. Leave the file out; 'petstore import' stores an export (NDJSON) once"
        )
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    items = _read(content, file)
    backend = replace(plugin.backend, open=_opening(plugin.backend.open, items))
    return replace(configuration, plugin=replace(plugin, backend=backend))


def _opening(open_: _Open, items: _Items) -> _Open:
    @asynccontextmanager
    async def opened(settings: Any, expected: Expected) -> AsyncIterator[Repository]:
        async with open_(settings, replace(expected, access=Access.CREATE)) as repository:
            for where, item in items:
                try:
                    await repository.restore([item])
                except RefusedError as refusal:
                    raise InvalidLineError(
                        f"{where}: {ndjson.why_refused(item, refusal)}"
                    ) from None
            yield repository

    return opened


def _read(content: bytes, file: str) -> _Items:
    if not content.strip() or _NDJSON.match(content):
        lines = ndjson.read(BytesIO(content), file, len(content) + 1, needs_end=False)
        return [(f"{file}, line {number}", item) for number, _, item in lines]
    return list(_read_json(content, file))


def _read_json(content: bytes, file: str) -> Iterator[tuple[str, Transferred]]:
    try:
        check_depth(content)
        if content.lstrip().startswith(b"["):
            found = _Document(msgspec.json.decode(content, type=list[Raw]))
        else:
            found = msgspec.json.decode(content, type=_Document)
        check_members(content.decode())
    except (msgspec.DecodeError, ValueError) as error:
        reason = why_malformed(content, error)
        raise InvalidLineError(f"{file}: {reason}; {_EXPECTED}") from None
    for member, raws in (("pet", found.pets), ("order", found.orders)):
        for position, raw in enumerate(raws):
            where = f"{file}, {member}s[{position}]"
            try:
                yield where, ndjson.decode(b'{"%b":%b}\n' % (member.encode(), bytes(raw)))
            except ValueError as error:
                raise InvalidLineError(f"{where}: {error}") from None
