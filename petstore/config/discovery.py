"""Find one backend by name among the entry points, check it and read its settings.

Only the chosen plugin is imported: a broken plugin that is not chosen cannot prevent a start.
"""

import re
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from msgspec import Struct

from petstore.config.errors import PREFIX, ConfigurationError, did_you_mean
from petstore.config.settings import Settings, convert, settings_of
from petstore.contract import CONTRACT, Backend

GROUP: Final = "petstore.backends"
INSTALL_MEMORY: Final = (
    "from a checkout: pip install --no-deps --no-build-isolation ./backends/memory"
)

_NAME: Final = re.compile("[a-z][a-z0-9]*", re.ASCII)
_TAKEN: Final = {field.split("_")[0] for field in (*Settings.__struct_fields__, "config")}


class Plugin(Struct, frozen=True):
    """An installed backend: its name, its distribution, and the object that the plugin provides."""

    name: str
    distribution: str
    version: str
    backend: Backend

    @property
    def prefix(self) -> str:
        """The prefix of the names of this backend's settings."""
        return settings_prefix(self.name)

    @property
    def title(self) -> str:
        """The name of the backend in messages."""
        return _title(self.name, self.distribution, self.version)


def settings_prefix(name: str) -> str:
    """Return the prefix of the names of a backend's settings."""
    return f"{PREFIX}{name.upper()}_"


def installed() -> list[EntryPoint]:
    """Return the entry points of all installed backends, in order of name, without loading any."""
    found = {
        (point.name, _distribution(point), point.value): point
        for point in entry_points(group=GROUP)
    }
    return [found[key] for key in sorted(found)]


def find(choice: str) -> Plugin:
    """Load the backend called `choice`: its name, or ``distribution:name``.

    Raises `ConfigurationError` if there is none, if two distributions provide that name, or if the
    entry point does not name a backend for this service.
    """
    distribution, _, name = choice.rpartition(":")
    points = installed()
    found = [
        point
        for point in points
        if point.name == name
        and (not distribution or _normal(_distribution(point)) == _normal(distribution))
    ]
    if not found:
        names = sorted({point.name for point in points})
        listed = ", ".join(names) or f"none; install one, for instance {INSTALL_MEMORY}"
        near = did_you_mean(name.lower(), names, quote="'")
        raise ConfigurationError(
            f"there is no backend named '{choice}' (installed: {listed}).{near}"
        )
    if len(found) > 1:
        claims = " and ".join(f"{_distribution(point)} {_version(point)}" for point in found)
        choices = " or ".join(f"PETSTORE_BACKEND={_distribution(point)}:{name}" for point in found)
        raise ConfigurationError(
            f"{len(found)} distributions provide the backend '{name}': {claims}."
            f" Choose one: {choices}"
        )
    return load(found[0])


def load(point: EntryPoint) -> Plugin:
    """Import the object that an entry point names; check that it is a backend for this service.

    Raises `ConfigurationError` if it is not.
    """
    title = _title(point.name, _distribution(point), _version(point))
    check_name(point.name, title)
    try:
        backend = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing a plugin may raise anything, or exit
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigurationError(
            f"{title} cannot be imported from {point.value}: {reason}"
        ) from error
    if not isinstance(backend, Backend):
        raise ConfigurationError(
            f"{title} is not a backend: {point.value} is a {type(backend).__name__}, expected"
            " a petstore.contract.Backend"
        )
    if backend.contract != CONTRACT:
        raise ConfigurationError(
            f"{title} was written for storage contract {backend.contract};"
            f" this service supports contract {CONTRACT}"
        )
    return Plugin(point.name, _distribution(point), _version(point), backend)


def check_name(name: str, title: str = "") -> None:
    """Raise `ConfigurationError` if a backend cannot have this name; `title` is what has it."""
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise ConfigurationError(
            f"{title or f'a backend {name!r}'} has an invalid name: expected lower-case letters and"
            " digits, a letter first, and not the first word of a service setting"
            f" ({', '.join(sorted(_TAKEN))})"
        )


def configure(plugin: Plugin, values: Mapping[str, str], injected: Collection[str] = ()) -> Struct:
    """Return the backend's settings made of the gathered values.

    injected -- the names of values that are ignored unless the backend has such a setting

    Raises `ConfigurationError` for a setting that is invalid, missing or unknown to the backend.
    """
    known = [setting.name for setting in settings_of(plugin.backend.settings, plugin.prefix)]
    listed = ", ".join(known) or "none"
    for name in values:
        if name.startswith(plugin.prefix) and name not in known and name not in injected:
            raise ConfigurationError(
                f"{name} is not a setting of the backend '{plugin.name}'."
                f"{did_you_mean(name, known) or f' It has: {listed}'}"
            )
    settings: Struct = convert(plugin.backend.settings, plugin.prefix, values)
    return settings


def _title(name: str, distribution: str, version: str) -> str:
    return f"the backend '{name}' ({distribution} {version})"


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


def _version(point: EntryPoint) -> str:
    return point.dist.version if point.dist else "0"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
