"""API keys: how they are generated, stored and looked up, and the key file that may change.

Only SHA-256 digests of keys are kept. The digest of a presented key is looked up, so that neither
memory nor the time of a comparison reveals anything about a valid key.
"""

import asyncio
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG, S_ISVTX, S_IWOTH
from typing import Final

from petstore.config.errors import ConfigurationError, why_unreadable
from petstore.text.phrases import count

WATCH_SECONDS: Final = 2
"""The seconds between two checks of the key file. The documentation promises five."""

MAX_CLIENTS: Final = 65_536
"""How many different names a key file may have: workers share a table with room for them."""

_log = logging.getLogger("petstore.keys")

_KEY: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # b64token of RFC 6750, section 2.1
_DIGEST: Final = "sha256:"
_SHORT: Final = len(_DIGEST) + 12
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_UP: Final = re.compile(r"(?:\.\./)*")
_LINE: Final = re.compile(rf"({_NAME.pattern}):([0-9A-Fa-f]{{64}})", re.ASCII)


def digest(key: bytes) -> bytes:
    """Return the SHA-256 digest of a key."""
    return hashlib.sha256(key).digest()


def short_name(client: str) -> str:
    """Return a client's name for the log; for a key given in clear, the start of its digest."""
    return client[:_SHORT] if client.startswith(_DIGEST) else client


def new_key(name: str) -> tuple[str, str]:
    """Return a new API key of 256 random bits, and its line for the key file.

    Raises `ConfigurationError` if `name` is not valid in a key file.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            "the name of a key must have up to 64 letters, digits, '.', '_' and '-', a letter or"
            f" digit first; it is {name!r}"
        )
    key = f"ps_{secrets.token_urlsafe(32)}"
    return key, f"{name}:{digest(key.encode()).hex()}"


class Keys:
    """The valid API keys: those given in clear, and those of a file that may change.

    clear -- keys given in clear; the name of their client is ``sha256:`` and their digest, which
        cannot be a name in a key file (see `short_name`)
    file -- a file of ``name:sha256-hex`` lines; blank lines and comments (#) are ignored

    `warnings` says what makes the file unsafe. `on_reload`, if it is set, is called after each
    reload of `watch`, with whether it succeeded; before, the keys can be pickled for a worker.

    Raises `ConfigurationError` for a key that no client could send and for an unusable file.
    """

    def __init__(self, clear: Iterable[str] = (), file: Path | None = None) -> None:
        for position, key in enumerate(clear := tuple(clear), 1):
            if not _KEY.fullmatch(key):
                raise ConfigurationError(
                    f"key {position} of PETSTORE_API_KEYS cannot be sent as a bearer token: use"
                    " only letters, digits and -._~+/ (to make a key: petstore keys new)"
                )
        self._clear = {
            (hashed := digest(key.encode())): f"{_DIGEST}{hashed.hex()}" for key in clear
        }
        self._file = file
        self.warnings: tuple[str, ...] = ()
        self.on_reload: Callable[[bool], None] | None = None
        self._version: object = None
        self._clients: Mapping[bytes, str] = self._clear
        self._wake = asyncio.Event()
        self.reload()
        if file is not None:
            self._file = _in_full(file)

    def __len__(self) -> int:
        return len(self._clients)

    def client(self, key: bytes) -> str | None:
        """Return the name of the client with this key, or None if the key is not valid."""
        return self._clients.get(digest(key))

    def reload(self) -> bool:
        """Reload the key file if it has changed. Return whether it has.

        Raises `ConfigurationError` if it is unusable; the keys stay unchanged then.
        """
        if self._file is None:
            return False
        known, self._version = self._version, None  # it stays None if the file is unusable
        try:
            stat = self._file.stat()
            if not S_ISREG(stat.st_mode):  # reading a pipe or a device might never end
                raise ConfigurationError(f"the key file {self._file} is not a regular file")
            # `cp -p` keeps time, size and inode; nobody can set the time of the change itself.
            version = (stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if version == known:
                self._version = known
                return False
            text = self._file.read_text("utf-8-sig")
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the key file {self._file} of PETSTORE_API_KEYS_FILE:"
                f" {why_unreadable(str(self._file), error)}"
            ) from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"the key file {self._file} is not UTF-8 text") from None
        except ValueError:  # a NUL in the path, which TOML permits
            raise ConfigurationError(f"cannot read the key file {str(self._file)!r}") from None
        self._clients = {**self._clear, **_parse(text, self._file)}
        self._version = version
        self.warnings = _exposures(self._file)
        return True

    def reload_soon(self) -> None:
        """Let `watch` reload the key file now, and report it even if nothing has changed."""
        if self._file is None:
            _log.info("no key file to reload: PETSTORE_API_KEYS_FILE is not set")
        self._wake.set()

    async def watch(self) -> None:
        """Reload the key file whenever it changes, until cancelled; log an unusable file once."""
        last = ""
        while self._file is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), WATCH_SECONDS)
            if self._wake.is_set():
                self._wake.clear()
                self._version, last = None, ""
            try:
                try:
                    changed = await asyncio.to_thread(self.reload)
                except RuntimeError:  # no thread can be started, which would read from a slow disk
                    changed = self.reload()
                if changed:
                    last = ""
                    if self.on_reload is not None:
                        self.on_reload(True)
                    _log.info("reloaded the key file %s: %s", self._file, count(len(self), "key"))
                    for warning in self.warnings:
                        _log.warning("%s", warning)
            except Exception as error:  # noqa: BLE001 - without this task, no key is ever revoked
                if self.on_reload is not None:
                    self.on_reload(False)
                if (text := str(error) or type(error).__name__) != last:
                    last = text
                    _log.error("%s; the keys stay unchanged", text)


def _in_full(file: Path) -> Path:
    """Return a path that stays valid when the working directory is deleted.

    Only the first ``..`` are resolved: the others may follow a link that changes.
    """
    name = str(file)
    up = len(name) - len(_UP.sub("", name, count=1))
    return file if file.is_absolute() else Path(os.path.realpath(name[:up]), name[up:])


def _exposures(file: Path) -> tuple[str, ...]:
    """Return a warning for the file and its folder each, if any user may change or replace it."""
    warnings = []
    for path, what in (
        (file, "the key file"),
        (file.absolute().parent, "the folder of the key file"),
    ):
        with suppress(OSError):  # it has been replaced just now
            if path.stat().st_mode & (S_IWOTH | S_ISVTX) == S_IWOTH:
                warnings.append(
                    f"every user can write {what}, {path}, and so add a key. Run: chmod o-w {path}"
                )
    return tuple(warnings)


def _parse(text: str, file: Path) -> dict[bytes, str]:
    clients: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        if (match := _LINE.fullmatch(line)) is None:
            raise ConfigurationError(
                f"the key file {file} is invalid in line {number}: expected name:sha256-hex"
                " (to make one: petstore keys new NAME)"
            )
        if clients.setdefault(bytes.fromhex(match[2]), match[1]) != match[1]:
            raise ConfigurationError(
                f"the key file {file} contains the key of line {number} under two names"
            )
    if not clients:
        raise ConfigurationError(
            f"the key file {file} contains no key (to make one: petstore keys new NAME)"
        )
    if (names := len(set(clients.values()))) > MAX_CLIENTS:
        raise ConfigurationError(
            f"the key file {file} has {names:,} names; at most {MAX_CLIENTS:,} are possible"
        )
    return clients
