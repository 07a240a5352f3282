"""How a backend is found, checked and configured, with distributions created for the tests."""

import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from petstore import exit_status
from tests.support.command import SECRET, error_message, in_process, run_command, running
from tests.support.installed import register
from tests.support.services import KEY
from tests.support.waiting import HANG_SECONDS, until

SETTINGS: Final = """\
    url: Annotated[str, Meta(pattern="^acme://", description="an acme:// URL")] = "acme://here"
    timeout: Annotated[float, Meta(gt=0, description="seconds above 0")] = 5
    password: Annotated[str, Meta(min_length=40, description="forty characters or more")] | None = (
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
from petstore.contract import Expected, SettingsError, UnavailableError
from petstore_memory import backend as memory

class AcmeSettings(Struct, frozen=True, forbid_unknown_fields=True):
{settings}

@asynccontextmanager
async def open_acme(settings, expected):
    {opening}
    async with memory.open(memory.settings(), Expected()) as repository:
        yield repository

def make(contract=2, shared=False, durable=False):
    return msgspec.structs.replace(memory, settings=AcmeSettings, open=open_acme,
                                   contract=contract, shared=shared, durable=durable)

backend = {backend}
"""


class Site:
    """A folder for distributions on `sys.path`, also on that of processes started here."""

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
        register(self._folder, title, version, {name: f"{module}:backend"})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Return a site into which distributions are installed for one test."""
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
        assert error_message(in_process("check", backend="acme")) == (
            "petstore: 2 distributions provide the backend 'acme': other-petstore-acme 0.1.0 and"
            " petstore-acme 1.0.0. Choose one: PETSTORE_BACKEND=other-petstore-acme:acme or"
            " PETSTORE_BACKEND=petstore-acme:acme\n"
        )
        for choice, reason in (
            ("petstore-acme:acme", "ours"),
            ("Petstore_Acme:acme", "ours"),
            ("other-petstore-acme:acme", "other"),
        ):
            message = error_message(in_process("check", backend=choice), exit_status.UNAVAILABLE)
            assert message == f"petstore: the storage cannot be used: {reason}\n"
        message = error_message(in_process("check", backend="ACME"))
        assert message.endswith("Did you mean 'acme'?\n")
        message = error_message(in_process("check", backend="nobody:acme"))
        assert message.startswith(
            "petstore: there is no backend named 'nobody:acme' (installed: acme, "
        )

    @pytest.mark.parametrize(
        ("backend", "expected"),
        [
            ('int("line\\nline")', r"cannot be imported from acme_\d+:backend: ValueError: "),
            ("None; del backend", r"cannot be imported from acme_\d+:backend: AttributeError: "),
            ("exit('no')", r"cannot be imported from acme_\d+:backend: SystemExit: no$"),
            ("None; import acme_x", r"cannot be imported .*: ModuleNotFoundError: No .*'acme_x'"),
            (
                "None",
                r"is not a backend: acme_\d+:backend is a NoneType, expected a petstore\.contract",
            ),
            ("make(3)", r"was written for storage contract 3; this service supports contract 2$"),
        ],
    )
    def test_an_entry_point_without_a_suitable_backend_is_reported_in_one_line(
        self, site: Site, backend: str, expected: str
    ) -> None:
        site.install(backend=backend)
        message = error_message(in_process("check", backend="acme"))
        assert re.match(ACME + expected, message), message
        assert len(message.splitlines()) == 1

    @pytest.mark.parametrize(
        "name", ["Redis2_", "redis_2", "2redis", "red-is", "api", "max", "config"]
    )
    def test_a_name_that_settings_cannot_begin_with_is_refused(self, site: Site, name: str) -> None:
        site.install(name)
        message = error_message(in_process("check", backend=name))
        assert message.startswith(
            f"petstore: the backend '{name}' (acme-petstore 0.1.0) has an invalid name: expected "
        )

    def test_a_broken_backend_that_is_not_chosen_does_no_harm(self, site: Site) -> None:
        site.install("acme", backend="1 / 0")
        site.install("Bad_", "bad 1")
        outcome = run_command("check", backend="memory", api_keys=SECRET, acme_url="acme://there")
        assert (outcome.status, outcome.stderr) == (0, "")

    def test_backends_continues_after_a_broken_backend(self, site: Site) -> None:
        site.install("aaa", "aaa 1", backend="1 / 0")
        site.install(backend="make(shared=True, durable=True)")
        status, stdout, stderr = in_process("backends")
        assert status == exit_status.CONFIGURATION
        assert re.fullmatch(
            r"petstore: the backend 'aaa' \(aaa 1\) cannot be imported from acme_\d+:backend: .*\n",
            stderr,
        )
        assert stdout.startswith("acme  acme-petstore 0.1.0  contract 2  shared, durable\n")
        assert re.search(
            r"^memory  petstore-memory \S+  contract 2  neither ", stdout, re.MULTILINE
        )


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "text", "expected"),
        [
            ("acme_uri", "x", r".* setting of the backend 'acme'\. Did you mean .*_ACME_URL\?\n$"),
            ("acme_color", SECRET, "PETSTORE_ACME_COLOR is not a setting of the backend 'acme'"),
            ("acme_", "x", "PETSTORE_ACME_ is not a setting of the backend 'acme'"),
            ("acme_port", "80", "PETSTORE_ACME_PORT is not a setting of the backend 'acme'"),
            ("acme_url", "http://x", "PETSTORE_ACME_URL must be an acme:// URL; it is 'http://x'"),
            ("acme_url", f"http://:{SECRET}@x", "PETSTORE_ACME_URL must be an acme:// URL"),
            ("acme_timeout", "0", "PETSTORE_ACME_TIMEOUT must be seconds above 0; it is '0'"),
            ("acme_timeout", "5 s", "PETSTORE_ACME_TIMEOUT must be seconds above 0; it is '5 s'"),
            ("acme_password", SECRET, "PETSTORE_ACME_PASSWORD must be forty characters or more\n$"),
        ],
    )
    def test_a_wrong_setting_is_reported(
        self, site: Site, setting: str, text: str, expected: str
    ) -> None:
        site.install()
        message = error_message(in_process("check", backend="acme", **{setting: text}))
        assert re.match(f"petstore: {expected}", message), message

    def test_a_missing_setting_is_named(self, site: Site) -> None:
        site.install(settings="    path: str\n    mode: str")
        message = error_message(in_process("check", backend="acme", acme_mode="x"))
        assert message == "petstore: PETSTORE_ACME_PATH is not set and has no default\n"
        message = error_message(in_process("check", backend="sqlite"))
        assert message == (
            "petstore: PETSTORE_SQLITE_PATH is not set and has no default: it must be the path of a"
            " file on a local disk\n"
        )

    @pytest.mark.parametrize("field", ["port", "service_host"])
    def test_a_setting_is_never_taken_for_what_kubernetes_injects(
        self, site: Site, field: str
    ) -> None:
        """A plugin's port was ignored, whatever its value, and the default used."""
        site.install(settings=f"    {field}: Annotated[int, Meta(ge=1, le=9)] = 7")
        name, injected = f"PETSTORE_ACME_{field.upper()}", {"acme_port": "tcp://10.0.0.1:80"}
        message = error_message(
            in_process("check", backend="acme", **injected | {f"acme_{field}": "abc"})
        )
        assert message == f"petstore: {name} must be an integer from 1 to 9; it is 'abc'\n"

    def test_a_warning_of_python_is_one_line(self, site: Site) -> None:
        site.install(
            opening='import warnings; warnings.warn("careful")', backend="make(durable=True)"
        )
        for arguments, line in {
            ("check",): '"level":"warning","event":"careful"}\n',
            ("export",): "petstore: warning: careful\n",
        }.items():
            stderr = run_command(*arguments, backend="acme").stderr
            assert line in stderr
            assert "UserWarning" not in stderr

    def test_check_shows_every_setting_and_no_secret(self, site: Site, tmp_path: Path) -> None:
        site.install()
        file = tmp_path / "keys"
        file.write_text(in_process("keys", "new").stdout.splitlines()[1])
        status, stdout, stderr = in_process(
            "check",
            backend="acme",
            api_keys=SECRET,
            api_keys_file=str(file),
            acme_url=f"acme://me:{SECRET}@there:1/0",
            acme_password=f"{SECRET}-{SECRET}",
        )
        assert (status, stderr) == (0, "")
        *settings, last = stdout.splitlines()
        shown = dict(line.split("=", 1) for line in settings)
        assert shown == {
            "PETSTORE_BACKEND": "acme",
            "PETSTORE_API_KEYS": "***",
            "PETSTORE_WORKERS": "1",
            "PETSTORE_API_KEYS_FILE": str(file),
            "PETSTORE_LISTEN": "127.0.0.1:8000",
            "PETSTORE_MAX_BODY_BYTES": "65536",
            "PETSTORE_ROOT_PATH": "",
            "PETSTORE_LOG_LEVEL": "info",
            "PETSTORE_READ_ONLY": "false",
            "PETSTORE_STORE": "",
            "PETSTORE_LOG": "json",
            "PETSTORE_KEEP_ALIVE_SECONDS": "75",
            "PETSTORE_DRAIN_SECONDS": "1",
            "PETSTORE_SHUTDOWN_SECONDS": "10",
            "PETSTORE_MAX_IN_FLIGHT": "1000",
            "PETSTORE_RATE_LIMIT": "",
            "PETSTORE_CORS_ORIGINS": "",
            "PETSTORE_METRICS_LISTEN": "",
            "PETSTORE_ACME_URL": "acme://me:***@there:1/0",
            "PETSTORE_ACME_TIMEOUT": "5",
            "PETSTORE_ACME_PASSWORD": "***",
        }
        assert re.fullmatch(r"ok: the backend 'acme' \(acme-.* 0\.1\.0\) responded in .* ms", last)


class TestOpen:
    @pytest.mark.parametrize("arguments", [["serve", "--listen", "127.0.0.1:0"], ["check"]])
    @pytest.mark.parametrize(
        ("error", "status", "begin"),
        [
            ("SettingsError", exit_status.CONFIGURATION, ""),
            ("UnavailableError", exit_status.UNAVAILABLE, "the storage cannot be used: "),
        ],
    )
    def test_an_error_of_opening_is_one_line_and_a_status(
        self, site: Site, arguments: list[str], error: str, status: int, begin: str
    ) -> None:
        site.install(opening=f'raise {error}("acme://here: refused")')
        outcome = in_process(*arguments, backend="acme", api_keys=KEY)
        assert error_message(outcome, status) == f"petstore: {begin}acme://here: refused\n"

    def test_a_storage_that_is_lost_before_the_port_is_open_is_status_69_too(
        self, site: Site, tmp_path: Path
    ) -> None:
        marker = tmp_path / "opened"
        site.install(
            opening=f"""marker = Path({str(marker)!r})
    if marker.exists():
        raise UnavailableError("gone")
    marker.touch()"""
        )
        outcome = run_command("serve", backend="acme", api_keys=KEY, listen="127.0.0.1:0")
        message = error_message(outcome, exit_status.UNAVAILABLE)
        assert message == "petstore: the storage cannot be used: gone\n"

    def test_ctrl_c_while_it_opens_leaves_no_traceback(self, site: Site, tmp_path: Path) -> None:
        site.install(opening='print("opening", flush=True); await asyncio.sleep(30)')
        with running(tmp_path, "check", backend="acme") as process:
            until(lambda: "opening" in (tmp_path / "stdout").read_text())
            process.send_signal(signal.SIGINT)
            assert process.wait(HANG_SECONDS) == 130
        assert (tmp_path / "stderr").read_text() == ""
