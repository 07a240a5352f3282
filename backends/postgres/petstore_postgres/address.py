"""`PETSTORE_POSTGRES_URL`: the servers that it names, and what becomes of its parameters."""

import configparser
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from petstore.contract import SettingsError

URL: Final = "PETSTORE_POSTGRES_URL"

_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


class DatabaseUrl(NamedTuple):
    """What a URL says.

    url -- what asyncpg gets: without the parameters that it does not know
    hosts -- the servers, as libpq reads them: "host:port", "[::1]:port", "/path"
    application_name -- of the sessions
    tls -- a context that takes the place of the parameters for TLS, or None
    ignored -- the parameters that have no effect
    """

    url: str
    hosts: list[str]
    application_name: str
    tls: ssl.SSLContext | None
    ignored: list[str]


class _Parameter(NamedTuple):
    """A parameter that asyncpg would take for a setting of the server, or not use as libpq does.

    ignored -- the values that need no effect here, as a regular expression; "" for none
    remedy -- what to do about any other value
    """

    ignored: str
    remedy: str = ""


_LIMIT: Final = "set PETSTORE_POSTGRES_TIMEOUT_SECONDS instead"
_NO: Final = "0|off|no|false"
_NO_KERBEROS: Final = "the service does not encrypt with GSSAPI; use sslmode=verify-full instead"
_VERIFY: Final = "with sslmode=verify-full, only the right server gets the password"
_NO_OAUTH: Final = "the service does not log in by OAuth; use a password"
_MODES: Final = "use sslmode=require, verify-ca or verify-full instead"

_PARAMETERS: Final[dict[str, _Parameter]] = {
    # What libpq documents (PostgreSQL 18, "Parameter Key Words"), except what asyncpg honors.
    "hostaddr": _Parameter("", "name the server only as the host"),
    "require_auth": _Parameter("", f"the client library accepts what the server asks; {_VERIFY}"),
    "channel_binding": _Parameter(
        "disable|prefer",
        "the client library has no channel binding. sslmode=verify-full, with sslrootcert=system or"
        " the provider's certificate, makes sure of the server, too",
    ),
    # Connecting and each call have a time limit, and the servers are checked each second.
    "connect_timeout": _Parameter(".*"),
    "keepalives": _Parameter(".*"),
    "keepalives_idle": _Parameter(".*"),
    "keepalives_interval": _Parameter(".*"),
    "keepalives_count": _Parameter(".*"),
    "tcp_user_timeout": _Parameter(".*"),
    "client_encoding": _Parameter("utf-?8|unicode|auto", "the service needs UTF8"),
    "fallback_application_name": _Parameter(".*"),
    "replication": _Parameter(_NO, "the service needs an ordinary session"),
    "gssencmode": _Parameter("disable|prefer", _NO_KERBEROS),
    "gssdelegation": _Parameter("0", "the service delegates no credentials"),
    "requiressl": _Parameter("0", _MODES),
    "sslcompression": _Parameter(".*"),  # libpq ignores it, too
    "sslkeylogfile": _Parameter("", "set the variable SSLKEYLOGFILE instead"),
    "sslcertmode": _Parameter("allow", "set sslcert and sslkey, or neither"),
    "sslcrldir": _Parameter("", "name one file with sslcrl instead"),
    "sslsni": _Parameter("1", "the name of the server is always sent"),
    "requirepeer": _Parameter("", "protect the folder of the socket instead"),
    "min_protocol_version": _Parameter(r"3\.0", "the client library has version 3.0 only"),
    "max_protocol_version": _Parameter(".*"),
    "scram_client_key": _Parameter("", "use a password"),
    "scram_server_key": _Parameter("", "use a password"),
    "servicefile": _Parameter("", "set the variable PGSERVICEFILE instead"),
    "target_session_attrs": _Parameter("any|read-write|primary", "the service needs the primary"),
    "load_balance_hosts": _Parameter(".*"),  # the primary is used
    "oauth_issuer": _Parameter("", _NO_OAUTH),
    "oauth_client_id": _Parameter("", _NO_OAUTH),
    "oauth_client_secret": _Parameter("", _NO_OAUTH),
    "oauth_scope": _Parameter("", _NO_OAUTH),
    # What other programs put into a URL: Supabase and Prisma, JDBC, SQLAlchemy.
    "pgbouncer": _Parameter(_NO, "set PETSTORE_POSTGRES_PGBOUNCER=true instead"),
    "schema": _Parameter("", "set PETSTORE_POSTGRES_SCHEMA instead"),
    "currentSchema": _Parameter("", "set PETSTORE_POSTGRES_SCHEMA instead"),
    "connection_limit": _Parameter("", "set PETSTORE_POSTGRES_CONNECTIONS instead"),
    "pool_timeout": _Parameter("", _LIMIT),
    "socket_timeout": _Parameter("", _LIMIT),
    "socketTimeout": _Parameter("", _LIMIT),
    "loginTimeout": _Parameter("", _LIMIT),
    "ssl": _Parameter("", _MODES),
    "sslaccept": _Parameter("", _MODES),
}

_VARIABLES: Final = {
    # Variables of libpq that asyncpg does not read, and that must not be ignored in silence.
    "PGCHANNELBINDING": "channel_binding",
    "PGGSSENCMODE": "gssencmode",
    "PGREQUIREAUTH": "require_auth",
    "PGREQUIREPEER": "requirepeer",
    "PGSSLCERTMODE": "sslcertmode",
    "PGSSLCRLDIR": "sslcrldir",
}


def parse(url: str, environ: Mapping[str, str] = os.environ) -> DatabaseUrl:
    """Return what a URL says, with what the variables of libpq and its service file add.

    Raises `SettingsError`, without a password in it, for a URL that is not valid, and for a
    parameter that can be neither honored nor ignored, with what to do about it.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("postgres", "postgresql"):
            raise invalid(f"it begins with {url.partition('//')[0]}//, as other programs have it")
        begun = f"{parts.path}{parts.fragment}{parts.query.partition('=')[0]}"
        if "@" in begun or parts.netloc.count("@") > 1:
            raise invalid(
                "in a user or password, write '/', '?', '#' and '@' as %2F, %3F, %23, %40"
            )
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:  # its message may show a password
        raise invalid("it is not a URL") from None
    for name, text in query.items():
        _check(f"{URL} has {name}", name, text)
    for variable, name in _VARIABLES.items():
        if value := environ.get(variable):
            _check(f"{variable} sets {name}", name, value)
    service = _service(query, environ)
    for name, text in service.items():
        _check(f"the service {query['service']} of {URL} has {name}", name, text)
    before, mark, pairs = url.partition("?")
    if parts.path == "/":  # asyncpg takes it for the name of the database, and no other one then
        before = before.removesuffix("/")
    given = {**service, **query}
    kept = [pair for pair in pairs.split("&") if unquote(pair.partition("=")[0]) not in _PARAMETERS]
    return DatabaseUrl(
        before + (mark if kept else "") + "&".join(kept),
        list(_hosts(parts.netloc, given)),
        given.get("application_name") or environ.get("PGAPPNAME") or "petstore",
        _tls(given, environ),
        sorted(name for name in query if name in _PARAMETERS),
    )


def _check(where: str, name: str, text: str) -> None:
    """Raise `SettingsError` unless a parameter can be honored or ignored.

    where -- what has it, for the message
    """
    system = (name, text) == ("sslrootcert", "system")
    if name in _FILES and not system and not os.access(text, os.R_OK):
        raise SettingsError(f"{where}={text}, which cannot be read")
    if (parameter := _PARAMETERS.get(name)) is None:
        return
    if not re.fullmatch(parameter.ignored, text, re.IGNORECASE):
        value = f"={text[:60]}" if parameter.ignored else ""  # any other may be a secret
        raise SettingsError(
            f"{where}{value}, which cannot be honored. Leave it out: {parameter.remedy}"
        )


def _service(query: Mapping[str, str], environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parameters of the service that a URL names, read as asyncpg reads them."""
    if "service" not in query:
        return {}
    file = environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf")  # noqa: PTH111 - Path raises without a home
    services = configparser.ConfigParser()
    try:
        services.read(file)
        return dict(services[query["service"]]) if query["service"] in services else {}
    except configparser.Error:
        raise SettingsError(f"{file} is not a service file of PostgreSQL") from None


def _hosts(named: str, query: Mapping[str, str]) -> Iterator[str]:
    """Yield the servers. A host between // and / wins over one that is a parameter."""
    if hosts := named.rpartition("@")[2]:
        yield from map(unquote, hosts.split(","))
        return
    names = query.get("host", "").split(",")
    ports = query.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(names)
    for name, port in zip(names, ports, strict=False):
        if name:
            yield f"{name}:{port}" if port else name


def _tls(query: Mapping[str, str], environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context for `sslrootcert=system`, which asyncpg takes for the name of a file."""
    given = {
        name: query.get(name) or environ.get(f"PG{name.upper().replace('_', '')}") or ""
        for name in (*_FILES, "sslmode", "ssl_min_protocol_version", "ssl_max_protocol_version")
    }
    if given["sslrootcert"] != "system":
        return None
    if given["sslmode"] not in ("", "verify-full"):
        raise SettingsError(
            f"sslrootcert=system, in {URL} or PGSSLROOTCERT, needs sslmode=verify-full: anybody can"
            " get a certificate for some name"
        )
    context = ssl.create_default_context()
    context.set_alpn_protocols(["postgresql"])
    try:
        if given["sslcert"]:
            password = query.get("sslpassword", "")
            context.load_cert_chain(given["sslcert"], given["sslkey"] or None, password)
        if given["sslcrl"]:
            context.load_verify_locations(given["sslcrl"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        if version := given["ssl_min_protocol_version"]:
            context.minimum_version = ssl.TLSVersion[version.replace(".", "_")]
        if version := given["ssl_max_protocol_version"]:
            context.maximum_version = ssl.TLSVersion[version.replace(".", "_")]
    except (OSError, KeyError) as error:
        raise invalid(f"a parameter for TLS cannot be used: {error}") from None
    return context


def to_arguments(host: str) -> dict[str, Any]:
    """Return the arguments of `asyncpg.connect` for one of several servers."""
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, "5432"
    try:
        return {"host": name.strip("[]"), "port": int(port)}
    except ValueError:
        raise invalid("a port is not a number") from None  # it may be a part of a password


def invalid(reason: str) -> SettingsError:
    """Return the error for a URL that is not valid."""
    return SettingsError(
        f"{URL} is not valid: {reason}. Expected postgresql://user:password@host:5432/database"
    )
