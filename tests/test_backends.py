"""How a backend is found, checked and configured, with distributions that are made up here."""

import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from petstore import backends, cli
from petstore.configuration import configure
from petstore.settings import ConfigurationError
from tests.test_command import SECRET, command, in_process, mistake, running, wait_for

SETTINGS: Final = """\
    url: Annotated[str, Meta(pattern="^acme://", description="an acme:// URL")] = "acme://here"
    timeout: Annotated[float, Meta(gt=0, description="seconds above 0")] = 5
    password: Annotated[str, Meta(min_length=9, description="nine characters or more")] | None = (
        None
    )
"""
MODULE: Final = """\
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated
import msgspec
from msgspec import Meta, Struct
from petstore.contract import SettingsError, UnavailableError
from petstore_memory import backend as memory

class AcmeSettings(Struct, frozen=True, forbid_unknown_fields=True):
{settings}

@asynccontextmanager
async def open_acme(settings):
    {opening}
    async with memory.open(memory.settings()) as repository:
        yield repository

def make(contract=1, shared=False, durable=False):
    return msgspec.structs.replace(memory, settings=AcmeSettings, open=open_acme,
                                   contract=contract, shared=shared, durable=durable)

backend = {backend}
"""


class Site:
    """A folder on `sys.path`, also of processes started here, to put distributions into."""

    count = itertools.count()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(
        self,
        name: str = "acme",
        distribution: str = "acme-petstore 0.1.0",
        *,
        settings: str = SETTINGS,
        opening: str = "pass",
        backend: str = "make()",
    ) -> None:
        """Install a distribution that provides a backend under a name."""
        module = f"acme_{next(self.count)}"
        code = MODULE.format(settings=settings, opening=opening, backend=backend)
        (self._folder / f"{module}.py").write_text(code)
        title, version = distribution.split()
        info = self._folder / f"{title.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {title}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(f"[petstore.backends]\n{name} = {module}:backend\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Return where to install distributions for one test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    yield Site(folder)
    for module in [name for name in sys.modules if re.fullmatch(r"acme_\d+", name)]:
        del sys.modules[module]


ACME = r"petstore: the backend 'acme' \(acme-petstore 0\.1\.0\) "


class TestFind:
    def test_two_claimants_of_a_name_are_named_and_one_can_be_chosen(self, site: Site) -> None:
        site.install("acme", "petstore-acme 1.0.0", opening='raise UnavailableError("ours")')
        site.install("acme", "other-petstore-acme 0.1.0", opening='raise UnavailableError("other")')
        assert mistake(in_process("check", backend="acme")) == (
            "petstore: two distributions provide the backend 'acme': other-petstore-acme 0.1.0 and"
            " petstore-acme 1.0.0. Choose one: PETSTORE_BACKEND=petstore-acme:acme\n"
        )
        for choice, answer in (
            ("petstore-acme:acme", "ours"),
            ("Petstore_Acme:acme", "ours"),
            ("other-petstore-acme:acme", "other"),
        ):
            told = mistake(in_process("check", backend=choice), cli.UNAVAILABLE)
            assert told == f"petstore: cannot reach the storage: {answer}\n"
        told = mistake(in_process("check", backend="nobody:acme"))
        assert told.startswith("petstore: no backend is named 'nobody:acme' (installed: acme, ")

    @pytest.mark.parametrize(
        ("backend", "message"),
        [
            (
                "1 / 0",
                r"cannot be imported from acme_\d+:backend: ZeroDivisionError: division by z",
            ),
            ('int("line\\nline")', r"cannot be imported from acme_\d+:backend: ValueError: "),
            ("None; del backend", r"cannot be imported from acme_\d+:backend: AttributeError: "),
            ("None; import acme_x", r"cannot be imported .*: ModuleNotFoundError: No .*'acme_x'"),
            (
                "None",
                r"is no backend: acme_\d+:backend is of type NoneType, expected petstore\.con",
            ),
            ("AcmeSettings", r"is no backend: acme_\d+:backend is of type StructMeta, expected "),
            ("make(2)", r"was written for storage contract 2; this service speaks 1\.$"),
            ("make(0)", r"was written for storage contract 0; this service speaks 1\.$"),
        ],
    )
    def test_what_is_no_backend_for_this_service_is_told_in_one_line(
        self, site: Site, backend: str, message: str
    ) -> None:
        site.install(backend=backend)
        told = mistake(in_process("check", backend="acme"))
        assert re.match(ACME + message, told), told
        assert len(told.splitlines()) == 1

    @pytest.mark.parametrize(
        "name", ["Redis2_", "redis_2", "2redis", "red-is", "api", "max", "config"]
    )
    def test_a_name_that_settings_cannot_begin_with_is_refused(self, site: Site, name: str) -> None:
        site.install(name)
        told = mistake(in_process("check", backend=name))
        start = rf"petstore: the backend '{name}' \(acme-petstore 0\.1\.0\) has a name that cannot"
        assert re.match(start, told), told

    def test_a_broken_one_that_nobody_chose_disturbs_nobody(self, site: Site) -> None:
        site.install("acme", backend="1 / 0")
        site.install("Bad_", "bad 1")
        outcome = command("check", backend="memory", acme_url="acme://there")
        assert (outcome.status, outcome.stderr) == (0, "")

    def test_backends_lists_settings_with_defaults_and_goes_on_past_a_broken_one(
        self, site: Site
    ) -> None:
        site.install("aaa", "aaa 1", backend="1 / 0")
        site.install(
            settings=f"    path: str\n{SETTINGS}    made: str = msgspec.field(default_factory=str)",
            backend="make(shared=True, durable=True)",
        )
        status, stdout, stderr = in_process("backends")
        assert status == cli.CONFIGURATION
        told = (
            r"petstore: the backend 'aaa' \(aaa 1\) cannot be imported from acme_\d+:backend: .*\n"
        )
        assert re.fullmatch(told, stderr)
        assert stdout.startswith(
            "acme  acme-petstore 0.1.0  contract 1  shared, durable\n"
            "  PETSTORE_ACME_PATH  required\n"
            "  PETSTORE_ACME_URL  default acme://here  an acme:// URL\n"
            "  PETSTORE_ACME_TIMEOUT  default 5  seconds above 0\n"
            "  PETSTORE_ACME_PASSWORD  default none  nine characters or more\n"
            "  PETSTORE_ACME_MADE  default"
        )
        assert re.search(
            r"^memory  petstore-memory \S+  contract 1  neither ", stdout, re.MULTILINE
        )


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "text", "message"),
        [
            ("acme_uri", "x", r".* setting of the backend 'acme'\. Did you mean .*_ACME_URL\?\n$"),
            ("acme_colour", SECRET, "PETSTORE_ACME_COLOUR is not a setting of the backend 'acme'"),
            ("acme_", "x", "PETSTORE_ACME_ is not a setting of the backend 'acme'"),
            ("acme_url", "http://x", "PETSTORE_ACME_URL must be an acme:// URL; it is 'http://x'"),
            ("acme_url", f"http://:{SECRET}@x", "PETSTORE_ACME_URL must be an acme:// URL"),
            ("acme_timeout", "0", "PETSTORE_ACME_TIMEOUT must be seconds above 0; it is '0'"),
            ("acme_timeout", "5 s", "PETSTORE_ACME_TIMEOUT must be seconds above 0; it is '5 s'"),
            ("acme_password", SECRET, "PETSTORE_ACME_PASSWORD must be nine characters or more\n$"),
        ],
    )  # fmt: skip
    def test_a_wrong_one_is_told(self, site: Site, setting: str, text: str, message: str) -> None:
        site.install()
        told = mistake(in_process("check", backend="acme", **{setting: text}))
        assert re.match(f"petstore: {message}", told), told

    def test_a_missing_one_is_named(self, site: Site) -> None:
        site.install(settings="    path: str\n    mode: str")
        told = mistake(in_process("check", backend="acme", acme_mode="x"))
        assert told == "petstore: PETSTORE_ACME_PATH is not set, and there is no default\n"

    def test_what_kubernetes_injects_for_its_service_is_ignored(self, site: Site) -> None:
        site.install()
        settings = {"acme_port": "tcp://10.0.0.1:1", "acme_service_host": "10.0.0.1"}
        outcome = in_process("check", backend="acme", **settings)
        assert (outcome.status, outcome.stderr) == (0, "")

    def test_check_shows_every_setting_and_no_secret(self, site: Site, tmp_path: Path) -> None:
        site.install()
        file = tmp_path / "keys"
        file.write_text(in_process("keys", "new").stdout.splitlines()[1])
        status, stdout, stderr = in_process(
            "check", backend="acme", api_keys=SECRET, api_keys_file=str(file),
            acme_url=f"acme://me:{SECRET}@there:1/0", acme_password=f"{SECRET}-{SECRET}",
        )  # fmt: skip
        assert (status, stderr) == (0, "")
        *settings, last = stdout.splitlines()
        shown = dict(line.split("=", 1) for line in settings)
        assert shown == {
            "PETSTORE_BACKEND": "acme", "PETSTORE_API_KEYS": "***", "PETSTORE_WORKERS": "1",
            "PETSTORE_API_KEYS_FILE": str(file), "PETSTORE_LISTEN": "127.0.0.1:8000",
            "PETSTORE_MAX_BODY_BYTES": "65536", "PETSTORE_ROOT_PATH": "", "PETSTORE_LOG": "json",
            "PETSTORE_DRAIN_SECONDS": "1", "PETSTORE_SHUTDOWN_SECONDS": "10",
            "PETSTORE_MAX_IN_FLIGHT": "1000", "PETSTORE_RATE_LIMIT": "",
            "PETSTORE_CORS_ORIGINS": "", "PETSTORE_METRICS_LISTEN": "",
            "PETSTORE_ACME_URL": "acme://me:***@there:1/0", "PETSTORE_ACME_TIMEOUT": "5",
            "PETSTORE_ACME_PASSWORD": "***",
        }  # fmt: skip
        assert re.fullmatch(r"ok: the backend 'acme' \(acme-.* 0\.1\.0\) answered in .* ms", last)


class TestOpen:
    @pytest.mark.parametrize("arguments", [["serve", "--listen", "127.0.0.1:0"], ["check"]])
    def test_settings_that_cannot_work_are_a_mistake(
        self, site: Site, arguments: list[str]
    ) -> None:
        site.install(opening='raise SettingsError("PETSTORE_ACME_URL names no acme; use another")')
        told = mistake(in_process(*arguments, backend="acme", api_keys="key"))
        assert told == "petstore: PETSTORE_ACME_URL names no acme; use another\n"

    @pytest.mark.parametrize("arguments", [["serve", "--listen", "127.0.0.1:0"], ["check"]])
    def test_a_storage_that_cannot_be_reached_is_status_69(
        self, site: Site, arguments: list[str]
    ) -> None:
        site.install(opening='raise UnavailableError("acme at acme://here: connection refused")')
        told = mistake(command(*arguments, backend="acme", api_keys="key"), cli.UNAVAILABLE)
        assert told == (
            "petstore: cannot reach the storage: acme at acme://here: connection refused\n"
        )

    def test_one_that_goes_away_before_the_port_is_open_is_status_69_too(
        self, site: Site, tmp_path: Path
    ) -> None:
        mark = tmp_path / "opened"
        site.install(
            opening=f"""mark = Path({str(mark)!r})
    if mark.exists():
        raise UnavailableError("gone")
    mark.touch()"""
        )
        outcome = command("serve", backend="acme", api_keys="key", listen="127.0.0.1:0")
        assert mistake(outcome, cli.UNAVAILABLE) == "petstore: cannot reach the storage: gone\n"

    def test_ctrl_c_while_it_opens_leaves_no_traceback(self, site: Site, tmp_path: Path) -> None:
        site.install(opening='print("opening", flush=True); await asyncio.sleep(30)')
        with running(tmp_path, "check", backend="acme") as process:
            wait_for(tmp_path / "stdout", "opening")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        assert (tmp_path / "stderr").read_text() == ""


class TestWorkers:
    environ: Final = {"PETSTORE_API_KEYS": "key", "PETSTORE_WORKERS": "4"}

    def test_a_shared_backend_may_have_several(self, site: Site) -> None:
        site.install(backend="make(shared=True)")
        assert configure({**self.environ, "PETSTORE_BACKEND": "acme"}, {}).settings.workers == 4

    def test_one_that_is_not_shared_is_refused_and_shared_ones_are_named_once(
        self, site: Site
    ) -> None:
        site.install("acme", "petstore-acme 1.0.0", backend="make(shared=True)")
        site.install("acme", "other-acme 1.0.0", backend="make(shared=True)")
        site.install("best", "best 1", backend="make(shared=True)")
        site.install("broken", "broken 1", backend="1 / 0")
        site.install("own", "own 1", backend="make(durable=True)")
        with pytest.raises(ConfigurationError) as caught:
            configure({**self.environ, "PETSTORE_BACKEND": "own"}, {})
        shared = sorted({p.name for p in backends.installed()} - {"own", "broken", "memory"})
        assert {"acme", "best"} <= set(shared)
        start = "the backend 'own' lives inside one process; --workers 4 would serve four different"
        assert str(caught.value).startswith(f"{start} stores. Use --workers 1, or a shared backend")
        assert str(caught.value).endswith(f": {', '.join(shared)}")
