"""Messages about values that do not match their type, in plain words instead of msgspec's."""

import re
from enum import StrEnum
from typing import Any, Final, get_args

import msgspec

from petstore.text.phrases import shorten

MAX_CHARACTERS: Final = 300
"""The maximum length of a message: the name of an unknown member may be as long as the body."""

_KINDS: Final = {
    "array": "an array",
    "bool": "a boolean",
    "datetime": "a time",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_FOUND: Final = _KINDS | {"float": "a number with a fraction or an exponent"}
_LIMITS: Final = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least"}

# What msgspec says.
_MISSING: Final = re.compile("Object missing required field `(.+)`")
_UNKNOWN: Final = re.compile("Object contains unknown field (`.+`)", re.DOTALL)
_TYPE: Final = re.compile("Expected `([^`]+)`, got `([^`]+)`")
_BOUND: Final = re.compile(r"Expected `(\w+)` ([<>]=?) (\S+)")

_TIME: Final = "expected a time with its offset from UTC, for instance 2026-11-21T09:30:00Z"


def explain(error: msgspec.ValidationError, type_: Any, whole: str = "") -> str:
    """Return where a value does not match its type, and what was expected there.

    type_ -- what was decoded
    whole -- the name of the value that was decoded: "body" for "body.name: required, but missing"
    """
    problem, at, path = str(error).rpartition(" - at `$")
    if not at:
        problem, path = path, ""
    path = path.removesuffix("`")
    if missing := _MISSING.fullmatch(problem):
        path = f"{path}.{missing[1]}"
    where = f"{whole}{path}".removeprefix(".")
    reason = _expected_values(type_, path) if "enum value" in problem else _reason(problem)
    return shorten(f"{where}: {reason}" if where else reason, MAX_CHARACTERS)


def _reason(problem: str) -> str:
    """Return a problem in plain words; one that no type of this service has, as msgspec says it."""
    if problem.startswith("Object missing"):
        return "required, but missing"
    if found := _UNKNOWN.fullmatch(problem):
        return f"unknown member {found[1]}; leave it out"
    if found := _TYPE.fullmatch(problem):
        return f"expected {_kinds(found[1])}, got {_FOUND.get(found[2], found[2])}"
    if found := _BOUND.fullmatch(problem):
        return f"expected {_kinds(found[1])} of {_LIMITS[found[2]]} {found[3]}"
    if "datetime" in problem:
        return _TIME
    return f"{problem[:1].lower()}{problem[1:]}"


def _kinds(names: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in names.split(" | "))


def _expected_values(type_: Any, path: str) -> str:
    """Return the values of the enumeration at a path, which msgspec leaves out."""
    for name in path.split(".")[1:]:
        structs = (part for part in (type_, *get_args(type_)) if hasattr(part, "__struct_fields__"))
        fields = (field for struct in structs for field in msgspec.structs.fields(struct))
        type_ = next((field.type for field in fields if field.encode_name == name), None)
    for part in (type_, *get_args(type_)):
        if isinstance(part, type) and issubclass(part, StrEnum):
            return f"expected one of {', '.join(f'`{value}`' for value in sorted(part))}"
    return "expected another value"
