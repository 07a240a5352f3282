"""Configuration errors, and helpers for their messages."""

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


def shorten(text: str, length: int = 60) -> str:
    """Return the text, truncated after `length` characters."""
    return text if len(text) <= length else f"{text[:length]}..."


def why_unreadable(path: str, error: OSError) -> str:
    """Return why a file could not be read."""
    unexpanded = "; '~' is not expanded, so write the path in full" if path[:1] == "~" else ""
    return f"{error.strerror}{unexpanded}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 key``, ``1,000 keys``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
