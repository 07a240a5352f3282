"""Phrases that messages are made of."""


def shorten(text: str, length: int = 60) -> str:
    """Return the text, truncated after `length` characters."""
    return text if len(text) <= length else f"{text[:length]}..."


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 key``, ``1,000 keys``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
