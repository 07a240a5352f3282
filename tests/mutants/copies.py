"""A copy of the checkout, in which pytest runs and a change is made and undone."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants import probes
from tests.mutants.changes import Change

KILLED: Final = "killed"
SURVIVED: Final = "survived"
UNSURE: Final = "fails without the change, too"

_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER: what a test leaves behind becomes our child


class Tests(NamedTuple):
    """The tests that execute a change, those of quick files first.

    seconds -- how long they take
    longest -- how long the slowest of them takes
    """

    names: list[str]
    seconds: float
    longest: float

    @classmethod
    def ordered(cls, names: set[str], seconds: Mapping[str, float]) -> "Tests":
        """Return tests in order."""
        files: dict[str, float] = defaultdict(float)
        for name in names:
            files[name.partition("::")[0]] += seconds[name]
        ordered = sorted(names, key=lambda name: (files[name.partition("::")[0]], name))
        return cls(ordered, sum(files.values()), max((seconds[n] for n in names), default=0))


class Copy:
    """A copy in a folder. Only one of a process is used, and that starts no other processes."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root = root
        self.build = root / "build"
        self.build.mkdir(exist_ok=True)
        self.results = self.build / "results"
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)

    def outcome(self, change: Change, tests: Tests) -> tuple[str, str]:
        """Make a change, run tests, undo it; return the outcome, and what shows it.

        A test that hangs fails after a minute and ten times what the slowest of the tests takes. A
        failure counts only if what failed passes without the change: a machine may be slow.
        """
        if not tests.names:
            return SURVIVED, "no test executes it"
        file = self.root / change.file
        source = file.read_bytes()
        file.write_bytes(change.apply(source))
        try:
            output = self._run(tests, tests.names)
        finally:
            file.write_bytes(source)
        if output == "":
            return SURVIVED, f"{len(tests.names)} tests"
        if output is None or "+ Timeout +" in output:
            again, why = self._run(tests, tests.names), "hangs"
        elif failed := re.findall(r"^(?:FAILED|ERROR) (.*?::.*?)(?: - .*)?$", output, re.MULTILINE):
            again, why = self._run(tests, failed), failed[0]
        else:
            again, why = self._run(tests, tests.names, "--collect-only"), "cannot be imported"
        return (UNSURE if again != "" else KILLED), why

    def _run(self, tests: Tests, names: list[str], *options: str) -> str | None:
        listed = self.build / "tests"
        listed.write_text("\n".join(names))
        limit = f"--timeout={60 + 10 * tests.longest}"
        # pytest-timeout's thread ends pytest, whatever hangs; the last limit is for the rest.
        options = ("-x", "-n0", limit, "--timeout-method=thread", *options, f"@{listed}")
        return self.pytest(*options, seconds=120 + 10 * tests.seconds)

    def pytest(self, *options: str, seconds: float | None = None) -> str | None:
        """Run pytest; return its output if tests failed, "" if not, and None after the time limit.

        No process that it started is left.
        """
        temporary = self.root / "t"  # short: sockets are in it
        temporary.mkdir(exist_ok=True)
        packages = [self.root, *self.root.glob("backends/*/")]
        environment = {
            "PYTHONPATH": os.pathsep.join(map(str, packages)),
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "1",  # a change may keep time and size of a file
            probes.FOLDER: str(self.build),
        }
        output = self.build / "output"
        plugins = ("-pno:cacheprovider", f"-p{probes.__name__}")
        command = (sys.executable, "-m", "pytest", "-q", "--tb=no", *plugins, *options)
        try:
            with output.open("wb") as file:
                status = subprocess.run(
                    command,
                    cwd=self.root,
                    env=os.environ | environment,
                    stdout=file,
                    stderr=file,
                    timeout=seconds,
                    start_new_session=True,  # a change may make the tests signal their group
                    check=False,
                ).returncode
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_children()
            shutil.rmtree(temporary, ignore_errors=True)
        return output.read_text(errors="replace") if status else ""


def _end_children() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
