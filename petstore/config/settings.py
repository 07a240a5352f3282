"""The service's own settings, from flags, the environment and an optional TOML file.

All settings are first gathered as text by name (`gather`), then checked and converted (`convert`):
the service's own here, those of the chosen backend in `petstore.config.discovery`.
"""

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from petstore.config.addresses import parse_listen, split_address
from petstore.config.errors import PREFIX, ConfigurationError, shorten

# What Kubernetes sets for Services named petstore, petstore-redis or petstore-postgres.
_KUBERNETES: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_.*)")

# As browsers serialize an origin: RFC 6454, section 6.2.
_ORIGIN: Final = r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"

_SECRET: Final = frozenset({"password", "secret", "token", "key", "keys"})
_PARAMETER: Final = re.compile(r"((?:password|secret|token|key)=)[^&\s]+", re.IGNORECASE)


class LogFormat(StrEnum):
    """The format of the log."""

    JSON = "json"
    TEXT = "text"
    OFF = "off"


Seconds = Annotated[float, Meta(ge=0, le=3600, description="a number of seconds from 0 to 3600")]


class Settings(Struct, frozen=True, kw_only=True):
    """The service's settings: the field `max_body_bytes` is PETSTORE_MAX_BODY_BYTES."""

    backend: Annotated[str, Meta(description="the name of an installed backend")] | None = None
    api_keys: Annotated[str, Meta(description="API keys, separated by commas")] = ""
    api_keys_file: Annotated[str, Meta(description="a file of name:sha256-hex lines")] = ""
    listen: Annotated[
        str, Meta(description="HOST:PORT, for instance 127.0.0.1:8000, or unix:/PATH, or fd:N")
    ] = "127.0.0.1:8000"
    workers: Annotated[int, Meta(ge=1, le=1024, description="an integer from 1 to 1024")] = 1
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=2**30, description="an integer from 1024 to 1073741824")
    ] = 65536
    root_path: Annotated[
        str,
        Meta(
            pattern=r"^((/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+)?$",
            description="a path of letters, digits and -._~ without a slash at its end, two in a"
            " row, or a segment . or .., for instance /shop",
        ),
    ] = ""
    drain_seconds: Seconds = 1
    shutdown_seconds: Seconds = 10
    max_in_flight: Annotated[
        int, Meta(ge=1, le=10**6, description="an integer from 1 to 1000000")
    ] = 1000
    rate_limit: Annotated[
        str,
        Meta(
            pattern="^([1-9][0-9]{0,8}/[smh])?$",
            description="a number of requests from 1 to 999999999 per s, m or h, for instance"
            " 100/s",
        ),
    ] = ""
    cors_origins: Annotated[
        str,
        Meta(
            pattern=rf"^(\*|{_ORIGIN}(\s*,\s*{_ORIGIN})*)?$",
            description="origins, separated by commas, for instance https://shop.example, or *",
        ),
    ] = ""
    metrics_listen: Annotated[
        str, Meta(description="HOST:PORT for /metrics, for instance 127.0.0.1:9100")
    ] = ""
    log: Annotated[LogFormat, Meta(description="json, text or off")] = LogFormat.JSON

    @classmethod
    def read(cls, values: Mapping[str, str]) -> "Settings":
        """Return the settings made of gathered values, addresses checked.

        Raises `ConfigurationError` for the first mistake.
        """
        settings: Settings = convert(cls, PREFIX, values)
        address = parse_listen(settings.listen)
        port = address[1] if isinstance(address, tuple) else 0
        if settings.metrics_listen:
            _, other = split_address(settings.metrics_listen, f"{PREFIX}METRICS_LISTEN")
            if port == other != 0:
                raise ConfigurationError(
                    f"{PREFIX}METRICS_LISTEN must use a different port from {PREFIX}LISTEN; both"
                    f" use {port}"
                )
        return settings

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys given in clear."""
        return tuple(key for part in self.api_keys.split(",") if (key := part.strip()))

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins from which browsers may call."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",") if origin)

    @property
    def keys_file(self) -> Path | None:
        """The key file, if one is configured."""
        return Path(self.api_keys_file) if self.api_keys_file else None


def setting_names(struct: type[Struct], prefix: str) -> dict[str, str]:
    """Return the settings of a struct: name of the setting -> name of the field."""
    return {prefix + field.upper(): field for field in struct.__struct_fields__}


def description(struct: type[Struct], field: str) -> str:
    """Return the `Meta.description` of a field: what it accepts. Empty if there is none."""
    hint = get_type_hints(struct, include_extras=True)[field]
    for part in (hint, *get_args(hint)):
        for note in getattr(part, "__metadata__", ()):
            if isinstance(note, Meta) and note.description:
                return note.description
    return ""


def convert(struct: type[Any], prefix: str, values: Mapping[str, str]) -> Any:
    """Return a settings struct made of the values whose names begin with `prefix`.

    Raises `ConfigurationError` that names the setting and says what it accepts.
    """
    hints = get_type_hints(struct, include_extras=True)
    fields = {}
    for name, field in setting_names(struct, prefix).items():
        if (text := values.get(name)) is None:
            continue
        try:
            fields[field] = msgspec.convert(text.strip(), hints[field], strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError):  # the latter: not UTF-8
            expected = description(struct, field) or f"a valid value of {struct.__name__}.{field}"
            shown = "" if is_secret(field) else f"; it is {shorten(repr(mask(field, text)))}"
            raise ConfigurationError(f"{name} must be {expected}{shown}") from None
    try:
        return msgspec.convert(fields, struct)
    except msgspec.ValidationError as error:
        for name, field in setting_names(struct, prefix).items():
            if f"`{field}`" in str(error):
                expected = description(struct, field)
                what = f": it must be {expected}" if expected else ""
                raise ConfigurationError(f"{name} is not set and has no default{what}") from None
        raise ConfigurationError(f"{prefix}*: {error}") from None


class Gathered(Struct, frozen=True):
    """All settings as text, by name, and the names that come from the TOML file."""

    values: dict[str, str]
    in_file: frozenset[str]


def gather(environ: Mapping[str, str], flags: Mapping[str, str | None]) -> Gathered:
    """Gather the settings: flags override the environment, which overrides PETSTORE_CONFIG.

    An empty value counts as not set. Raises `ConfigurationError` for an unreadable file.
    """
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and text}
    table = _from_file(file) if (file := given.pop(f"{PREFIX}CONFIG", "")) else {}
    given = {name: text for name, text in given.items() if not _KUBERNETES.fullmatch(name)}
    values = table | given
    values |= {name: text for name, text in flags.items() if text is not None}
    return Gathered(values, frozenset(table))


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
    text = str(value) if value is not None else ""
    text = re.sub(r"(?s)(?<=://)([^:/@]*):.*@", r"\1:***@", text)
    return _PARAMETER.sub(r"\1***", text)


def _from_file(file: str) -> dict[str, str]:
    try:
        table = tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read PETSTORE_CONFIG {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"PETSTORE_CONFIG {file} is not valid TOML: {error}") from None
    for name, value in table.items():
        if not name.startswith(PREFIX):
            raise ConfigurationError(
                f"PETSTORE_CONFIG {file}: {shorten(name)} is not a setting; settings begin with"
                f" {PREFIX}"
            )
        if not isinstance(value, str | int | float):
            raise ConfigurationError(
                f"PETSTORE_CONFIG {file}: {name} must be a string, a number or a boolean"
            )
    return {name: _text(value) for name, value in table.items()}


def _text(value: str | float) -> str:
    """Return a value of the TOML file as it is written there."""
    return str(value).lower() if isinstance(value, bool) else str(value)
