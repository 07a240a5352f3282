"""A TOML file of all settings, to begin with: what ``petstore settings`` prints."""

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from msgspec import NODEFAULT, Struct

from petstore.config.discovery import Plugin
from petstore.config.errors import PREFIX
from petstore.config.settings import Settings, settings_of, to_text

_HEAD: Final = """\
# The settings of the service, each with its default; "" is none. To change one, remove the # before
# its name. Name this file in PETSTORE_CONFIG. A variable of the environment with the name of a
# setting overrides it. docs/operating.md says more.
"""


def example(plugin: Plugin | None = None) -> str:
    """Return a TOML file of the service's settings and those of a backend, all commented out."""
    lines = [_HEAD, *_describe(Settings, PREFIX, {"backend": plugin.name if plugin else ""})]
    if plugin is None:
        lines.append("# The settings of a backend: petstore settings --backend NAME")
    else:
        lines += [f"# Of {plugin.title}:\n", *_describe(plugin.backend.settings, plugin.prefix, {})]
    return "\n".join(lines).strip() + "\n"


def _describe(struct: type[Struct], prefix: str, values: dict[str, object]) -> Iterator[str]:
    """Return the comment and the commented line of each setting.

    values -- what to show for some fields instead of their defaults
    """
    for setting in settings_of(struct, prefix):
        value = values.get(setting.field, setting.default)
        text = ": ".join(text for text in (setting.note("title"), setting.accepted) if text)
        if value is NODEFAULT:
            text = f"Required, {text}" if text else "Required"
            value = next(iter(setting.note("examples")), "")
        sentence = f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
        yield from wrap(sentence, 100, initial_indent="# ", subsequent_indent="# ")
        plain = value if isinstance(value, bool | int | float) else to_text(value)
        toml = json.dumps(plain, ensure_ascii=False)  # its strings may be written as in JSON
        yield f"#{setting.name} = {toml}\n"
