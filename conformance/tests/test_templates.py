"""`petstore-conformance new`: each template is a project whose backend keeps the contract."""

import asyncio
import os
import re
import sys
import threading
import tomllib
from contextlib import aclosing
from pathlib import Path

import pytest
from petstore_conformance.commands import main
from petstore_conformance.templates import generator
from petstore_conformance.templates.file.engine import Engine

from petstore.contract import CONTRACT, Expected, UnavailableError, WrongStoreError
from tests.support.environments import captured
from tests.support.installed import KIT, SECONDS, conformance, judged, register

each_template = pytest.mark.parametrize("template", generator.TEMPLATES)


@pytest.fixture
def project(tmp_path: Path, template: str) -> Path:
    """Write the project `acme`, and install it as an editable one: by metadata in its folder."""
    folder = tmp_path / "acme"
    generator.write("acme", template, folder)
    found = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    backends = found["entry-points"]["petstore.backends"]
    register(folder, found["name"], found["version"], backends)
    return folder


@each_template
def test_a_template_works_as_it_is(project: Path) -> None:
    chosen = ("closed", "order-reserves", "restore-live", "token-atomic")
    run = conformance("acme", project, *(f"--clause={name}" for name in chosen))
    assert run.returncode == 0, run.stdout + run.stderr


def own_tests(project: Path, chosen: str) -> int:
    """Run those of a project's own tests whose names have a text; return pytest's status."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", chosen, "tests"]
    env = os.environ | {"PYTHONPATH": str(project)}
    run = captured(command, SECONDS, cwd=project, env=env)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return run.returncode


@each_template
@pytest.mark.parametrize("removes", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_template_has_a_test_of_its_scratch(project: Path, removes: bool) -> None:
    package = project / "petstore_acme" / "__init__.py"
    if not removes:
        text = re.sub(r"(?m)(await client.remove|_remove)\(.*\)$", "pass", package.read_text())
        package.write_text(text)
    assert own_tests(project, "scratch_location") == (0 if removes else 1)


@pytest.mark.parametrize("template", ["server"])
def test_a_template_has_a_test_of_another_store_in_its_place(project: Path) -> None:
    assert own_tests(project, "place_of_the_open_one") == 0
    module = project / "petstore_acme" / "transactions.py"
    compares, ignores = "{IDENTITY: self.store.encode(), **read}", "read"
    assert compares in module.read_text()
    module.write_text(module.read_text().replace(compares, ignores))
    assert own_tests(project, "place_of_the_open_one") == 1


@pytest.mark.slow
@each_template
def test_a_template_keeps_the_contract_as_it_is(project: Path, template: str) -> None:
    run = judged(conformance("acme", project))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].startswith("acme is compliant: ")
    skipped = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("- ")]
    not_claimed = {"shared", "snapshot"} if template == "file" else {"snapshot"}
    assert {name.partition("-")[0] for name in skipped} == not_claimed


COPY = (
    "import os, sqlite3; file = os.environ['PETSTORE_ACME_URL'].partition('://')[2];"
    "here, saved = sqlite3.connect(file), sqlite3.connect(file + '.saved')"
)
"""What saves and restores the stand-in of the template `server`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "notes"), [("file", True), ("server", True), ("server", False)]
)
def test_a_template_refuses_an_older_copy(project: Path, template: str, notes: bool) -> None:
    if not notes:
        module = project / "petstore_acme" / "transactions.py"
        module.write_text(module.read_text().replace("reply.revision < known", "False"))
    commands = [
        f'--server-{option}="{sys.executable}" -c "{COPY}; {copied}"'
        for option, copied in {
            "save": "here.backup(saved)",
            "restore": "saved.backup(here)",
        }.items()
    ]
    flags = ("--faults", "--fault=server-restore", "--minutes=0.02", "--timeout-seconds=4")
    run = conformance("acme", project, *flags, *(commands if template == "server" else ()))
    if notes:
        run = judged(run)
    assert run.returncode == (0 if notes else 1), run.stdout + run.stderr
    assert notes or "given out twice" in run.stdout


@each_template
def test_a_project_is_named_and_complete(project: Path, template: str) -> None:
    files = [file for file in project.rglob("*") if file.is_file() and file.parent.name[-1] != "o"]
    for file in files:
        assert "template" not in file.read_text().lower().replace("a template of petstore", ""), (
            file
        )
    assert os.access(project / "ci.sh", os.X_OK)
    assert (project / "LICENSE").read_text().startswith("MIT License")
    assert f"contract={CONTRACT}" in (project / "petstore_acme" / "__init__.py").read_text()
    package = {file.name for file in (project / "petstore_acme").iterdir()}
    assert package >= {"__init__.py", "py.typed", "repository.py"}, template


@pytest.mark.parametrize("name", ["Acme", "my-store", "log", "../acme", ""])
def test_a_name_that_no_backend_can_have_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["new", name, "--template=file"])
    assert "has an invalid name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_that_exists_is_replaced(tmp_path: Path) -> None:
    command = [KIT, "new", "acme", "--template=server"]
    first, second = (captured(command, cwd=tmp_path) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert "acme/ is a working backend" in first.stdout
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == "petstore-conformance: cannot create acme: File exists\n"


def test_no_call_succeeds_once_a_file_has_had_another_store(tmp_path: Path) -> None:
    """The file template went on if the file had been overwritten, not replaced."""

    async def run() -> None:
        async with aclosing(Engine(str(tmp_path / "pets.db"), 60, Expected())) as engine:
            await engine.run(lambda: engine.execute("UPDATE store SET identity = 'another'"))
            with pytest.raises(WrongStoreError):
                await engine.run(str)
            engine.store = "another"
            with pytest.raises(WrongStoreError):
                await engine.run(str)

    asyncio.run(run())


def test_a_call_that_takes_too_long_is_unavailable_and_a_time_limit_of_the_engine_stays(
    tmp_path: Path,
) -> None:
    path, released = str(tmp_path / "pets.db"), threading.Event()

    def own_limit() -> None:
        raise TimeoutError("the engine's own")

    async def run() -> None:
        async with aclosing(Engine(path, 0.01, Expected())) as engine:
            with pytest.raises(UnavailableError, match=r"^no result within 0\.01 s$"):
                await engine.run(released.wait)
            released.set()
        async with aclosing(Engine(path, 60, Expected())) as engine:
            with pytest.raises(TimeoutError, match="the engine's own"):
                await engine.run(own_limit)

    asyncio.run(run())
