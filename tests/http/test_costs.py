"""What a client's bytes cost grows no faster than their number."""

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import petstore
from petstore.config.errors import ConfigurationError
from petstore.config.keys import Keys
from petstore.transfer import ndjson
from tests.support.connections import service
from tests.support.costs import Input, inputs, superlinear
from tests.support.raw_http import AUTHORIZED, HOST, JSON, head
from tests.support.streams import REQUESTS

ROOMS: Final = ("petstore.http", "petstore.server", "petstore.transfer")
"""The rooms that read a client's bytes: none of their regular expressions may be missed."""


def modules() -> list[ModuleType]:
    """Return the modules of the service; the kit reads no input of a client."""
    names = (found.name for found in pkgutil.walk_packages(petstore.__path__, "petstore."))
    skipped = ("petstore_conformance", "petstore.__main__")
    return [importlib.import_module(name) for name in names if not name.startswith(skipped)]


def expressions() -> dict[tuple[str, str], re.Pattern[Any]]:
    """Return the regular expressions of the service by module and name.

    They are values of a module, or attributes of an object that is one.
    """
    patterns = {}
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                patterns[module.__name__, name] = value
            if type(value).__module__.startswith("petstore."):
                for attribute, part in getattr(value, "__dict__", {}).items():
                    if isinstance(part, re.Pattern):
                        patterns[type(value).__module__, attribute] = part
    return patterns


def methods(where: tuple[str, str]) -> set[str]:
    """Return the methods of an expression that its module calls."""
    module, name = where
    source = inspect.getsource(sys.modules[module])
    return set(re.findall(rf"\b{name}\.(fullmatch|match|search|sub|findall)\(", source))


def examples(source: str, flags: int) -> list[bytes]:
    """Return text that contains a match of a regular expression."""
    found = []
    ascii_only = re.compile(source, flags & ~re.UNICODE | re.ASCII)

    @settings(max_examples=6, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.from_regex(ascii_only, alphabet=st.characters(max_codepoint=127)))
    def collect(text: str) -> None:
        found.append(text.encode())

    collect()
    return found


def measured(pattern: re.Pattern[Any], method: str) -> object:
    """Return input that the expression takes too long for, or None."""
    run = getattr(pattern, method)

    def call(content: bytes) -> object:
        text = content if isinstance(pattern.pattern, bytes) else content.decode("latin-1")
        return run(text[:0], text) if method == "sub" else run(text)

    source = pattern.pattern
    source = source.decode("latin-1") if isinstance(source, bytes) else source
    letters = [letter.encode() for letter in {*source, *'a0 "\\'}]
    return superlinear(call, inputs(examples(source, pattern.flags), letters))


@pytest.mark.parametrize("where", sorted(expressions()), ids=" ".join)
def test_no_expression_is_superlinear(where: tuple[str, str]) -> None:
    assert methods(where), "the module does not call it: measure what does"
    for method in methods(where):
        assert measured(expressions()[where], method) is None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL), "sub"),  # read bodies before 2.0
        (re.compile(rb'<([^>]*)>\s*;\s*rel="?next"?'), "search"),
        (re.compile(r"\s+$"), "search"),
        (re.compile(r"[a-z]*[a-f]*,?", re.IGNORECASE), "fullmatch"),
    ],
)
def test_a_superlinear_expression_is_found(pattern: re.Pattern[Any], method: str) -> None:
    assert measured(pattern, method) is not None


def test_every_expression_that_reads_input_is_measured() -> None:
    found = expressions()
    for module in modules():
        if module.__name__.startswith(ROOMS):
            written = re.findall(r"\bre\.[a-z]+\(", inspect.getsource(module))
            assert len(written) == sum(name == module.__name__ for name, _ in found), module


BODIES: Final = [
    b'{"name":"Rex: \\u00e9\\n","categoryId":7,"x":[{"a":-1.5e3,"b":null},true]}',
    b'{"x":' + b"[" * 201 + b'"a"',
    b'{"petId":1,"status":"placed"}',
]
LETTERS: Final = [b"\r\n", *(bytes([letter]) for letter in b'\0\t "#%&+,/0:;=?a\\\xff')]
JSON_LETTERS: Final = [bytes([letter]) for letter in b' "+,-.019:[\\]eu{}\xff']


@pytest.fixture(scope="module")
def send() -> Iterator[Callable[..., bytes]]:
    with service() as send:
        yield send


def test_no_request_is_superlinear(send: Callable[..., bytes]) -> None:
    """Whatever is repeated: a part of a target, a header, a body, its framing, or requests."""
    assert superlinear(send, inputs(REQUESTS, LETTERS), 1000) is None


def test_no_body_is_superlinear(send: Callable[..., bytes]) -> None:
    def call(body: bytes) -> object:
        return send(
            head("POST /v1/pets", HOST, AUTHORIZED, JSON, f"Content-Length: {len(body)}"), body
        )

    assert superlinear(call, inputs(BODIES, JSON_LETTERS), 1000) is None


@pytest.mark.slow
def test_no_request_is_superlinear_byte_by_byte(send: Callable[..., bytes]) -> None:
    def call(data: bytes) -> object:
        return send(*(data[place : place + 1] for place in range(len(data))))

    assert superlinear(call, inputs(REQUESTS[-1:], LETTERS[:4]), 500, 8000) is None


@pytest.mark.slow
def test_no_head_is_superlinear_byte_by_byte(send: Callable[..., bytes]) -> None:
    """Up to the limit: nothing may look at a long target again when more of a header arrives."""

    def call(part: bytes) -> object:
        data = head(f"GET /{part.decode()}", HOST, f"X: {part.decode()}")
        return send(*(data[place : place + 1] for place in range(len(data))))

    assert superlinear(call, [Input(b"", b"a", b"")], 1000, 16_000) is None


def test_no_line_of_an_import_is_superlinear() -> None:
    def call(line: bytes) -> None:
        with suppress(ValueError):
            ndjson.decode(line)

    examples = [
        b'{"pet":%s}\n' % BODIES[0],
        b'{"order":{"id":1,"petId":1,"status":"placed","placedAt":"2026-01-01T00:00:00.123456+01:00"}}\n',
    ]
    assert superlinear(call, inputs(examples, JSON_LETTERS)) is None


def test_no_key_file_is_superlinear(tmp_path: Path) -> None:
    file = tmp_path / "keys"

    def call(text: bytes) -> None:
        file.write_bytes(text)
        with suppress(ConfigurationError):
            Keys(file=file)

    line = b"ada.b_c-1:" + b"0123456789abcdef" * 4
    assert superlinear(call, inputs([b"# keys\n%s\n" % line], LETTERS), 1000) is None

    def call_with_many(text: bytes) -> None:
        call(b"".join(b"client-%d:%064x\n" % (n, n) for n in range(len(text))))

    assert superlinear(call_with_many, [Input(b"", b"a", b"")], 500, 8000) is None
