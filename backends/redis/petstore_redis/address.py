"""`PETSTORE_REDIS_URL`: the servers, how to connect to them, and the login."""

import asyncio
import re
import ssl
from enum import Enum
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from petstore.contract import SettingsError
from petstore_redis.client import Connect

URL_FORMS: Final = (
    "redis://[user:password@]host[:port][/db], rediss:// for TLS,"
    " unix://[user:password@]/path[?db=number],"
    " redis+sentinel://host[:port],.../service[/db] or redis+cluster://host[:port],..."
)
_URL: Final = re.compile(r"([a-z+]+)://(?:([^/?#\s]*)@)?([^/?#@\s]*)(/[^?#@\s]*)?(?:\?([^#@\s]*))?")
"""Scheme, login, hosts, path and query."""
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

ServerAddress = tuple[str, int]
"""Host and port; the path of a Unix socket and 0."""


class Topology(Enum):
    """How the servers belong together; the values are the default ports."""

    SINGLE = 6379
    SENTINEL = 26379
    CLUSTER = 7000


_TOPOLOGIES: Final = {
    "redis": Topology.SINGLE,
    "unix": Topology.SINGLE,
    "redis+sentinel": Topology.SENTINEL,
    "redis+cluster": Topology.CLUSTER,
}


class Target(Struct, frozen=True):
    """Where the storage is.

    name -- the URL with its passwords masked, for messages
    addresses -- the server, the Sentinels, or some nodes of the cluster
    service -- the name under which the Sentinels monitor the master
    user, password, db -- for each connection; empty for no user, no password
    sentinel_user, sentinel_password -- the same for the Sentinels
    tls -- the context of connections with TLS, None without
    """

    name: str
    topology: Topology
    addresses: tuple[ServerAddress, ...]
    service: str = ""
    user: str = ""
    password: str = ""
    db: int = 0
    sentinel_user: str = ""
    sentinel_password: str = ""
    tls: Any = None

    def connect(self, address: ServerAddress) -> Connect:
        """Return a function that opens a connection to a server."""
        loop = asyncio.get_running_loop()
        host, port = address
        if not port:
            return lambda protocol: loop.create_unix_connection(protocol, host)
        return lambda protocol: loop.create_connection(protocol, host, port, ssl=self.tls)


def server_name(address: ServerAddress) -> str:
    """Return the name of a server in messages."""
    host, port = address
    return f"redis at {host}:{port}" if port else f"redis at {host}"


def parse(url: str) -> Target:
    """Parse the URL. Raises `SettingsError`, without a password in it, if it is not valid."""
    if (found := _URL.fullmatch(url)) is None:
        raise _error(
            "it is not a URL, or in a user, password or name a '/', '?', '#', '@' or space is not"
            " written as %2F, %3F, %23, %40 or %20"
        )
    scheme, login, hosts, path, query = found.groups(default="")
    secure = scheme.startswith("rediss")
    if (topology := _TOPOLOGIES.get(scheme.replace("rediss", "redis", 1))) is None:
        raise _error("it does not begin with redis, rediss, unix, redis+sentinel or redis+cluster")
    known = [
        *(_TLS_OPTIONS if secure else ()),
        *(("sentinel_username", "sentinel_password") if topology is Topology.SENTINEL else ()),
        *(("db",) if scheme == "unix" else ()),
    ]
    options = dict(parse_qsl(query, keep_blank_values=True))
    for option in options:
        if option not in known:
            raise _error(f"the option {option!r} is unknown (known: {', '.join(known) or 'none'})")
    user, _, password = (unquote(part) for part in login.partition(":"))
    if login and not password:
        raise _error("a user needs a password; a password without a user is :password@")
    parts = [unquote(part) for part in path.split("/")[1:]]
    service = parts.pop(0) if parts and topology is Topology.SENTINEL else ""
    if topology is Topology.SENTINEL and not service:
        raise _error("the path must begin with the name of the master that Sentinel monitors")
    if scheme == "unix":
        if hosts or not path:
            raise _error("the path of the socket must begin with a slash: unix:///path")
        addresses, parts = [(unquote(path), 0)], [options.get("db", "0")]
    else:
        addresses = [_address(part, topology) for part in hosts.split(",")]
        if topology is Topology.SINGLE and len(addresses) > 1:
            raise _error("only redis+sentinel:// and redis+cluster:// take several hosts")
    masked = f"{login.partition(':')[0]}:***@" if login else ""
    shown = (f"{name}={'***' if 'password' in name else options[name]}" for name in options)
    return Target(
        name=f"redis at {scheme}://{masked}{hosts}{path}{'?' * bool(options)}{'&'.join(shown)}",
        topology=topology,
        addresses=tuple(addresses),
        service=service,
        user=user,
        password=password,
        db=_db(parts, topology),
        sentinel_user=options.get("sentinel_username", ""),
        sentinel_password=options.get("sentinel_password", ""),
        tls=_tls(options) if secure else None,
    )


def _address(text: str, topology: Topology) -> ServerAddress:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
        usable = host.isprintable() and host.encode("idna") and port != 0
    except ValueError:
        usable = False
    if not usable:
        raise _error("a host, or the port behind it, is missing or not valid")
    return host, port or topology.value


def _db(path: list[str], topology: Topology) -> int:
    if not path or path == [""]:
        return 0
    if len(path) > 1 or not (path[0].isascii() and path[0].isdigit()):
        raise _error("the database is not a number")
    if topology is Topology.CLUSTER and int(path[0]):
        raise _error("a cluster has only database 0")
    return int(path[0])


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if certificate := options.get("ssl_certfile"):
            context.load_cert_chain(certificate, options.get("ssl_keyfile"))
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(options[name] for name in _TLS_OPTIONS if name in options)
        raise _error(
            f"the TLS files cannot be loaded ({files}): {error.strerror or error}"
        ) from None
    return context


def _error(reason: str) -> SettingsError:
    return SettingsError(f"PETSTORE_REDIS_URL is not valid: {reason}. Expected {URL_FORMS}")
