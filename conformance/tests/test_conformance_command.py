"""`petstore-conformance test`: a line per clause, a verdict, a status, no files left over."""

import json
import os
import platform
import re
import signal
import subprocess
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from petstore_conformance import Conformance
from petstore_conformance.commands import main
from petstore_conformance.harness import documents
from petstore_conformance.harness.cores import INCONCLUSIVE
from petstore_conformance.harness.kit import clauses, sentences

import petstore
from petstore import exit_status
from petstore.contract import CONTRACT
from tests.support.installed import KIT, conformance, install, judged
from tests.support.services import environment
from tests.support.waiting import HANG_SECONDS, until

CLAUSES = clauses(Conformance)


def results(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the first word of the line of each clause."""
    split = [line.split() for line in run.stdout.splitlines()]
    return {words[1]: words[0] for words in split if len(words) > 1 and words[1] in CLAUSES}


def test_help_says_what_each_exit_status_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["test", "--help"])
    _, _, said = capsys.readouterr().out.partition("Exit status: ")
    known = 0, 1, exit_status.CONFIGURATION, exit_status.UNAVAILABLE, INCONCLUSIVE
    assert [int(n) for n in re.findall(r"\d+", said)] == [*known, exit_status.INTERRUPTED]


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_an_interrupted_run_is_no_verdict_and_leaves_no_location(
    tmp_path: Path, number: int
) -> None:
    run = subprocess.Popen(
        [KIT, "test", "sqlite"],
        env=environment(sqlite_path=str(tmp_path / "pets.sqlite")) | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline().startswith("ok ")
    until(lambda: [*tmp_path.glob("pets.sqlite.*")])  # the location of the next clause
    run.send_signal(number)
    output, errors = run.communicate(timeout=HANG_SECONDS)
    assert (run.returncode, errors) == (130, "")
    assert output.splitlines()[-1].startswith(f"interrupted: 0 of {len(CLAUSES)} clauses failed, ")
    assert list(tmp_path.iterdir()) == []


TRIMS = """
from contextlib import asynccontextmanager
from msgspec.structs import replace
from petstore_memory import MemoryRepository, MemorySettings, scratch_memory
from petstore.contract import Backend
class Trims(MemoryRepository):
    async def create_pet(self, new, token=None):
        return await super().create_pet(replace(new, name=new.name.strip()), token)
@asynccontextmanager
async def open_(settings, expected):
    yield Trims()
backend = Backend(
    contract=2, settings=MemorySettings, open=open_, scratch=scratch_memory,
    shared=False, durable=False,
)
"""
FAILS = TRIMS.replace(
    "        return await super().create_pet(replace(new, name=new.name.strip()), token)\n",
    """        import asyncio
        await asyncio.wait_for(self.fail(new), 5)
    async def fail(self, new):
        class Named(type):
            @property
            def __name__(cls):
                raise ValueError
        class DriverError(Exception):
            def __str__(self):
                raise ValueError
            __repr__ = __str__
        class NamelessError(Exception, metaclass=Named):
            pass
        if new.name == "Rex":
            raise OSError("no \\udc80 route")
        raise DriverError if new.name == "" else NamelessError
""",
)


def test_a_failure_shows_what_was_compared_and_no_frames_of_others(tmp_path: Path) -> None:
    nothing = "    async def place_order(self, pet_id, at, token=None): pass\n@async"
    install("trims", tmp_path, TRIMS.replace("@async", nothing))
    failing = ("name-exact", "order-get", "model")
    chosen = (*failing, "page-empty")
    run = judged(conformance("trims", tmp_path, *(f"--clause={name}" for name in chosen)))
    assert run.returncode == 1
    assert results(run) == dict.fromkeys(failing, "FAILED") | {"page-empty": "ok"}
    assert f"FAILED  name-exact          {sentences()['name-exact']}\n" in run.stdout
    assert "\n        Probably: The name is trimmed" in run.stdout
    assert re.search(
        r"^E +(AssertionError: )?assert Pet\(id=2, name='', ", run.stdout, re.MULTILINE
    )
    assert " == Pet(id=2, name=' ', category_id=7, status=UNSET)\n" in run.stdout
    assert re.search(r"^E +state\.begin\(news=\[NewPet\(", run.stdout, re.MULTILINE)
    frames = set(re.findall(r"^(\S+\.py):\d+: ", run.stdout, re.MULTILINE))
    assert frames
    assert {Path(frame).parent.name for frame in frames} <= {"clauses", "model", tmp_path.name}
    assert "A method takes or returns something else than the contract says" in run.stdout
    assert "AttributeError: 'NoneType' object has no attribute 'id'" in run.stdout
    assert run.stdout.splitlines()[-1] == (
        "trims is NOT compliant: 3 of 4 clauses failed, 0 not run. Begin with order-get; also"
        " failed: name-exact, model"
    )
    assert "-vv" not in run.stdout, "an option that the command does not have"


def test_no_exception_of_a_driver_stops_the_report_which_may_be_a_file(tmp_path: Path) -> None:
    install("fails", tmp_path, FAILS)
    chosen = ("get-stored", "id-once", "name-exact", "overlapping-calls", "page-empty")
    file = tmp_path / "report.json"
    clauses = [f"--clause={clause}" for clause in chosen]
    run = conformance("fails", tmp_path, *clauses, f"--json={file}")
    assert run.returncode == 1, run.stderr
    assert results(run) == dict.fromkeys(chosen, "FAILED")
    assert "DriverError: <exception str() failed>" in run.stdout
    assert "NamelessError object at 0x" in run.stdout
    assert "no \\udc80 route" in run.stdout
    assert "wait_for(self.fail(new), 5)" in run.stdout, "the frames of the plugin are there"
    assert "5 of 5 clauses failed, 0 not run" in run.stdout.splitlines()[-1]
    found = report(file.read_text())
    assert found["verdict"] == "not compliant"
    result = found["clauses"]["id-once"]
    assert result["outcome"] == "failed"
    assert "no \\udc80 route" in result["reason"]
    assert [*tmp_path.glob("*report.json*")] == [file]
    nowhere = conformance("fails", tmp_path, f"--json={tmp_path}/no/file")
    assert (nowhere.returncode, nowhere.stdout) == (2, "")


MINUTE_IS_OVER = "signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)"
"""Lets the alarm ring in a plugin, where it is to be interrupted."""


def test_the_command_ends_although_a_thread_of_the_plugin_does_not(tmp_path: Path) -> None:
    hangs = f"""
        try:
            await asyncio.to_thread(self.hang)
        finally:
            {MINUTE_IS_OVER}
    def hang(self):
        while True:
            time.sleep(1)
"""
    source = TRIMS.replace("\n        return await super", f"{hangs}#")
    shorter = "kit.CLAUSE_SECONDS = 0.2\n"
    shorter += "cores.read = dict\n"  # it is judged on a busy machine, too
    imports = "import asyncio, signal, time\nfrom petstore_conformance.harness import cores, kit\n"
    install("hangs", tmp_path, imports + shorter + source)
    run = conformance("hangs", tmp_path, "--clause", "id-once")
    assert run.returncode == 1, run.stderr
    assert results(run) == {"id-once": "FAILED"}
    assert "await asyncio.to_thread(self.hang)" in run.stdout, "where it was"


@pytest.mark.parametrize(
    "hangs",
    [
        "await asyncio.Event().wait()\n    yield Trims()",
        f"yield Trims()\n    {MINUTE_IS_OVER}\n    threading.Event().wait()",
    ],
)
def test_a_location_that_is_never_open_or_closed_is_a_failure(tmp_path: Path, hangs: str) -> None:
    imports = "import asyncio, signal, threading\nfrom petstore_conformance.harness import kit\n"
    shorter = "kit.CLAUSE_SECONDS = 0.2\n"
    install("waits", tmp_path, imports + shorter + TRIMS.replace("yield Trims()", hangs))
    run = conformance("waits", tmp_path, "--clause", "page-empty")
    assert (run.returncode, run.stdout) == (1, "")
    message = "opening and closing an empty location has not ended within"
    assert re.match(rf"petstore-conformance: {message} (0\.2|60) s; it waits here:\n", run.stderr)
    assert f"{tmp_path}/petstore_waits.py" in run.stderr


def test_a_clause_that_a_busy_machine_delays_is_not_judged(tmp_path: Path) -> None:
    waits = "        await asyncio.Event().wait()\n        return await super"
    busy = """
import asyncio, itertools
from petstore_conformance.harness import cores
from petstore_conformance.harness import documents, kit
kit.CLAUSE_SECONDS = 0.5
waited = itertools.count(0, 10**9)
cores.read = lambda: {"1": (0, next(waited))}
"""
    lists = "\n    async def list_pets(self, query):\n        return None\n@asynccontextmanager"
    source = TRIMS.replace("        return await super", waits)
    install("waits", tmp_path, busy + source.replace("\n@asynccontextmanager", lists))
    run = conformance("waits", tmp_path, "--clause", "id-once")
    assert run.returncode == 75, run.stdout + run.stderr
    assert results(run) == {"id-once": "SLOW"}
    assert "        inconclusive: OverdueError(" in run.stdout
    assert "waits is not judged: 1 of 1 clauses were inconclusive" in run.stdout.splitlines()[-1]
    run = conformance("waits", tmp_path, "--clause", "id-once", "--clause", "page-empty")
    assert run.returncode == 1, run.stdout + run.stderr
    verdict = "waits is NOT compliant: 1 of 2 clauses failed, 0 not run, 1 inconclusive. Begin"
    assert run.stdout.splitlines()[-1].startswith(verdict)


def test_clauses_can_be_chosen_and_a_seed_repeats_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = conformance("memory", tmp_path, "--clause", "closed", "--seed", "7")
    assert run.returncode == 0, run.stdout
    assert results(run) == {"closed": "ok"}
    assert "is compliant" not in run.stdout
    assert "--seed 7" in run.stdout
    notes = """
        file = open("names", "a")
        file.write(new.name.encode("utf-8", "replace").hex() + ",")
        if file.tell() > 3300:
            file.close()
            os._exit(0)
        return"""
    source = TRIMS.replace(".strip()", "").replace("\n        return", notes)
    install("notes", tmp_path, f"import os\n{source}")
    monkeypatch.setenv("CI", "true")  # there, Hypothesis would ignore the seed by default
    seen = []
    for seed in ("7", "7", "8"):
        conformance("notes", tmp_path, "--clause", "model", "--seed", seed)
        seen.append((tmp_path / "names").read_text())
        (tmp_path / "names").unlink()
    first, again, other = (names[: min(map(len, seen))] for names in seen)  # within a time limit
    assert first == again != other


def test_the_clauses_are_listed_a_line_each_without_a_backend(tmp_path: Path) -> None:
    run = conformance("--list", tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert dict([line.split(maxsplit=1) for line in run.stdout.splitlines()]) == sentences()
    assert set(sentences()) == set(CLAUSES)
    listed = conformance("--list", tmp_path, "--json")
    assert {each["clause"]: each["sentence"] for each in json.loads(listed.stdout)} == sentences()
    both = conformance("memory", tmp_path, "--list")
    assert (both.returncode, both.stdout) == (2, "")


def report(text: str) -> dict[str, Any]:
    """Return a report, with the clauses by name."""
    found: dict[str, Any] = json.loads(text)
    found["clauses"] = {result.pop("clause"): result for result in found["clauses"]}
    assert list(found["clauses"]) == list(sentences())
    return found


def test_the_report_is_one_document_and_the_rest_goes_to_standard_error(tmp_path: Path) -> None:
    chosen = ("--clause=closed", "--clause=durable-ids")
    run = conformance("memory", tmp_path, *chosen, "--seed=7", "--json")
    assert run.returncode == 0, run.stderr
    found = report(run.stdout)
    results = found.pop("clauses")
    assert datetime.fromisoformat(found.pop("date")).utcoffset() == timedelta(0)
    assert found.pop("seconds") > 0
    assert found == {
        "backend": "memory",
        "distribution": "petstore-memory",
        "version": version("petstore-memory"),
        "promises": [],
        "max_name_bytes": None,
        "service": petstore.__version__,
        "contract": CONTRACT,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": 7,
        "share": 1,
        "begin_with": None,
        "verdict": "passed what was chosen",
    }
    closed = results.pop("closed")
    assert closed.pop("seconds") >= 0
    assert closed.pop("calls") > 100
    assert closed == {"outcome": "passed", "share": 1}
    reason = "not claimed by the backend: durable"
    assert results.pop("durable-ids") == {"outcome": "skipped", "reason": reason}
    assert {result["outcome"] for result in results.values()} == {"not run"}
    verdict = run.stderr.splitlines()[-1]
    assert verdict.startswith("memory passed what was chosen: ")
    assert verdict.endswith("; tried all values")


def test_the_verdict_says_what_share_of_the_values_was_tried(tmp_path: Path) -> None:
    half = """
from petstore_conformance.harness.effort import Effort
Effort.choose = lambda self, items, share, choose=Effort.choose: choose(self, items, 0.5)
"""
    install("keeps", tmp_path, half + TRIMS.replace(".strip()", ""))
    run = conformance("keeps", tmp_path, "--clause=name-exact")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n        tried 50% of its values\n" in run.stdout
    tried = "; each tried at least 50% of its values (fewest: name-exact)"
    assert run.stdout.splitlines()[-1].endswith(tried)


def test_a_report_is_there_once_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    documents.check(file)
    assert not file.exists()
    documents.write(file, ["first"])
    documents.check(file)
    with pytest.raises(TypeError):
        documents.write(file, [object()])
    assert json.loads(file.read_text()) == ["first"]
    os.mkfifo(pipe := tmp_path / "pipe")
    with pipe.open("r+b", buffering=0) as reader:
        documents.check(Path(f"/dev/fd/{reader.fileno()}"))
        documents.write(pipe, ["piped"])
        assert json.loads(reader.read(99)) == ["piped"]
    assert pipe.is_fifo()


def test_an_unknown_clause_is_a_configuration_error(tmp_path: Path) -> None:
    run = conformance("memory", tmp_path, "--clause", "name-exakt")
    assert (run.returncode, run.stdout) == (2, "")
    assert "no clause name-exakt" in run.stderr
    assert "Did you mean name-exact?" in run.stderr


@pytest.mark.parametrize("options", [(), ("--faults",)])
def test_a_storage_that_cannot_be_reached_exits_with_69(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = str(tmp_path / "nothing" / "pets.sqlite")
    run = conformance("sqlite", tmp_path, *options, sqlite_path=path)
    assert run.returncode == 69
    assert run.stdout == ""
    assert run.stderr.startswith("petstore-conformance: the storage cannot be used: sqlite at ")
    assert len(run.stderr.splitlines()) == 1


def test_the_kit_refuses_to_run_without_assertions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    run = conformance("memory", tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("petstore-conformance: the conformance kit consists of assertions")
