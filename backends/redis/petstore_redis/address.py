"""What `PETSTORE_REDIS_URL` says: which servers, how to reach them, and who asks."""

import asyncio
import ssl
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from petstore.contract import SettingsError
from petstore_redis.line import Connect

FORMS: Final = (
    "redis://[user:password@]host[:port][/db], rediss:// for TLS, unix://[user:password@]/path,"
    " redis+sentinel://host[:port],.../service[/db] or redis+cluster://host[:port],..."
)
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")

Address = tuple[str, int]
"""Host and port; the path of a Unix socket and 0."""


class Kind(Enum):
    """How the servers belong together, and the port that they usually have."""

    SINGLE = 6379
    SENTINEL = 26379
    CLUSTER = 7000


class Target(Struct, frozen=True):
    """Where the storage is.

    name -- the URL without its password, for messages
    addresses -- the server, the Sentinels, or some nodes of the cluster
    service -- what the Sentinels call the master
    user, password, db -- what a connection begins with; a user may be absent
    sentinel_user, sentinel_password -- the same for the Sentinels
    tls -- for a connection with TLS
    """

    name: str
    kind: Kind
    addresses: tuple[Address, ...]
    service: str = ""
    user: str = ""
    password: str = ""
    db: int = 0
    sentinel_user: str = ""
    sentinel_password: str = ""
    tls: Any = None

    def connect(self, address: Address) -> Connect:
        """Return what opens connections to a server."""
        loop = asyncio.get_running_loop()
        host, port = address
        if not port:
            return partial(_connect_unix, loop, host)
        return partial(_connect_tcp, loop, host, port, self.tls)


async def _connect_unix(
    loop: asyncio.AbstractEventLoop, path: str, protocol: Callable[[], asyncio.Protocol]
) -> tuple[Any, Any]:
    return await loop.create_unix_connection(protocol, path)


async def _connect_tcp(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    protocol: Callable[[], asyncio.Protocol],
) -> tuple[Any, Any]:
    return await loop.create_connection(protocol, host, port, ssl=tls)


def parse(url: str) -> Target:
    """Return what a URL says. Raises `SettingsError`, without a password in it, if it is wrong."""
    parts, options = _split(url)
    secure, kind = _kind(parts.scheme)
    known = [
        *(_TLS_OPTIONS if secure else ()),
        *(_SENTINEL_OPTIONS if kind is Kind.SENTINEL else ()),
    ]
    for option in options:
        if option not in known:
            raise _wrong(f"{option!r} is no option there (known: {', '.join(known) or 'none'})")
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))
    if login and not password:
        raise _wrong("a user without a password; without a user it is :password@")
    shown = parts._replace(
        netloc=f"{login.partition(':')[0]}:***@{hosts}" if login else hosts,
        query="&".join(f"{o}={'***' if 'password' in o else v}" for o, v in options.items()),
    ).geturl()
    path = [unquote(part) for part in parts.path.split("/")[1:]]
    service = ""
    if kind is Kind.SENTINEL:
        service = path.pop(0) if path else ""
        if not service:
            raise _wrong("the path begins with the name of the master that the Sentinels watch")
    if parts.scheme == "unix":
        if hosts or not parts.path:
            raise _wrong("the path of the socket follows unix://, with a slash")
        addresses, path = [(unquote(parts.path), 0)], []
    else:
        addresses = [_address(part, kind) for part in hosts.split(",")]
        if kind is Kind.SINGLE and len(addresses) > 1:
            raise _wrong("several hosts are for redis+sentinel:// and redis+cluster://")
    return Target(
        name=f"redis at {shown}",
        kind=kind,
        addresses=tuple(addresses),
        service=service,
        user=user,
        password=password,
        db=_db(path, kind),
        sentinel_user=options.get("sentinel_username", ""),
        sentinel_password=options.get("sentinel_password", ""),
        tls=_tls(options) if secure else None,
    )


def _split(url: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(url)
        strict = bool(parts.query)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=strict))
    except ValueError:
        raise _wrong("it is no URL") from None
    if "@" in f"{parts.path}{parts.query}{parts.fragment}" or parts.fragment:
        raise _wrong("'/', '?', '#' and '@' in a user, a password or a name are %2F, %3F, %23, %40")
    return parts, options


def _kind(scheme: str) -> tuple[bool, Kind]:
    first, _, second = scheme.partition("+")
    kinds = {"": Kind.SINGLE, "sentinel": Kind.SENTINEL, "cluster": Kind.CLUSTER}
    if scheme == "unix":
        return False, Kind.SINGLE
    if first not in ("redis", "rediss") or second not in kinds or scheme.endswith("+"):
        raise _wrong("it does not begin with redis, rediss, unix, redis+sentinel or redis+cluster")
    return first == "rediss", kinds[second]


def _address(text: str, kind: Kind) -> Address:
    try:
        parts: SplitResult = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _wrong("a port is no number from 1 to 65535") from None
    if not host:
        raise _wrong("a host is missing")
    try:
        usable = host.isprintable() and host.encode("idna")
    except UnicodeError:
        usable = False
    if not usable:
        raise _wrong("a host is no name or address")
    if port == 0:
        raise _wrong("a port is no number from 1 to 65535")
    return host, port or kind.value


def _db(path: list[str], kind: Kind) -> int:
    if not path or path == [""]:
        return 0
    if len(path) > 1 or not (path[0].isascii() and path[0].isdigit()):
        raise _wrong("what follows the last slash is the number of a database")
    if kind is Kind.CLUSTER and int(path[0]):
        raise _wrong("a cluster has no database but 0")
    return int(path[0])


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if certificate := options.get("ssl_certfile"):
            context.load_cert_chain(certificate, options.get("ssl_keyfile"))
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(options[name] for name in _TLS_OPTIONS if name in options)
        raise _wrong(f"its TLS files cannot be used ({files}): {error.strerror or error}") from None
    return context


def _wrong(reason: str) -> SettingsError:
    return SettingsError(f"PETSTORE_REDIS_URL is wrong: {reason}. It is {FORMS}")
