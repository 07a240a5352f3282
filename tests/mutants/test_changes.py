"""The changes that are made at random, and the probes that find the tests of each."""

import os
import subprocess
import sys
from pathlib import Path

from tests.mutants.changes import changes
from tests.mutants.probes import FOLDER, TEST, plant
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


def test_a_probe_names_the_test_that_reaches_it_in_any_process(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(plant(SOURCE, {(9, 4): {1}, (8, 8): {2}}, [3]) + "\nfind([1], 2)")
    (tmp_path / "test").write_text("a test")
    environment = {FOLDER: tmp_path, TEST: tmp_path / "test", "PYTHONPATH": ROOT}
    subprocess.run([sys.executable, module], env=os.environ | environment, check=True)
    assert sorted((tmp_path / "hits").read_text().splitlines()) == ["1\ta test", "3\ta test"]
