"""Third parties: `backends/README.md` works with the wheels alone, without the checkout.

The author has an empty directory, the wheels of this project and a package index. The index is a
folder of wheels, repacked from the installed distributions, so that pip does all that it would do
for a third party, such as resolving the metadata of our wheels, without a network. It holds only
what those metadata require. No path leads to the checkout.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import pytest
from msgspec import Meta, Struct
from packaging.requirements import Requirement
from petstore_conformance import Conformance
from petstore_conformance.harness.kit import clauses, sentences

from petstore.config import discovery
from petstore.config.errors import ConfigurationError
from petstore.config.settings import masked
from petstore.contract import Backend
from tests.support.documents import ROOT, blocks
from tests.support.environments import captured
from tests.support.installed import judged
from tests.support.pets import AVAILABLE_REX
from tests.support.services import environment
from tests.support.waiting import HANG_SECONDS, until

pytestmark = pytest.mark.slow

README = (ROOT / "backends/README.md").read_text()
PROJECTS = [ROOT / "pyproject.toml", *ROOT.glob("conformance/pyproject.toml")]
PROJECTS += ROOT.glob("backends/*/pyproject.toml")
BLOCKS = blocks(README, "sh")
SERVE = "petstore serve --dev --backend acme\n"
MARK = "=== block ==="
SECONDS = 10 * HANG_SECONDS
PROBE = """
import json, sys
def loaded():
    return {"litestar", "uvicorn", "pytest", "hypothesis"}.intersection(sys.modules)
import petstore.contract; contract = loaded()
from petstore_conformance import Conformance; kit = loaded()
import petstore, petstore_acme
files = [petstore.__file__, petstore_acme.__file__]
print(json.dumps([files, sorted(contract), sorted(kit), sys.path]))
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = judged(captured(command, SECONDS, cwd=cwd, env=env))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheels of all distributions; return them by distribution name, with underscores."""
    folder = tmp_path_factory.mktemp("wheels")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    for project in (file.parent for file in PROJECTS):
        run(*build, cwd=project)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def index(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repack the requirements of the service, its kit and the build of a backend as wheels."""
    folder = tmp_path_factory.mktemp("index")
    needed = [*requires(wheels["petstore_service"]), *requires(wheels["petstore_conformance"])]
    pending = [(Requirement(line), "") for line in (*needed, "hatchling", "editables")]
    seen: set[tuple[str, str]] = set()
    while pending:
        requirement, active = pending.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": active}):
            continue
        for extra in {"", *requirement.extras}:
            if (requirement.name, extra) not in seen:
                seen.add((requirement.name, extra))
                lines = distribution(requirement.name).requires or []
                pending += [(Requirement(line), extra) for line in lines]
    for name in {name for name, _ in seen}:
        pack(name, folder)
    return folder


def requires(wheel: Path) -> list[str]:
    return re.findall(r"^Requires-Dist: (.+)$", metadata(wheel), re.MULTILINE)


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def pack(name: str, folder: Path) -> None:
    """Repack an installed distribution as a wheel, without its scripts, which pip generates."""
    found = distribution(name)
    tags = re.findall(r"^Tag: (.+)-(.+)-(.+)$", found.read_text("WHEEL") or "", re.MULTILINE)
    parts = [re.sub(r"[-_.]+", "_", found.name), found.version]
    parts += [".".join(sorted(set(column))) for column in zip(*tags, strict=True)]
    with zipfile.ZipFile(folder / f"{'-'.join(parts)}.whl", "w") as archive:
        for file in found.files or []:
            if not {"..", "__pycache__", "INSTALLER", "REQUESTED"}.intersection(file.parts):
                archive.write(str(file.locate()), str(file))


class Author(NamedTuple):
    """The result for an author.

    directory -- of the backend
    env -- the environment variables of the author's shell
    printed -- what each block of the documentation printed
    """

    directory: Path
    env: dict[str, str]
    printed: list[str]

    def python(self, script: str) -> str:
        """Run a script in the author's virtual environment, outside all source directories."""
        return run(self.venv / "bin/python", "-c", script, cwd=Path("/"), env=self.env)

    @property
    def venv(self) -> Path:
        """The author's virtual environment."""
        return self.directory.parent / ".venv"


@pytest.fixture(scope="module")
def author(
    wheels: dict[str, Path], index: Path, tmp_path_factory: pytest.TempPathFactory
) -> Author:
    """Execute the blocks of the documentation in one shell, except the one that serves."""
    home = tmp_path_factory.mktemp("author")
    empty, tools = home / "empty", home / "bin"
    for folder in (empty, tools):
        folder.mkdir()
    (tools / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
    own = {sys.prefix, os.environ.get("VIRTUAL_ENV", sys.prefix)}  # the checkout's environment
    path = [part for part in os.environ["PATH"].split(":") if str(Path(part).parent) not in own]
    env = {
        name: text
        for name, text in environment().items()
        if not name.startswith(("PIP_", "PYTHON", "PYTEST"))
    }
    env |= {
        "PATH": ":".join([str(tools), *path]),
        "WHEELS": str(wheels["petstore_service"].parent),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_COMPILE": "1",  # twice as fast
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "COLUMNS": "200",
    }
    assert BLOCKS[-1] == SERVE
    script = f"echo '{MARK}'\n".join(BLOCKS[:-1])
    printed = run("bash", "-ec", script, cwd=empty, env=env).split(f"{MARK}\n")
    assert len(printed) == len(BLOCKS) - 1
    return Author(empty / "acme", env, printed)


def test_the_new_backend_is_listed(author: Author) -> None:
    _, listed = author.printed[1].split("\nacme  ")
    assert listed.startswith("petstore-acme 0.1.0  contract 2  shared, durable\n")
    assert sorted(file.name for file in author.directory.iterdir() if file.name[0] != ".") == [
        "LICENSE",
        "README.md",
        "acme.db",
        "badge.json",
        "ci.sh",
        "dist",
        "petstore_acme",
        "pyproject.toml",
        "report.json",
        "tests",
    ]


def test_its_own_tests_pass(author: Author) -> None:
    match = re.search(r"=+ (\d+) passed, (\d+) skipped in ", author.printed[2])
    assert match is not None, author.printed[2]
    unclaimed = [name for name in clauses(Conformance) if name == "snapshot"]
    if int(match[2]) > len(unclaimed):  # the machine was too busy
        pytest.skip(author.printed[2])
    assert int(match[2]) == len(unclaimed)
    own = 2  # those of its scratch, and of another store in its place
    assert int(match[1]) == len(clauses(Conformance)) - len(unclaimed) + own


@pytest.mark.timeout(1200)  # the kit runs twice in it, and twice in the fixture
def test_the_recipe_for_a_ci_passes_with_the_other_template(author: Author) -> None:
    home = author.directory.parent
    run(author.venv / "bin/petstore-conformance", "new", "disk", "--template=file", cwd=home)
    run("./ci.sh", cwd=home / "disk", env=author.env)
    report = json.loads((home / "disk/conformance.json").read_text())
    assert report["verdict"] == "compliant"
    outcomes = {result["clause"]: result["outcome"] for result in report["clauses"]}
    assert outcomes["durable-killed"] == outcomes["store-gone"] == "passed"


def test_its_wheel_is_compliant(author: Author) -> None:
    lines = author.printed[3].splitlines()
    for name in clauses(Conformance):
        assert any(re.match(rf"(ok|-) +{name} ", line) for line in lines), name
    assert lines[-1].startswith("acme is compliant")
    badge = json.loads((author.directory / "badge.json").read_text())
    assert (badge["message"], badge["color"]) == ("compliant", "brightgreen")
    said = author.printed[4].splitlines()[-1]
    assert re.fullmatch(
        r"petstore-acme 0\.1\.0: compliant with petstore contract 2, .* tried", said
    )
    assert [wheel.name for wheel in (author.directory / "dist").iterdir()] == [
        "petstore_acme-0.1.0-py3-none-any.whl"
    ]


def test_nothing_is_imported_from_the_checkout(author: Author) -> None:
    files, with_contract, with_kit, paths = json.loads(author.python(PROBE))
    site = str(next(author.venv.glob("lib/python*/site-packages")))
    assert files == [f"{site}/petstore/__init__.py", f"{site}/petstore_acme/__init__.py"]
    assert not [path for path in paths if Path(path).is_relative_to(ROOT)]
    assert with_contract == []
    assert with_kit == ["hypothesis", "pytest"]


@pytest.fixture
def served(author: Author, tmp_path: Path) -> Iterator[httpx.Client]:
    """Run the last block on a free port; yield a client with the banner's key."""
    banner = tmp_path / "banner"
    script = f". {author.venv}/bin/activate\nexec {SERVE}"
    env = author.env | {"PETSTORE_LISTEN": "127.0.0.1:0", "PETSTORE_DRAIN_SECONDS": "0"}
    with banner.open("wb") as out:
        popen = subprocess.Popen(
            ["bash", "-ec", script], cwd=author.directory, env=env, stdout=out, stderr=out
        )

    def started() -> re.Match[str] | None:
        pattern = r"service +(http\S+)/v1\n.*API key +(\S+)\n"
        match = re.search(pattern, banner.read_text(), re.DOTALL)
        assert match or popen.poll() is None, banner.read_text()
        return match

    try:
        match = until(started, HANG_SECONDS, banner.read_text)
        headers = {"Authorization": f"Bearer {match[2]}"}
        with httpx.Client(base_url=match[1], headers=headers, timeout=HANG_SECONDS) as client:
            yield client
        popen.terminate()
        assert popen.wait(HANG_SECONDS) == 0
        assert "the backend 'acme' (petstore-acme 0.1.0)" in banner.read_text()
    finally:
        popen.kill()
        popen.wait()


def test_it_serves(served: httpx.Client) -> None:
    created = served.post("/v1/pets", json=AVAILABLE_REX)
    assert created.status_code == 201
    read = served.get(created.headers["location"])
    assert (read.status_code, read.json()) == (200, {"id": 1, **AVAILABLE_REX})
    assert served.get("/docs").status_code == 200, "its template is installed, too"


def test_the_wheels_hold_their_package_and_nothing_else(wheels: dict[str, Path]) -> None:
    assert len(wheels) == len(PROJECTS)
    for package, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
        top = package.removesuffix("_service")
        info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
        assert {name.split("/")[0] for name in names} == {top, info}, "no tests, no other packages"
        assert not [name for name in names if "__pycache__" in name or "/test" in name]
        source = next(file.parent for file in PROJECTS if (file.parent / top).is_dir())
        files = {str(file.relative_to(source)) for file in (source / top).rglob("*.*")}
        expected = {name for name in files if "__pycache__" not in name}
        assert expected == {name for name in names if name.startswith(top + "/")}
        assert f"{top}/py.typed" in names
        if package == "petstore_service":
            assert f"{info}/licenses/LICENSE" in names


def test_the_service_requires_no_backend_and_each_backend_requires_the_service(
    wheels: dict[str, Path],
) -> None:
    for package, wheel in wheels.items():
        ours = [line for line in requires(wheel) if line.startswith("petstore")]
        expected = [] if package == "petstore_service" else ["petstore-service<2,>=1"]
        assert ours == expected, package


def test_the_settings_of_the_example_are_shown_as_documented() -> None:
    (block,) = blocks(README, "python")
    names: dict[str, Any] = {"Annotated": Annotated, "Meta": Meta, "Struct": Struct}
    names["__name__"] = __name__
    exec(block, names)  # noqa: S102 - the documentation is executed
    memory = discovery.find("memory")
    example = Backend(
        contract=2,
        settings=names["AcmeSettings"],
        open=memory.backend.open,
        scratch=memory.backend.scratch,
        shared=False,
        durable=False,
    )
    plugin = discovery.Plugin("acme", "petstore-acme", "0.1.0", example)
    values = {"PETSTORE_ACME_URL": "acme://u:p@h", "PETSTORE_ACME_PASSWORD": "hunter2"}
    assert masked(discovery.configure(plugin, values), plugin.prefix) == {
        "PETSTORE_ACME_URL": "acme://u:***@h",
        "PETSTORE_ACME_TIMEOUT": "5",
        "PETSTORE_ACME_PASSWORD": "***",
    }
    with pytest.raises(ConfigurationError, match="ACME_URL must be an acme:// URL"):
        discovery.configure(plugin, {"PETSTORE_ACME_URL": "x"})


def test_the_failure_in_the_text_is_what_the_kit_prints() -> None:
    (block,) = blocks(README, "text")
    first, second = block.splitlines()
    _, name, sentence = first.split(maxsplit=2)
    assert sentences()[name].startswith(sentence.removesuffix(" ..."))
    docstring = getattr(Conformance, clauses(Conformance)[name]).__doc__
    assert second.strip() == f"Probably: {docstring}"
