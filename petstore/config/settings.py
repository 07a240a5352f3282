"""The service's own settings, from flags, the environment and an optional TOML file.

All settings are first gathered as text by name (`gather`), then checked and converted (`convert`):
the service's own here, those of the chosen backend in `petstore.config.discovery`.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import NODEFAULT, Meta, Struct
from msgspec.inspect import BoolType, EnumType, FloatType, IntType, Metadata

from petstore.config.addresses import Address
from petstore.config.errors import PREFIX, ConfigurationError, why_unreadable
from petstore.text.phrases import shorten

# What Kubernetes sets for a Service: its name in upper case, then one of these; PORT is a URL.
_INJECTED: Final = re.compile("_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_.*)")
_SERVICE_URL: Final = re.compile("(tcp|udp|sctp)://.*")

# As browsers serialize an origin, without a usual port: RFC 6454, section 6.2.
_ORIGIN: Final = re.compile(
    r"(?!http:.*:80$|https:.*:443$)"
    r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"
)

_SECRET: Final = frozenset({"password", "secret", "token", "key", "keys"})
_PARAMETER: Final = re.compile(r"((?:password|secret|token|key)=)[^&\s]+", re.IGNORECASE)


_WINDOWS: Final = {"s": 1, "m": 60, "h": 3600}


class LogFormat(StrEnum):
    """The format of the log."""

    JSON = "json"
    TEXT = "text"
    OFF = "off"


class LogLevel(StrEnum):
    """The least severe lines that are logged. The lines of requests are of level info."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class RateLimit(Struct, frozen=True):
    """A number of requests (quota) within a number of seconds (window)."""

    quota: int
    window: int

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        """Return the limit of a setting: a number of requests per s, m or h, such as ``100/s``.

        Raises `ValueError` if it is malformed.
        """
        if not re.fullmatch("[1-9][0-9]{0,8}/[smh]", text):
            raise ValueError(text)
        quota, unit = text.split("/")
        return cls(int(quota), _WINDOWS[unit])

    def __str__(self) -> str:
        unit = next(unit for unit, window in _WINDOWS.items() if window == self.window)
        return f"{self.quota}/{unit}"


def split(text: str) -> tuple[str, ...]:
    """Return the parts of a list that is separated by commas, without empty ones."""
    return tuple(part for each in text.split(",") if (part := each.strip()))


def parse_origins(text: str) -> tuple[str, ...]:
    """Return the origins of a setting, or ``*`` alone. Raises `ValueError` if one is malformed."""
    origins = split(text)
    if origins != ("*",) and not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError(text)
    return origins


def _parsed(parse: Callable[[str], Any], title: str, description: str) -> Meta:
    """Return the `Meta` of a field whose text a function converts, see `convert`."""
    return Meta(title=title, description=description, extra={"parse": parse})


class Settings(Struct, frozen=True, kw_only=True):
    """The service's settings: the field `max_body_bytes` is PETSTORE_MAX_BODY_BYTES."""

    backend: Annotated[
        str | None,
        Meta(
            title="where pets and orders are stored", description="the name of an installed backend"
        ),
    ] = None
    api_keys: Annotated[
        tuple[str, ...], _parsed(split, "for small installations", "API keys, separated by commas")
    ] = ()
    api_keys_file: Annotated[
        Path | None, _parsed(Path, "the API keys of clients", "a file of name:sha256-hex lines")
    ] = None
    listen: Annotated[
        Address,
        _parsed(
            Address.parse,
            "the address of the service",
            "HOST:PORT, for instance 127.0.0.1:8000, or unix:/PATH, or fd:N",
        ),
    ] = Address.parse("127.0.0.1:8000")
    store: (
        Annotated[
            str,
            Meta(
                title="the identity of the store to serve",
                pattern="^[!-~]{1,64}$",
                description="what petstore check prints as the store",
            ),
        ]
        | None
    ) = None
    read_only: Annotated[
        bool, Meta(title="whether writes get 503 and the store stays as it is")
    ] = False
    workers: Annotated[int, Meta(ge=1, le=1024, title="worker processes")] = 1
    max_body_bytes: Annotated[  # every backend can store a name of the largest size
        int, Meta(ge=1024, le=2**28, title="the maximum size of a request body")
    ] = 65536
    root_path: Annotated[
        str,
        Meta(
            title="the public prefix that a proxy strips",
            pattern=r"^((/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+)?$",
            description="a path of letters, digits and -._~ without a slash at its end, two in a"
            " row, or a segment . or .., for instance /shop",
        ),
    ] = ""
    # At least the pause between two requests of a busy client; at most twice Envoy's hour.
    keep_alive_seconds: Annotated[
        int, Meta(ge=5, le=7200, title="how long an idle connection is kept")
    ] = 75
    drain_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="how long requests are served after SIGTERM, before the port closes",
        ),
    ] = 1
    shutdown_seconds: Annotated[
        float, Meta(ge=1, le=3600, title="how long requests in flight may take after that")
    ] = 10
    max_in_flight: Annotated[
        int, Meta(ge=1, le=10**6, title="the maximum number of requests in flight per worker")
    ] = 1000
    rate_limit: Annotated[
        RateLimit | None,
        _parsed(
            RateLimit.parse,
            "the limit for each client",
            "a number of requests from 1 to 999999999 per s, m or h, for instance 100/s",
        ),
    ] = None
    cors_origins: Annotated[
        tuple[str, ...],
        _parsed(
            parse_origins,
            "whose pages may call the service from a browser",
            "origins, separated by commas, as browsers send them (without a usual port), for"
            " instance https://shop.example, or *",
        ),
    ] = ()
    metrics_listen: Annotated[
        Address | None,
        _parsed(
            partial(Address.parse_port, setting=f"{PREFIX}METRICS_LISTEN"),
            "the address for Prometheus",
            "HOST:PORT for /metrics, for instance 127.0.0.1:9100",
        ),
    ] = None
    log: Annotated[
        LogFormat, Meta(title="the format of the log; off omits the lines of requests")
    ] = LogFormat.JSON
    log_level: Annotated[LogLevel, Meta(title="the least severe lines to log")] = LogLevel.INFO

    @classmethod
    def read(cls, values: Mapping[str, str]) -> "Settings":
        """Return the settings made of gathered values.

        Raises `ConfigurationError` for the first mistake.
        """
        settings: Settings = convert(cls, PREFIX, values)
        return settings


class Setting(Struct, frozen=True):
    """A field of a struct of settings.

    name -- that of the setting
    default -- `msgspec.NODEFAULT` if it is required
    """

    name: str
    field: str
    type: Any
    default: object

    def note(self, attribute: str) -> Any:
        """Return an attribute of the field's `Meta`, such as ``title``, or the empty string."""
        parts = (self.type, *get_args(self.type))
        notes = (note for part in parts for note in getattr(part, "__metadata__", ()))
        return next((value for note in notes if (value := getattr(note, attribute, None))), "")

    @property
    def accepted(self) -> str:
        """What it accepts: its `Meta.description`, or what its type says; empty if neither does."""
        if text := self.note("description"):
            return str(text)
        type_ = msgspec.inspect.type_info(self.type)
        match type_.type if isinstance(type_, Metadata) else type_:
            case BoolType():
                return "true or false"
            case EnumType(cls=values):
                texts = [str(each.value) for each in values]
                return " or ".join(", ".join(texts).rsplit(", ", 1))
            case IntType(ge=int(low), le=int(high)):
                return f"an integer from {low} to {high}"
            case FloatType(ge=float() | int() as low, le=float() | int() as high):
                unit = " of seconds" if self.field.endswith("_seconds") else ""
                return f"a number{unit} from {low} to {high}"
        return ""


def settings_of(struct: type[Struct], prefix: str) -> list[Setting]:
    """Return the settings of a struct, whose names begin with `prefix`."""
    return [
        Setting(
            prefix + field.name.upper(),
            field.name,
            field.type,
            field.default if field.default_factory is NODEFAULT else field.default_factory(),
        )
        for field in msgspec.structs.fields(struct)
    ]


def convert(struct: type[Any], prefix: str, values: Mapping[str, str]) -> Any:
    """Return a settings struct made of the values whose names begin with `prefix`.

    A field whose `Meta.extra` has a function ``parse`` gets what that returns for the text; it
    raises `ValueError` or, to say more, `ConfigurationError`.

    Raises `ConfigurationError` that names the setting and says what it accepts.
    """
    fields = {}
    for setting in settings_of(struct, prefix):
        name, field = setting.name, setting.field
        if (text := values.get(name)) is None:
            if setting.default is NODEFAULT:
                what = f": it must be {setting.accepted}" if setting.accepted else ""
                raise ConfigurationError(f"{name} is not set and has no default{what}")
            continue
        to_value = partial(msgspec.convert, type=setting.type, strict=False)
        try:
            fields[field] = (setting.note("extra") or {}).get("parse", to_value)(text.strip())
        except ValueError:  # msgspec's, or text that is not UTF-8
            expected = setting.accepted or f"a valid value of {struct.__name__}.{field}"
            shown = "" if is_secret(field) else f"; it is {shorten(repr(mask(field, text)))}"
            raise ConfigurationError(f"{name} must be {expected}{shown}") from None
    try:
        return struct(**fields)
    except (TypeError, ValueError) as error:  # of a __post_init__
        raise ConfigurationError(f"{prefix}*: {error}") from None


class Gathered(Struct, frozen=True):
    """All settings as text, by name.

    in_file -- the names that come from the TOML file
    injected -- the names that Kubernetes has set, unless a backend has a setting of that name
    """

    values: dict[str, str]
    in_file: frozenset[str]
    injected: frozenset[str]


def gather(environ: Mapping[str, str], flags: Mapping[str, str | None]) -> Gathered:
    """Gather the settings: flags override the environment, which overrides PETSTORE_CONFIG.

    An empty value counts as not set. Raises `ConfigurationError` for an unreadable file.
    """
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    table = _from_file(file) if (file := given.pop(f"{PREFIX}CONFIG", "")) else {}
    in_file = frozenset(table)
    table = {name: text for name, text in table.items() if text}
    values = table | given
    values |= {name: text for name, text in flags.items() if text is not None}
    return Gathered(values, in_file, _injected(given))


def is_secret(field: str) -> bool:
    """Return whether the value of a field must be masked. The path of a file need not be."""
    words = field.lower().split("_")
    return words[-1] != "file" and not _SECRET.isdisjoint(words)


def mask(field: str, value: object) -> str:
    """Return a setting's value with secrets, and passwords in URLs, replaced by ``***``.

    A password extends to the last @, in case a character in it should have been encoded.
    """
    if value and is_secret(field):
        return "***"
    text = re.sub(r"(?s)(?<=://)([^:/@]*):.*@", r"\1:***@", to_text(value))
    return _PARAMETER.sub(r"\1***", text)


def masked(settings: Struct, prefix: str) -> dict[str, str]:
    """Return effective settings by name, with secrets masked."""
    fields = settings.__struct_fields__
    return {prefix + field.upper(): mask(field, getattr(settings, field)) for field in fields}


def _injected(given: Mapping[str, str]) -> frozenset[str]:
    """Return the names that Kubernetes has set for the Services that it names by their URLs."""
    services = [
        name.removesuffix("_PORT")
        for name, text in given.items()
        if name.endswith("_PORT") and _SERVICE_URL.fullmatch(text)
    ]
    return frozenset(
        name
        for name in given
        for service in services
        if name.startswith(service) and _INJECTED.fullmatch(name.removeprefix(service))
    )


def _from_file(file: str) -> dict[str, str]:
    try:
        table = tomllib.loads(Path(file).read_text("utf-8-sig"))
    except OSError as error:
        reason = why_unreadable(file, error)
        raise ConfigurationError(f"cannot read PETSTORE_CONFIG {file}: {reason}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"PETSTORE_CONFIG {file} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"PETSTORE_CONFIG {file} is not valid TOML: {error}; texts are in quotes"
        ) from None
    for name, value in table.items():
        if not name.startswith(PREFIX):
            raise ConfigurationError(
                f"PETSTORE_CONFIG {file}: {shorten(name)} is not a setting. Names begin with"
                f" {PREFIX}"
            )
        if not isinstance(value, str | int | float):
            raise ConfigurationError(
                f"PETSTORE_CONFIG {file}: {name} must be a string, a number or a boolean"
            )
    return {name: to_text(value) for name, value in table.items()}


def to_text(value: object) -> str:
    """Return the value of a setting as text; None is the empty string."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
    return str(value)
