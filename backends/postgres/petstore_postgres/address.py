"""`PETSTORE_POSTGRES_URL`: the servers that it names, and its parameters, as libpq reads them."""

import configparser
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from petstore.contract import SettingsError

URL: Final = "PETSTORE_POSTGRES_URL"

_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_TLS: Final = "ssl_max_protocol_version ssl_min_protocol_version sslcert sslcrl sslkey sslpassword"
_HONORED: Final = (
    f"{_TLS} application_name datestyle dbname geqo gsslib host krbsrvname options passfile"
    " password port sslmode sslnegotiation sslrootcert timezone user"
)
# Connecting and each call have a time limit, the servers are checked each second, and the primary
# is used.
_NO_EFFECT: Final = (
    "connect_timeout fallback_application_name keepalives keepalives_count keepalives_idle"
    " keepalives_interval load_balance_hosts max_protocol_version sslcompression tcp_user_timeout"
)
_HARMLESS: Final = re.compile(
    "channel_binding=(disable|prefer)|client_encoding=(utf-?8|unicode|auto)"
    "|gssencmode=(disable|prefer)|pgbouncer=(false|0)"
    "|target_session_attrs=(any|read-write|primary)",
    re.IGNORECASE,
)
_IN_HOME: Final = (
    *("~/.pgpass", "~/.postgresql/root.crt", "~/.postgresql/root.crl"),
    *("~/.postgresql/postgresql.crt", "~/.postgresql/postgresql.key"),
)
_REMEDIES: Final = {
    "channel_binding": "the client library has none. sslmode=verify-full, with sslrootcert=system"
    " or the provider's certificate, makes sure of the server, too",
    "client_encoding": "the service needs UTF8",
    "connection_limit": "set PETSTORE_POSTGRES_CONNECTIONS instead",
    "currentSchema": "set PETSTORE_POSTGRES_SCHEMA instead",
    "hostaddr": "name the server only as the host",
    "pgbouncer": "set PETSTORE_POSTGRES_PGBOUNCER=true instead",
    "require_auth": "with sslmode=verify-full, only the right server gets the password",
    "schema": "set PETSTORE_POSTGRES_SCHEMA instead",
    "ssl": "use sslmode=require, verify-ca or verify-full instead",
    "target_session_attrs": "the service needs the primary",
}
_REFUSED_VARIABLES: Final = (
    "channel_binding client_encoding gssdelegation gssencmode hostaddr min_protocol_version"
    " require_auth requirepeer requiressl sslcertmode sslcrldir sslsni target_session_attrs"
)
_OWN_NAMES: Final = {
    "application_name": "PGAPPNAME",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "dbname": "PGDATABASE",
    "sslpassword": "",  # has no variable
    "timezone": "PGTZ",
}
_VARIABLES: Final = {
    name: _OWN_NAMES.get(name, f"PG{name.replace('_', '').upper()}")
    for name in f"{_HONORED} {_NO_EFFECT} {_REFUSED_VARIABLES}".split()
}


class DatabaseUrl(NamedTuple):
    """What a URL says, with what the variables and the service file of libpq add.

    dsn -- what asyncpg gets besides the server
    servers -- where to connect, as arguments of `asyncpg.connect`
    application_name -- of the sessions
    tls -- a context that takes the place of the parameters for TLS, or None
    ignored -- the parameters that have no effect, and where they stand
    """

    dsn: str
    servers: list[dict[str, Any]]
    application_name: str
    tls: ssl.SSLContext | None
    ignored: list[str]


def parse(url: str, environ: Mapping[str, str] = os.environ) -> DatabaseUrl:
    """Return what a URL says.

    Raises `SettingsError`, without a password in it, for a URL that is not valid, and for a
    parameter that can be neither honored nor ignored, with what to do about it.
    """
    try:
        # On Python 3.14, urlsplit takes brackets only around the whole host.
        parts = urlsplit(url.replace("[", "%5B").replace("]", "%5D"))
        netloc = parts.netloc.replace("%5B", "[").replace("%5D", "]")
        for host in netloc.rpartition("@")[2].split(","):
            urlsplit(f"//{host}")
        parts = parts._replace(netloc=netloc)
        if parts.scheme not in ("postgres", "postgresql"):
            raise invalid(f"it begins with {url.partition('//')[0]}//, as other programs have it")
        if parts.fragment or "@" in parts.path + parts.query or parts.netloc.count("@") > 1:
            raise invalid(
                "in a name or password, write '/', '?', '#' and '@' as %2F, %3F, %23, %40"
            )
        query = parts.query.replace("+", "%2B")  # which libpq does not take for a space
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:  # its message may show a password
        raise invalid("it is not a URL") from None
    named = {**_before_the_query(parts), **dict(pairs)}
    service = named.pop("service", "") or environ.get("PGSERVICE", "")
    file = named.pop("servicefile", "") or environ.get("PGSERVICEFILE", "")
    found = {  # as in libpq, the last one wins
        **{name: (variable, environ.get(variable, "")) for name, variable in _VARIABLES.items()},
        **{
            name: (f"the service {service}", value)
            for name, value in _read_service(service, file, environ).items()
        },
        **{name: (URL, value) for name, value in named.items()},
    }
    given, ignored = dict[str, str](), list[str]()
    for name, (where, value) in found.items():
        if value and _is_honored(name, value, where):
            given[name] = value
        elif value:
            ignored.append(f"{name} in {where}")
    servers = list(_servers(given.pop("host", ""), given.pop("port", "")))
    return DatabaseUrl(
        f"postgresql://?{urlencode(given, quote_via=quote)}",  # in which there is one of a name
        servers,
        given.get("application_name", "petstore"),
        _tls(given),
        sorted(ignored),
    )


def hide_unreadable_home() -> None:
    """Let asyncpg find no files in HOME if it names another user's, who does not let them be read.

    To libpq such files are absent. To asyncpg they are an error, and no parameter says otherwise.
    """
    for name in _IN_HOME:
        path = Path(os.path.expanduser(name))  # noqa: PTH111 - Path raises without a home
        with suppress(FileNotFoundError, NotADirectoryError):
            try:
                path.open("rb").close()
            except PermissionError:
                os.environ["HOME"] = "/nonexistent"  # as of a user who has none


def _before_the_query(parts: SplitResult) -> dict[str, str]:
    """Return the parameters that have a place of their own in a URL, if they are there."""
    login, _, servers = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    pairs = [re.findall(r"^(?:\[(.*)\]|([^:]*)):?(.*)", server)[0] for server in servers.split(",")]
    found = {
        "user": user,
        "password": password,
        "host": ",".join(address or name for address, name, _ in pairs),
        "port": ",".join(port for _, _, port in pairs),
        "dbname": parts.path.removeprefix("/"),
    }
    return {name: unquote(value) for name, value in found.items() if value}


def _read_service(name: str, file: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parameters of a service, from the user's file, or from the system's."""
    if not name:
        return {}
    user = file or os.path.expanduser("~/.pg_service.conf")  # noqa: PTH111 - Path raises without a home
    for place in (user, f"{environ.get('PGSYSCONFDIR', '')}/pg_service.conf"):
        services = configparser.RawConfigParser(delimiters="=", default_section="")
        try:
            services.read(place)
        except (configparser.Error, UnicodeDecodeError):
            raise SettingsError(f"{place} is not a service file of PostgreSQL") from None
        if name in services:
            return services[name]
    raise SettingsError(f"the service {name} is not in {user}")


def _is_honored(name: str, value: str, where: str) -> bool:
    """Return whether a parameter is honored. If not, it makes no difference here.

    Raises `SettingsError` if it would make one.

    where -- what has it, for the message
    """
    is_file = name in _FILES and (name, value) != ("sslrootcert", "system")
    if is_file and not os.access(value, os.R_OK):
        raise SettingsError(f"{name}={value} in {where} cannot be read")
    if name in _HONORED.split():
        return True
    if name in _NO_EFFECT.split() or _HARMLESS.fullmatch(f"{name}={value}"):
        return False
    remedy = _REMEDIES.get(name, "a setting of the server is options=-c%20name%3Dvalue")
    raise SettingsError(f"{name} in {where} cannot be honored. Leave it out: {remedy}")


def _servers(hosts: str, ports: str) -> Iterator[dict[str, Any]]:
    """Yield the servers. Without a host, asyncpg tries the usual sockets, and then localhost."""
    names, numbers = hosts.split(","), ports.split(",")
    if len(numbers) == 1:
        numbers *= len(names)
    if len(numbers) != len(names) or ("" in names and hosts):
        raise invalid(f"it has {len(numbers)} ports and {len(list(filter(None, names)))} hosts")
    for name, number in zip(names, numbers, strict=True):
        if not re.fullmatch("[0-9]{0,5}", number) or not 0 < int(number or 5432) < 65536:
            raise invalid("a port is not a number from 1 to 65535")  # it may be a password
        yield {**({"host": name} if name else {}), "port": int(number or 5432)}


def _tls(given: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context for `sslrootcert=system`, which asyncpg takes for the name of a file."""
    if given.get("sslrootcert") != "system":
        return None
    if given.get("sslmode", "verify-full") != "verify-full":
        raise invalid("sslrootcert=system needs sslmode=verify-full: anybody can get a certificate")
    if unused := given.keys() & _TLS.split():
        raise invalid(f"{', '.join(sorted(unused))}: sslrootcert must name a file, not system")
    context = ssl.create_default_context()
    context.set_alpn_protocols(["postgresql"])
    return context


def invalid(reason: str) -> SettingsError:
    """Return the error for a URL that is not valid."""
    return SettingsError(
        f"{URL} is not valid: {reason}. Expected postgresql://user:password@host:5432/database"
    )
