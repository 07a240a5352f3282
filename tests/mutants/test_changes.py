"""The changes that are made at random, and the probes that find the tests of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import probes
from tests.mutants.changes import changes
from tests.mutants.probes import FOLDER, plant
from tests.support.documents import ROOT

SOURCE = b'''"""Prose."""

LIMIT = 3

def find(items: "list[int]", limit: int = LIMIT) -> bool:
    """Prose."""
    if items and not limit:
        items.sort()
    elif 1 < limit:
        items[0] += 1
    return "key" in items or f"{limit == 2}"
'''


def test_everything_but_prose_annotations_and_names_is_changed() -> None:
    before = SOURCE.decode().splitlines()
    found = set()
    for change in changes("module.py", SOURCE):
        after = change.apply(SOURCE).decode().splitlines()
        [(old, new)] = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        found.add((change.kind, old.strip(), new.strip(), change.statement[0], change.local))
    condition, last = "if items and not limit:", 'return "key" in items or f"{limit == 2}"'
    assert found == {
        ("constant", "LIMIT = 3", "LIMIT = 4", 3, False),
        ("condition", condition, "if (items or not limit):", 7, True),
        ("condition", condition, "if items and (limit):", 7, True),
        ("call", "items.sort()", "pass", 8, True),
        ("comparison", "elif 1 < limit:", "elif (1 <= limit):", 9, True),
        ("constant", "elif 1 < limit:", "elif 2 < limit:", 9, True),
        ("assignment", "items[0] += 1", "pass", 10, True),
        ("constant", "items[0] += 1", "items[1] += 1", 10, True),
        ("constant", "items[0] += 1", "items[0] += 2", 10, True),
        ("condition", last, "return ('key' in items and f'{limit == 2}')", 11, True),
        ("comparison", last, "return ('key' not in items) or f\"{limit == 2}\"", 11, True),
        ("constant", last, "return 'keyX' in items or f\"{limit == 2}\"", 11, True),
    }


TESTS = """
import subprocess
import sys

import module
import pytest

@pytest.fixture(scope="module")
def found():
    return module.find([1], 2)

def test_first(found): ...
def test_second(found): ...
def test_process(): subprocess.run([sys.executable, module.__file__], check=True)
def test_nothing(): ...
"""


@pytest.mark.slow
def test_probes_name_the_tests_that_reach_them_in_any_process_or_fixture(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(plant(SOURCE, {(9, 4): {1}, (8, 8): {2}}, [3]) + "\nfind([1], 2)")
    (tmp_path / "test_module.py").write_text(TESTS)
    environment = {FOLDER: str(tmp_path), "PYTHONPATH": str(ROOT)}
    options = ("-q", "-n0", f"-p{probes.__name__}", "-pno:cacheprovider")
    command = (sys.executable, "-m", "pytest", *options)
    subprocess.run(command, cwd=tmp_path, env=os.environ | environment, check=True)
    tests = {f"test_module.py::test_{name}" for name in ("first", "second", "process")}
    assert probes.read_hits(tmp_path) == {1: tests, 3: tests}
