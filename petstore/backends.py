"""Find one backend by name among the entry points, check it and make its settings.

Nothing but the chosen plugin is imported: a broken one that nobody chose cannot stop a start-up.
"""

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, Struct

from petstore.contract import CONTRACT, Backend
from petstore.settings import (
    PREFIX,
    ConfigurationError,
    Settings,
    convert,
    description,
    did_you_mean,
    mask,
    setting_names,
)

GROUP: Final = "petstore.backends"

_NAME: Final = re.compile("[a-z][a-z0-9]*", re.ASCII)
_TAKEN: Final = {field.split("_")[0] for field in (*Settings.__struct_fields__, "config")}


class Plugin(Struct, frozen=True):
    """An installed backend: its name, the distribution it came with, and what that provides."""

    name: str
    distribution: str
    version: str
    backend: Backend

    @property
    def prefix(self) -> str:
        """What the names of this backend's settings begin with."""
        return settings_prefix(self.name)

    @property
    def title(self) -> str:
        """The backend as messages call it."""
        return f"the backend '{self.name}' ({self.distribution} {self.version})"


def settings_prefix(name: str) -> str:
    """Return what the names of a backend's settings begin with."""
    return f"{PREFIX}{name.upper()}_"


def installed() -> list[EntryPoint]:
    """Return the entry points of all installed backends, in order of name, without loading any."""
    found = {(e.name, _distribution(e), e.value): e for e in entry_points(group=GROUP)}
    return [found[key] for key in sorted(found)]


def find(choice: str) -> Plugin:
    """Load the backend called `choice`: its name, or ``distribution:name``.

    Raises `ConfigurationError` if there is none, if two distributions claim the name, or if what
    the entry point names is no backend for this service.
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
        listed = (
            ", ".join(names) or "none; install one, for instance: pip install ./backends/memory"
        )
        near = did_you_mean(name, names).replace("mean ", "mean '").replace("?", "'?")
        raise ConfigurationError(f"no backend is named '{choice}' (installed: {listed}).{near}")
    if len(found) > 1:
        claims = " and ".join(f"{_distribution(p)} {_version(p)}" for p in found)
        raise ConfigurationError(
            f"two distributions provide the backend '{name}': {claims}."
            f" Choose one: PETSTORE_BACKEND={_distribution(found[-1])}:{name}"
        )
    return load(found[0])


def load(point: EntryPoint) -> Plugin:
    """Import what an entry point names and check that it is a backend for this service.

    Raises `ConfigurationError` if it is not.
    """
    who = f"the backend '{point.name}' ({_distribution(point)} {_version(point)})"
    if not _NAME.fullmatch(point.name) or point.name in _TAKEN:
        raise ConfigurationError(
            f"{who} has a name that cannot be: lower-case letters and digits, beginning with a"
            f" letter, and no first word of a service setting ({', '.join(sorted(_TAKEN))})"
        )
    try:
        backend = point.load()
    except Exception as error:  # a plugin's import may raise anything; it is told, not hidden
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigurationError(
            f"{who} cannot be imported from {point.value}: {reason}"
        ) from error
    if not isinstance(backend, Backend):
        raise ConfigurationError(
            f"{who} is no backend: {point.value} is of type {type(backend).__name__}, expected"
            " petstore.contract.Backend"
        )
    if backend.contract != CONTRACT:
        raise ConfigurationError(
            f"{who} was written for storage contract {backend.contract};"
            f" this service speaks {CONTRACT}."
        )
    return Plugin(point.name, _distribution(point), _version(point), backend)


def configure(plugin: Plugin, values: Mapping[str, str]) -> Struct:
    """Make the backend's settings of the gathered values.

    Raises `ConfigurationError` for one that is wrong, missing or unknown to the backend.
    """
    known = setting_names(plugin.backend.settings, plugin.prefix)
    for name in values:
        if name.startswith(plugin.prefix) and name not in known:
            raise ConfigurationError(
                f"{name} is not a setting of the backend '{plugin.name}'."
                f"{did_you_mean(name, known) or _listed(known)}"
            )
    settings: Struct = convert(plugin.backend.settings, plugin.prefix, values)
    return settings


def shown(plugin: Plugin, settings: Any) -> dict[str, str]:
    """Return a backend's effective settings by name, secrets masked."""
    names = setting_names(plugin.backend.settings, plugin.prefix)
    return {name: mask(field, getattr(settings, field)) for name, field in names.items()}


def described(plugin: Plugin) -> list[str]:
    """Return a line for each setting of a backend: its name, its default and what it takes."""
    fields = msgspec.structs.fields(plugin.backend.settings)
    lines = []
    for name, field in setting_names(plugin.backend.settings, plugin.prefix).items():
        info = next(info for info in fields if info.name == field)
        default = info.default if info.default_factory is NODEFAULT else info.default_factory()
        shown = "required" if info.required else f"default {mask(field, default) or 'none'}"
        lines.append(f"{name}  {shown}  {description(plugin.backend.settings, field)}".rstrip())
    return lines


def _listed(known: Mapping[str, str]) -> str:
    return f" It has: {', '.join(known)}" if known else " It has none."


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


def _version(point: EntryPoint) -> str:
    return point.dist.version if point.dist else "0"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
