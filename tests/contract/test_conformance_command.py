"""`petstore conformance NAME`: a line per clause, a verdict, an exit status, no files left over."""

import os
import subprocess
import sys
from pathlib import Path

from petstore.conformance import Conformance
from petstore.conformance.kit import clauses, sentences
from tests.support.documents import ROOT
from tests.support.services import environment

CLAUSES = clauses(Conformance)


def conformance(name: str, directory: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the kit in a directory that may hold a plugin; the checkout is importable, too."""
    return subprocess.run(
        [sys.executable, "-m", "petstore", "conformance", name],
        cwd=directory,
        env=environment(**settings) | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def results(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the first word of the line of each clause."""
    split = [line.split() for line in run.stdout.splitlines()]
    return {words[1]: words[0] for words in split if len(words) > 1 and words[1] in CLAUSES}


def test_memory_is_compliant_and_the_clauses_of_capabilities_are_skipped(tmp_path: Path) -> None:
    run = conformance("memory", tmp_path)
    assert run.returncode == 0, run.stdout
    assert set(results(run)) == set(CLAUSES)
    skipped = {name for name, word in results(run).items() if word == "-"}
    assert skipped == {name for name in CLAUSES if name.startswith(("durable", "shared"))}
    assert run.stdout.splitlines()[-1].startswith("memory is compliant: ")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_sqlite_is_compliant_and_the_configured_file_is_not_touched(tmp_path: Path) -> None:
    configured = tmp_path / "pets.sqlite"
    configured.write_bytes(b"data of the deployer")
    run = conformance("sqlite", tmp_path, sqlite_path=str(configured))
    assert run.returncode == 0, run.stdout
    assert set(results(run).values()) == {"ok"}
    assert list(tmp_path.iterdir()) == [configured]
    assert configured.read_bytes() == b"data of the deployer"


def test_a_saboteur_is_not_compliant_and_the_broken_clause_is_named(tmp_path: Path) -> None:
    (tmp_path / "petstore_zombie.py").write_text(
        "from tests.contract.saboteurs import SABOTEURS\n"
        'backend = SABOTEURS["KeepsWorkingWhenClosed"][1]\n'
    )
    metadata = tmp_path / "petstore_zombie-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: petstore-zombie\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[petstore.backends]\nzombie=petstore_zombie:backend\n"
    )
    run = conformance("zombie", tmp_path)
    assert run.returncode == 1
    broken = {name for name, word in results(run).items() if word == "FAILED"}
    assert broken == {"closed"}
    assert sentences()["closed"] in run.stdout
    assert "Probably: Closing only forgets" in run.stdout
    assert "zombie is NOT compliant" in run.stdout.splitlines()[-1]


def test_a_storage_that_cannot_be_reached_exits_with_69(tmp_path: Path) -> None:
    run = conformance("sqlite", tmp_path, sqlite_path=str(tmp_path / "nothing" / "pets.sqlite"))
    assert run.returncode == 69
    assert run.stdout == ""
    assert run.stderr.startswith("petstore: cannot reach the storage: sqlite at ")
    assert len(run.stderr.splitlines()) == 1
