"""Everything that a start needs, read and checked together: settings, backend and keys."""

import secrets
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from petstore.config import discovery, settings
from petstore.config.discovery import Plugin
from petstore.config.errors import PREFIX, ConfigurationError, did_you_mean
from petstore.config.keys import Keys
from petstore.config.settings import Settings

MIN_KEY_CHARACTERS: Final = 16
"""How long a key in clear must be, so that it cannot be guessed."""


class Configuration(Struct, frozen=True):
    """What to run.

    plugin, storage -- the chosen backend and its settings
    dev_key -- the key that was generated for this run, with ``--dev``
    warnings -- findings that do not prevent the start
    """

    settings: Settings
    plugin: Plugin
    storage: Struct
    keys: Keys
    dev_key: str | None = None
    warnings: tuple[str, ...] = ()


def configure(
    environ: Mapping[str, str],
    flags: Mapping[str, str | None],
    *,
    dev: bool = False,
    keyless: bool = False,
) -> Configuration:
    """Read and check everything that a start needs; open nothing.

    flags -- settings given on the command line, by name; None where not given
    dev -- for trying out: the memory backend unless another is chosen, and a generated key
    keyless -- no API key is required, because no port is opened

    Raises `ConfigurationError`.
    """
    gathered = settings.gather(environ, flags)
    try:
        return _configure(gathered, dev=dev, keyless=keyless)
    except ConfigurationError as error:  # a misspelled name is often the reason
        error.warnings = _unknown(gathered, None)
        raise


def _configure(gathered: settings.Gathered, *, dev: bool, keyless: bool) -> Configuration:
    values = gathered.values
    if dev:
        values = {f"{PREFIX}BACKEND": "memory", f"{PREFIX}LOG": "text"} | values
    chosen = Settings.read(values)
    for address in (chosen.listen, chosen.metrics_listen):
        if dev and address is not None and address.is_public:
            raise ConfigurationError(
                "--dev is for trying out and listens only on loopback addresses, not on"
                f" {address}. To accept other clients, leave out --dev"
            )
    if chosen.backend is None:
        names = ", ".join(sorted({point.name for point in discovery.installed()})) or "none"
        raise ConfigurationError(
            f"no backend is chosen. Set PETSTORE_BACKEND (installed: {names}), or try it out with:"
            " petstore serve --dev"
        )
    plugin = discovery.find(chosen.backend)
    storage = discovery.configure(plugin, values, gathered.injected)
    _check_workers(chosen.workers, plugin)
    longest = plugin.backend.max_name_bytes
    if longest is not None and chosen.max_body_bytes > longest:
        raise ConfigurationError(
            f"the backend '{plugin.name}' stores names of at most {longest} bytes;"
            f" PETSTORE_MAX_BODY_BYTES is {chosen.max_body_bytes}. Set it to {longest} or less"
        )
    unknown = _unknown(gathered, plugin)
    keys, dev_key = _keys(chosen, dev=dev, keyless=keyless)
    warnings = unknown + keys.warnings
    return Configuration(chosen, plugin, storage, keys, dev_key, warnings)


def _check_workers(workers: int, plugin: Plugin) -> None:
    if workers > 1 and not plugin.backend.shared:
        raise ConfigurationError(
            f"the backend '{plugin.name}' keeps its data in one process; {workers} workers would"
            f" serve {workers} different stores. Set --workers 1, or choose a shared backend;"
            " 'petstore backends' shows which are"
        )


def _unknown(gathered: settings.Gathered, plugin: Plugin | None) -> tuple[str, ...]:
    """Return warnings about unknown settings; one in the TOML file is an error."""
    own = settings.settings_of(Settings, PREFIX)
    if plugin is not None:
        own += settings.settings_of(plugin.backend.settings, plugin.prefix)
    known = {setting.name for setting in own}
    meant = known | {f"{PREFIX}CONFIG"}  # which cannot be in the file itself
    chosen = gathered.values.get(f"{PREFIX}BACKEND", "").rpartition(":")[2]
    names = {chosen, *(point.name for point in discovery.installed())}
    others = tuple(discovery.settings_prefix(name) for name in names)
    warnings = []
    for name in sorted({*gathered.values, *gathered.in_file}):
        if name in known or name in gathered.injected or name.startswith(others):
            continue
        message = f"{name} is not a setting.{did_you_mean(name, meant - {name})}"
        if name in gathered.in_file:
            raise ConfigurationError(f"PETSTORE_CONFIG: {message}")
        warnings.append(message)
    return tuple(warnings)


def _keys(chosen: Settings, *, dev: bool, keyless: bool) -> tuple[Keys, str | None]:
    dev_key = None
    clear = chosen.api_keys
    for position, key in enumerate(clear, 1):
        if len(key) < MIN_KEY_CHARACTERS and not dev:
            raise ConfigurationError(
                f"key {position} of PETSTORE_API_KEYS has fewer than {MIN_KEY_CHARACTERS}"
                " characters and could be guessed (to make a key: petstore keys new)"
            )
    if dev and not clear and chosen.api_keys_file is None:
        dev_key = f"dev-{secrets.token_urlsafe(12)}"
        clear = (dev_key,)
    keys = Keys(clear, chosen.api_keys_file)
    if not keys and not keyless:
        raise ConfigurationError(
            "no API key is set, so no client could be admitted. Set PETSTORE_API_KEYS_FILE (to make"
            " a key: petstore keys new), or try it out with: petstore serve --dev"
        )
    return keys, dev_key
