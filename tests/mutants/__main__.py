"""The command: python -m tests.mutants --count 300 --seed 1 [petstore/config ...].

Changes the code at random, and shows the changes that no test of `make test` notices. Only tests
that execute the changed statement run; one run of all tests, with a probe at each statement, finds
them. A statement that runs at import counts as executed by the tests that import its module, and by
those that call a function of it or, if it has none, of the modules that import it. Everything
happens in copies. For Linux.

Why no tool does it: mutmut knows only functions, pytest's own process, and packages in one place
(3.8: no tests for 1,477 of 9,125 mutants of `petstore/`, and none can be made of
`Service.__call__`); cosmic-ray runs all tests for each change, and takes no sample.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from tests.mutants.changes import KINDS, Change, changes
from tests.mutants.copies import KILLED, SURVIVED, UNSURE, Copy, Tests
from tests.mutants.probes import plant, read_hits
from tests.support.documents import ROOT

FOLDERS: Final = (
    "petstore",
    *(str(p.relative_to(ROOT)) for p in ROOT.glob("backends/*/petstore_*")),
)

TESTS: Final = ("tests", *(str(p.relative_to(ROOT)) for p in ROOT.glob("backends/*/tests")))

PROCESSES: Final = 2 * (os.cpu_count() or 1)
"""How many run at the same time: tests often wait."""


def copy_checkout(target: Path) -> None:
    """Copy what git knows or would add."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def modules(root: Path, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the modules among files and folders: path from the root -> content."""
    files = [file for path in paths for file in (root / path, *(root / path).rglob("*.py"))]
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(files) if f.suffix == ".py"}


def sample(sources: dict[str, bytes], count: int, seed: int) -> list[Change]:
    """Return random changes, of each kind as many as of the others."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    by_kind = defaultdict(list)
    for file, source in sources.items():
        for change in changes(file, source):
            by_kind[change.kind].append(change)
    for kind in KINDS:
        generator.shuffle(by_kind[kind])
    return [by_kind[KINDS[number % len(KINDS)]].pop() for number in range(count)]


def importers(file: str, sources: Mapping[str, bytes]) -> Iterator[str]:
    """Yield those of the modules that import the one in a file."""
    module = re.sub(r"^backends/\w+/|(/__init__)?\.py$", "", file).replace("/", ".")
    package, _, name = module.rpartition(".")
    for importer, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.ImportFrom(names=names) if node.module == module or (
                    node.module == package and name in {alias.name for alias in names}
                ):
                    yield importer
                    break
                case ast.Import(names) if module in {alias.name for alias in names}:
                    yield importer
                    break


def plant_probes(root: Path, chosen: Sequence[Change]) -> None:
    """Write a probe into a copy for each change."""
    sources = modules(root, FOLDERS)
    statements: dict[str, dict[tuple[int, int], set[int]]] = defaultdict(lambda: defaultdict(set))
    everywhere: dict[str, set[int]] = defaultdict(set)
    for number, change in enumerate(chosen):
        if change.local:
            statements[change.file][change.statement].add(number)
        elif b"def " in sources[change.file]:
            everywhere[change.file].add(number)
        else:
            for name in importers(change.file, sources):
                everywhere[name].add(number)
    for name in {*statements, *everywhere}:
        (root / name).write_text(plant(sources[name], statements[name], everywhere[name]))


def find_tests(copy: Copy, chosen: Sequence[Change], options: Sequence[str]) -> list[Tests]:
    """Run all tests on probes; return those that execute each change and pass without it."""
    plant_probes(copy.root, chosen)
    output = copy.pytest(f"-n{PROCESSES}", *options)
    seconds: dict[str, float] = defaultdict(float)
    failed = set()
    if not copy.results.exists():
        sys.exit(f"no test has run:\n{output}")
    for line in copy.results.read_text().splitlines():
        outcome, duration, test = line.split("\t", 2)
        seconds[test] += float(duration)
        if outcome == "failed":
            failed.add(test)
    print(f"{len(seconds)} tests in {sum(seconds.values()):.0f} s", flush=True)
    if failed:
        print("left out, as they fail without a change, too:", *sorted(failed), sep="\n")
    executed = read_hits(copy.build)
    users = modules(copy.root, TESTS)
    for number, change in enumerate(chosen):
        if not change.local:
            files = {*importers(change.file, users)}
            executed[number] |= {test for test in seconds if test.partition("::")[0] in files}
    return [Tests.ordered(executed[n] - failed, seconds) for n in range(len(chosen))]


_own: list[Copy] = []  # of a process of the pool


def try_change(origin: Path, change: Change, tests: Tests) -> tuple[str, str]:
    """Try a change in a copy of this process; return the outcome, and what shows it."""
    if not _own:
        root = Path(tempfile.mkdtemp(dir=origin.parent))
        shutil.copytree(origin, root, dirs_exist_ok=True)
        _own.append(Copy(root))
    return _own[0].outcome(change, tests)


def main() -> int:
    """Run the command; return 1 if changes have survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("paths", nargs="*", default=FOLDERS, help="files and folders to change")
    parser.add_argument("--count", type=int, default=300, help="how many changes")
    parser.add_argument("--seed", type=int, default=1, help="repeats a run")
    parser.add_argument("--tests", nargs="*", default=(), help="what pytest gets, if not all tests")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        Path(directory).chmod(0o755)  # servers that refuse to be root run as other users
        origin, probed = Path(directory, "origin"), Path(directory, "probed")
        copy_checkout(origin)
        sources = modules(origin, arguments.paths)
        chosen = sample(sources, arguments.count, arguments.seed)
        shutil.copytree(origin, probed)
        tests = find_tests(Copy(probed), chosen, arguments.tests)
        figures = Counter[str]()
        with ProcessPoolExecutor(PROCESSES) as pool:
            tried = {
                pool.submit(try_change, origin, c, t): c for c, t in zip(chosen, tests, strict=True)
            }
            for future in as_completed(tried):
                change, (outcome, why) = tried[future], future.result()
                figures[outcome] += 1
                number = f"{figures.total()}/{len(chosen)}"
                print(f"{number} {change.file}:{change.statement[0]} {outcome}: {why}")
                if outcome != KILLED:
                    print(change.diff(sources[change.file]))
                sys.stdout.flush()
    judged = figures[KILLED] + figures[SURVIVED]
    print(f"{figures[KILLED]} of {judged} killed, {figures[UNSURE]} not judged")
    return int(figures[KILLED] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
