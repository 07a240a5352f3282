"""API keys: who may call, how keys are stored and found, and the guard that asks for them.

Keys are held as SHA-256 digests. A presented key is digested and looked up, so that neither the
memory nor the time of a comparison says anything about a valid key.
"""

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Guard

from petstore.errors import ApiError, Code

WATCH_SECONDS: Final = 2
"""How often a key file is looked at; the promise is that a change is taken up within five."""

_log = logging.getLogger("petstore.auth")

_CHALLENGE: Final = 'Bearer realm="petstore"'
_FIELD: Final = b"authorization"
_BEARER: Final = re.compile(rb"bearer +([^ ]+) *", re.IGNORECASE)
_KEY: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # b64token of RFC 6750, section 2.1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_LINE: Final = re.compile(rf"({_NAME.pattern}):([0-9A-Fa-f]{{64}})", re.ASCII)


class KeysError(Exception):
    """The keys as configured cannot be used. The message says where and why, and shows no key."""


def digest(key: bytes) -> bytes:
    """Return the SHA-256 digest under which a key is known."""
    return hashlib.sha256(key).digest()


def new_key(name: str) -> tuple[str, str]:
    """Make an API key: 256 random bits. Return it with its line for the key file.

    Raises `KeysError` if `name` is not what a key file takes.
    """
    if not _NAME.fullmatch(name):
        raise KeysError(
            "the name of a key is up to 64 letters, digits, '.', '_' and '-', and begins with a"
            f" letter or digit; {name!r} is not"
        )
    key = f"ps_{secrets.token_urlsafe(32)}"
    return key, f"{name}:{digest(key.encode()).hex()}"


class Keys:
    """The valid API keys: those given in clear, and those of a file that may change.

    clear -- keys given in clear; the name of their client is ``sha256:`` and their digest, which
        no client of a file can be called
    file -- a file of ``name:sha256-hex`` lines; blank lines and lines that begin with # are ignored

    Raises `KeysError` for a key that no client could send and for a file that cannot be used.
    """

    def __init__(self, clear: Iterable[str] = (), file: Path | None = None) -> None:
        for number, key in enumerate(clear := tuple(clear), 1):
            if not _KEY.fullmatch(key):
                raise KeysError(
                    f"API key number {number} cannot be sent as a bearer token: use letters,"
                    " digits and -._~+/ only (make one: petstore keys new)"
                )
        self._clear = {(sum_ := digest(key.encode())): f"sha256:{sum_.hex()}" for key in clear}
        self._file = file
        self._version: object = None
        self._clients: Mapping[bytes, str] = self._clear
        self.reload()

    def __len__(self) -> int:
        return len(self._clients)

    def client(self, key: bytes) -> str | None:
        """Return the name of the client that holds this key, or None if the key is not valid."""
        return self._clients.get(digest(key))

    def reload(self) -> bool:
        """Take up the key file if it changed. Return whether it did.

        Raises `KeysError` if it cannot be used; the keys stay as they were then.
        """
        if self._file is None:
            return False
        try:
            stat = self._file.stat()
            version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if version == self._version:
                return False
            self._version = version
            text = self._file.read_text("utf-8-sig")
        except OSError as error:
            self._version = None
            raise KeysError(f"cannot read the key file {self._file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise KeysError(f"the key file {self._file} is no UTF-8 text") from None
        except ValueError:  # a NUL, which a TOML file can hold
            raise KeysError(f"cannot read the key file {str(self._file)!r}") from None
        self._clients = {**self._clear, **_parse(text, self._file)}
        return True

    async def watch(self) -> None:
        """Take up every change of the key file until cancelled; a wrong file is logged once."""
        last = ""
        while self._file is not None:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                if await asyncio.to_thread(self.reload):
                    last = ""
                    _log.info("took up the key file %s: %d keys", self._file, len(self))
            except KeysError as error:
                if str(error) != last:
                    last = str(error)
                    _log.error("%s; the keys stay as they were", error)


def _parse(text: str, file: Path) -> dict[bytes, str]:
    clients: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        if (match := _LINE.fullmatch(line)) is None:
            raise KeysError(
                f"the key file {file} is wrong in line {number}: expected name:sha256-hex"
                " (make one: petstore keys new NAME)"
            )
        if clients.setdefault(bytes.fromhex(match[2]), match[1]) != match[1]:
            raise KeysError(f"the key file {file} gives the key of line {number} two names")
    if not clients:
        raise KeysError(f"the key file {file} holds no key (make one: petstore keys new NAME)")
    return clients


def guard(keys: Keys) -> Guard:
    """Return the guard that lets in clients with a valid key (RFC 6750, section 2.1).

    It leaves the client's name in ``scope["auth"]``. It raises `ApiError` (401) if there is no
    such key, or more than one ``Authorization``. That answer carries a challenge (RFC 9110,
    section 11.6.1), which says ``invalid_token`` where a key was sent (RFC 6750, section 3).
    """

    async def require_key(connection: ASGIConnection, _: BaseRouteHandler) -> None:  # type: ignore[type-arg] # of any
        presented = [value for name, value in connection.scope["headers"] if name == _FIELD]
        bearer = [match for value in presented if (match := _BEARER.fullmatch(value))]
        if not bearer:
            raise _unauthorized("An API key is missing: send Authorization: Bearer <API_KEY>.")
        client = keys.client(bearer[0][1]) if len(presented) == 1 else None
        if client is None:
            raise _unauthorized("The API key is not valid.", ', error="invalid_token"')
        connection.scope["auth"] = client

    return require_key


def _unauthorized(message: str, error: str = "") -> ApiError:
    return ApiError(Code.UNAUTHORIZED, message, {"www-authenticate": _CHALLENGE + error})
