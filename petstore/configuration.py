"""All that a deployer chose, found, checked and ready to run with."""

import secrets
from collections.abc import Mapping

from msgspec import Struct

from petstore import backends, settings
from petstore.auth import Keys, KeysError
from petstore.backends import Plugin
from petstore.settings import PREFIX, ConfigurationError, Settings


class Configuration(Struct, frozen=True):
    """What to run.

    plugin, storage -- the chosen backend and its settings
    dev_key -- the key that was made up for this run, with ``--dev``
    warnings -- what the deployer should know, though it stops nothing
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
    """Read, find and check everything that a start needs; open nothing.

    flags -- settings given on the command line, by their names; None where not given
    dev -- for trying out: memory unless told otherwise, a key made up for the run
    keyless -- no API key is needed, because no port is opened

    Raises `ConfigurationError`.
    """
    gathered = settings.gather(environ, flags)
    try:
        return _configure(gathered, dev=dev, keyless=keyless)
    except ConfigurationError as error:  # a misspelt name is often why a setting is missing
        error.warnings = _unknown(gathered, None)
        raise


def _configure(gathered: settings.Gathered, *, dev: bool, keyless: bool) -> Configuration:
    values = gathered.values
    if dev:
        values = {f"{PREFIX}BACKEND": "memory", f"{PREFIX}LOG": "text"} | values
    chosen = Settings.read(values)
    for listen in (chosen.listen, chosen.metrics_listen):
        if dev and listen and not settings.is_loopback(settings.split_address(listen)[0]):
            raise ConfigurationError(
                f"--dev is for trying out and listens on the loopback only, not on {listen}."
                " Leave --dev out to serve others"
            )
    if chosen.backend is None:
        names = ", ".join(sorted({point.name for point in backends.installed()})) or "none"
        raise ConfigurationError(
            f"no backend is chosen. Set PETSTORE_BACKEND (installed: {names}), or to try it out:"
            " petstore serve --dev"
        )
    plugin = backends.find(chosen.backend)
    storage = backends.configure(plugin, values)
    _check_workers(chosen.workers, plugin)
    warnings = _unknown(gathered, plugin)
    keys, dev_key = _keys(chosen, dev=dev, keyless=keyless)
    return Configuration(chosen, plugin, storage, keys, dev_key, warnings)


def _check_workers(workers: int, plugin: Plugin) -> None:
    if workers == 1 or plugin.backend.shared:
        return
    shared = _shared_backends()
    raise ConfigurationError(
        f"the backend '{plugin.name}' lives inside one process; --workers {workers} would serve"
        f" {_count(workers)} different stores. Use --workers 1"
        + (f", or a shared backend: {', '.join(shared)}" if shared else "")
    )


def _shared_backends() -> list[str]:
    """Return the installed backends that several processes may share; broken ones are left out."""
    names = []
    for point in backends.installed():
        try:
            if backends.load(point).backend.shared:
                names.append(point.name)
        except ConfigurationError:
            continue
    return sorted(set(names))


def _count(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
    return words[number] if number < len(words) else str(number)


def _unknown(gathered: settings.Gathered, plugin: Plugin | None) -> tuple[str, ...]:
    """Warn of settings that nobody reads; one in the TOML file stops the start-up."""
    known = [*settings.setting_names(Settings, PREFIX), f"{PREFIX}CONFIG"]
    if plugin is not None:
        known += settings.setting_names(plugin.backend.settings, plugin.prefix)
    chosen = gathered.values.get(f"{PREFIX}BACKEND", "").rpartition(":")[2]
    names = {chosen, *(point.name for point in backends.installed())}
    others = tuple(backends.settings_prefix(name) for name in names)
    warnings = []
    for name in sorted(gathered.values):
        if name in known or name.startswith(others):
            continue
        message = f"{name} is not a setting.{settings.did_you_mean(name, known)}"
        if name in gathered.in_file:
            raise ConfigurationError(f"PETSTORE_CONFIG: {message}")
        warnings.append(message)
    return tuple(warnings)


def _keys(chosen: Settings, *, dev: bool, keyless: bool) -> tuple[Keys, str | None]:
    dev_key = None
    clear = chosen.keys
    if dev and not clear and chosen.keys_file is None:
        dev_key = f"dev-{secrets.token_urlsafe(12)}"
        clear = (dev_key,)
    try:
        keys = Keys(clear, chosen.keys_file)
    except KeysError as error:
        raise ConfigurationError(str(error)) from None
    if not keys and not keyless:
        raise ConfigurationError(
            "no API key is set, so no client could be let in. Set PETSTORE_API_KEYS_FILE (make a"
            " key: petstore keys new), or to try it out: petstore serve --dev"
        )
    return keys, dev_key
