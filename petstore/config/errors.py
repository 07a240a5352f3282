"""Configuration errors, and what their messages have in common."""

import difflib
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "PETSTORE_"
"""The prefix of every setting's name."""


class ConfigurationError(Exception):
    """A mistake of the deployer.

    The message says what is wrong and what to do, and contains no secret.

    warnings -- further findings, which may be the cause
    """

    warnings: tuple[str, ...] = ()


def did_you_mean(word: str, known: Iterable[str], quote: str = "") -> str:
    """Return " Did you mean ...?" if a known word is similar, otherwise the empty string.

    quote -- what surrounds the known word
    """
    # All settings share the prefix; it must not make them similar.
    names = {name.removeprefix(PREFIX): name for name in known}
    near = difflib.get_close_matches(word.removeprefix(PREFIX), names, 1, cutoff=0.6)
    return f" Did you mean {quote}{names[near[0]]}{quote}?" if near else ""


def why_unreadable(path: str, error: OSError) -> str:
    """Return why a file could not be read."""
    unexpanded = "; '~' is not expanded, so write the path in full" if path[:1] == "~" else ""
    return f"{error.strerror}{unexpanded}"
