"""Which tests execute a line: probes in the code, and a pytest plugin that tells them the test.

coverage.py cannot say it: it loses what a killed process has executed, and knows no test outside
of pytest's own process. A probe writes each test once, as soon as it is reached. What a fixture
executes that several tests share counts for all of them, not only for the first.
"""

import ast
import os
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER: Final = "MUTANTS_FOLDER"
"""The variable with the folder that probes write to."""

TEST: Final = "MUTANTSTEST"
"""The variable with the file that names the current test."""

_current = ""  # in pytest's own process: a test, or a tab and a fixture with the path of its users
_seen: set[tuple[int, str]] = set()


def hit(number: int) -> None:
    """Write that the current test has reached a probe."""
    if TEST not in os.environ:
        return  # imported before the first test
    test = _current or Path(os.environ[TEST]).read_text()
    if (number, test) not in _seen:
        _seen.add((number, test))
        with Path(os.environ[FOLDER], "hits").open("a") as file:
            file.write(f"{number}\t{test}\n")


def plant(
    source: bytes, statements: dict[tuple[int, int], set[int]], everywhere: Collection[int]
) -> str:
    """Return a module with probes.

    statements -- line and column of a statement -> the probes before it
    everywhere -- probes in all functions
    """
    tree = ast.parse(source)
    for node in list(ast.walk(tree)):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list):
                setattr(node, name, list(_planted(body, statements)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = 1 if ast.get_docstring(node) is not None else 0
            node.body[first:first] = map(_call, everywhere)
    return ast.unparse(tree)


def _planted(
    body: list[ast.stmt], statements: dict[tuple[int, int], set[int]]
) -> Iterator[ast.stmt]:
    for statement in body:
        yield from map(_call, statements.get((statement.lineno, statement.col_offset), ()))
        yield statement


def _call(number: int) -> ast.stmt:
    return ast.parse(f"__import__('tests.mutants.probes').mutants.probes.hit({number})").body[0]


def read_hits(folder: Path) -> dict[int, set[str]]:
    """Return the tests that have reached each probe."""
    users: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "uses").read_text().splitlines():
        test, fixture = line.split("\t")
        users[fixture].add(test)
    reached: dict[int, set[str]] = defaultdict(set)
    for line in (folder / "hits").read_text().splitlines():
        probe, test, *shared = line.split("\t")
        if shared:
            fixture, path = shared
            reached[int(probe)] |= {user for user in users[fixture] if user.startswith(path)}
        else:
            reached[int(probe)].add(test)
    return reached


def _tell(current: str) -> None:
    """Tell the probes of this process, and of those that it starts, what runs."""
    global _current  # noqa: PLW0603 - pytest calls functions of a module
    _current = current
    file = Path(os.environ[FOLDER], f"test-{os.getpid()}")
    file.write_text(_current)
    os.environ[TEST] = str(file)


def pytest_runtest_protocol(item: Any) -> None:
    """Tell which test runs, and write which fixtures it uses."""
    with Path(os.environ[FOLDER], "uses").open("a") as file:
        file.writelines(f"{item.nodeid}\t{fixture}\n" for fixture in item.fixturenames)
    _tell(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """Tell that a shared fixture runs."""
    if fixturedef.scope == "function":
        return (yield)
    before = _current
    _tell(f"\t{fixturedef.argname}\t{fixturedef.baseid}")
    try:
        return (yield)
    finally:
        _tell(before)


def pytest_runtest_logreport(report: Any) -> None:
    """Write the outcome and duration of each phase, once: where no other process does."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        with Path(os.environ[FOLDER], "results").open("a") as file:
            file.write(f"{report.outcome}\t{report.duration}\t{report.nodeid}\n")


def pytest_sessionfinish(session: Any) -> None:
    """Keep the status for the end."""
    session.config.stash["status"] = int(session.exitstatus)


def pytest_unconfigure(config: Any) -> None:
    """End a run on a change at once, whatever threads the change keeps from ending."""
    if config.option.numprocesses == 0:
        sys.stdout.flush()
        os._exit(config.stash["status"])
