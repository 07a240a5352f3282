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

from petstore.config.errors import ConfigurationError, shorten
from petstore.config.json_text import check_depth, check_members, why_malformed
from petstore.config.loading import Configuration
from petstore.contract import Access, Expected, RefusedError, Repository
from petstore.transfer import ndjson
from petstore.transfer.ndjson import InvalidLineError, Transferred

_NDJSON: Final = re.compile(rb'\s*\{\s*"(pet|order|token|end)"\s*:')
_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)")

_Open = Callable[[Any, Expected], AbstractAsyncContextManager[Repository]]
_Items = list[tuple[int, Transferred]]
"""Items, each with the number of the line where it begins."""


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    pets: list[Raw] = []
    orders: list[Raw] = []


def seeded(configuration: Configuration, file: str) -> Configuration:
    """Return the configuration with a backend whose repositories begin with what a file has.

    file -- NDJSON as `petstore export` writes it; or JSON: an array of pets, or an object with the
        arrays ``pets`` and ``orders``

    Raises `InvalidLineError` for a line that is malformed or, when the backend is opened, refused;
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
    backend = replace(plugin.backend, open=_opening(plugin.backend.open, items, file))
    return replace(configuration, plugin=replace(plugin, backend=backend))


def _opening(open_: _Open, items: _Items, file: str) -> _Open:
    @asynccontextmanager
    async def opened(settings: Any, expected: Expected) -> AsyncIterator[Repository]:
        async with open_(settings, replace(expected, access=Access.CREATE)) as repository:
            for number, item in items:
                try:
                    await repository.restore([item])
                except RefusedError as refusal:
                    raise InvalidLineError(f"{file}, line {number}: {refusal}") from None
            yield repository

    return opened


def _read(content: bytes, file: str) -> _Items:
    if not content.strip() or _NDJSON.match(content):
        lines = ndjson.read(BytesIO(content), file, len(content) + 1, needs_end=False)
        return [(number, item) for number, _, item in lines]
    return list(_read_json(content, file))


def _read_json(content: bytes, file: str) -> Iterator[tuple[int, Transferred]]:
    try:
        check_depth(content)
        if content.lstrip().startswith(b"["):
            found = _Document(msgspec.json.decode(content, type=list[Raw]))
        else:
            found = msgspec.json.decode(content, type=_Document)
    except (msgspec.DecodeError, ValueError) as error:
        place = _BYTE.search(str(error))
        line = content.count(b"\n", 0, int(place[1]) if place else 0) + 1
        expected = (
            "expected NDJSON as petstore export writes it, an array of pets, or an object with the"
            " arrays pets and orders"
        )
        reason = why_malformed(content, error)
        raise InvalidLineError(f"{file}, line {line}: {reason}; {expected}") from None
    for member, raws in (("pet", found.pets), ("order", found.orders)):
        end, number = 0, 1
        for raw in map(bytes, raws):
            begin = content.index(raw, end)
            number += content.count(b"\n", end, begin)
            try:
                yield number, ndjson.decode(b'{"%b":%b}\n' % (member.encode(), raw))
            except ValueError as error:
                raise InvalidLineError(f"{file}, line {number}: {shorten(str(error))}") from None
            number += raw.count(b"\n")
            end = begin + len(raw)
    try:
        check_members(content.decode())  # of what is around the items
    except ValueError as error:
        raise InvalidLineError(f"{file}, line 1: {error}") from None
