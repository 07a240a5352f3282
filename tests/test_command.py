"""The petstore command, as a deployer meets it. Backends: test_backends.py; keys: test_keys.py."""

import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from petstore import cli
from petstore.log import request_log
from petstore.settings import Log
from tests.live import Live, environment, process
from tests.test_settings import KUBERNETES

SECRET = "hunter2"
SECONDS = 20
COMMAND = (sys.executable, "-m", "petstore")


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


def command(*arguments: str, **settings: str) -> Outcome:
    """Run the command with these settings and no others."""
    done = subprocess.run(
        [*COMMAND, *arguments], env=environment(**settings), capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def in_process(*arguments: str, **settings: str) -> Outcome:
    """Do what `command` does, within this process: without half a second for a start."""
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    stderr = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("", "petstore", "uvicorn")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    try:
        with (
            mock.patch.dict(os.environ, environment(**settings) | {"COLUMNS": "80"}, clear=True),
            redirect_stdout(stdout),
            redirect_stderr(stderr),
            pytest.raises(SystemExit) as exit_,
        ):
            cli.main(arguments)
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
        request_log.set_up(Log.OFF)
    assert isinstance(exit_.value.code, int)
    assert isinstance(stdout.buffer, io.BytesIO)
    return Outcome(exit_.value.code, stdout.buffer.getvalue().decode(), stderr.getvalue())


def mistake(outcome: Outcome, status: int = cli.CONFIGURATION) -> str:
    """Check that a command ended with a mistake, told as mistakes are; return what it said."""
    assert outcome.status == status, outcome
    settings = outcome.stdout.splitlines()  # check shows them before it opens the storage
    assert all(line.startswith("PETSTORE_") for line in settings)
    assert 1 <= len(outcome.stderr.splitlines()) <= 2, outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert SECRET not in outcome.stderr
    return outcome.stderr


@contextmanager
def running(directory: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command until the block is left; it writes to directory/stdout and /stderr."""
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        env = environment(**settings)
        popen = subprocess.Popen([*COMMAND, *arguments], env=env, stdout=out, stderr=err)
    try:
        yield popen
    finally:
        popen.kill()
        popen.wait()


def wait_for(file: Path, pattern: str) -> re.Match[str]:
    """Wait until a file holds what is looked for."""
    end = time.monotonic() + SECONDS
    while (match := re.search(pattern, file.read_text(), re.DOTALL)) is None:
        assert time.monotonic() < end, f"no {pattern} in {file.read_text()}"
        time.sleep(0.02)
    return match


NO_KEY = (
    "petstore: no API key is set, so no client could be let in. Set PETSTORE_API_KEYS_FILE (make a"
    " key: petstore keys new), or to try it out: petstore serve --dev\n"
)
FOUR_STORES = (
    "^petstore: the backend 'memory' lives inside one process; --workers 4 would serve four"
    r" different stores\. Use --workers 1(, or a shared backend: [a-z, ]+)?\n$"
)


class TestMistakes:
    """Each ends in one or two lines on stderr and status 2: no traceback, no secret."""

    @pytest.mark.parametrize(
        ("arguments", "settings", "message"),
        [
            ([], {"backend": "memory"}, f"^{re.escape(NO_KEY)}$"),
            ([], {}, r"^petstore: no backend is chosen\. Set PETSTORE_BACKEND \(installed: .+\)"),
            (["--workers", "4"], {"backend": "memory", "api_keys": SECRET}, FOUR_STORES),
            (["--workerz", "4"], {}, "unrecognized arguments: --workerz 4"),
        ],
    )
    def test_a_process_tells_a_mistake(
        self, arguments: list[str], settings: dict[str, str], message: str
    ) -> None:
        assert re.search(message, mistake(command("serve", *arguments, **settings)))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "COMMAND"), (["sreve"], "sreve"), (["serve", "--wo", "4"], "--wo"),
            (["serve", "--workers"], "--workers"), (["serve", "x"], "x"), (["keys"], "COMMAND"),
            (["keys", "new", "a", "b"], "b"), (["check", "--backend", "x"], "--backend"),
        ],
    )  # fmt: skip
    def test_a_wrong_argument_is_named(self, arguments: list[str], message: str) -> None:
        assert re.search(rf"(^|\n)petstore.*: .*{message}\b", mistake(in_process(*arguments)))

    @pytest.mark.parametrize(
        ("setting", "text", "message"),
        [
            ("backend", "memroy", r".*'memroy' \(installed: .+\)\. Did you mean 'memory'\?$"),
            ("backend", "xyzzy", r"no backend is named 'xyzzy' \(installed: .*memory.*\)\.$"),
            ("listen", "8000", "PETSTORE_LISTEN must be HOST:PORT"),
            ("listen", "192.0.2.1:0", "cannot listen on 192.0.2.1:0: this machine has no such"),
            ("listen", "a..b:80", r"cannot listen on a\.\.b:80"),
            ("listen", "\udcff:80", "(PETSTORE_LISTEN must be|cannot listen on) "),
            ("workers", "0", "PETSTORE_WORKERS must be a whole number from 1"),
            ("workers", "two", "PETSTORE_WORKERS must be .*; it is 'two'"),
            ("shutdown_seconds", "nan", "PETSTORE_SHUTDOWN_SECONDS must be"),
            ("log", "xml", "PETSTORE_LOG must be json, text or off; it is 'xml'"),
            ("root_path", "shop/", "PETSTORE_ROOT_PATH must be a path .*; it is 'shop/'"),
            ("memory_size", "7", "PETSTORE_MEMORY_SIZE is not a setting of the backend 'memory'"),
            ("api_keys", f"{SECRET},{SECRET} {SECRET}", "API key number 2 cannot be sent"),
            ("api_keys", " , ", re.escape(NO_KEY.removeprefix("petstore: ").strip())),
            ("config", "/nothing.toml", "cannot read PETSTORE_CONFIG /nothing.toml: No such"),
            ("config", "/", "cannot read PETSTORE_CONFIG /: Is a directory"),
        ],
    )  # fmt: skip
    def test_a_wrong_setting_is_told(self, setting: str, text: str, message: str) -> None:
        settings = {"backend": "memory", "api_keys": "key", "listen": "127.0.0.1:0", setting: text}
        told = mistake(in_process("serve", **settings))
        assert re.match(f"petstore: {message}", told), told

    def test_a_taken_port_is_told(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            told = mistake(in_process("serve", "--dev", "--listen", listen))
        assert told.startswith(f"petstore: cannot listen on {listen}: the port is taken; ")

    @pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.0.0.1:80", "example.org:80"])
    def test_dev_listens_on_the_loopback_only(self, listen: str) -> None:
        told = mistake(in_process("serve", "--dev", "--listen", listen))
        assert told == mistake(in_process("serve", "--dev", listen=listen))
        assert told.startswith("petstore: --dev is for trying out and listens on the loopback only")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("PETSTORE_BACKEND = ", ".* is no TOML: "),
            (f'PETSTORE_API_KEYS = "{SECRET}', ".* is no TOML: "),
            ('PETSTORE_BAKEND = "memory"', ".* is not a setting. Did you mean PETSTORE_BACKEND"),
            (
                f'PETSTORE_API_KEY = "{SECRET}"',
                ".* is not a setting. .*_API_KEYS",
            ),
            ('PETSTORE_PORT = "80"', ".*PETSTORE_PORT is not a setting"),
            ('backend = "memory"', ".*: backend is no setting; their names begin with PETSTORE_"),
            (f'PETSTORE_API_KEYS = ["{SECRET}"]', ".*: PETSTORE_API_KEYS must be a string, a num"),
            ('[PETSTORE_LOG]\nx = "y"', ".*: PETSTORE_LOG must be a string, a number or a bool"),
            ('PETSTORE_API_KEYS_FILE = "a\\u0000b"', "cannot read the key file"),
        ],
    )
    def test_a_wrong_toml_file_is_told(self, tmp_path: Path, text: str, message: str) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text(text)
        told = mistake(in_process("serve", backend="memory", api_keys="key", config=str(file)))
        assert re.match(f"petstore: {message}", told), told


class TestNames:
    """Which settings are read, and what is said of others."""

    def test_flags_win_over_the_environment_and_that_over_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text('PETSTORE_WORKERS = 2\nPETSTORE_BACKEND = "memory"\n')
        for flags, settings, message in (
            ([], {}, "--workers 2 would serve two different stores"),
            ([], {"workers": "3"}, "--workers 3 would serve three different stores"),
            (["--workers", "4"], {"workers": "3"}, "--workers 4 would serve four different stores"),
            (["--backend", "x"], {"backend": "y"}, "no backend is named 'x'"),
            (["--listen", "z"], {"listen": "8000"}, "it is 'z'"),
        ):
            assert message in mistake(in_process("serve", *flags, config=str(file), **settings))

    def test_an_unknown_name_in_the_environment_only_warns(self) -> None:
        outcome = in_process("check", backend="memory", worker="2")
        warning = "PETSTORE_WORKER is not a setting. Did you mean PETSTORE_WORKERS?"
        assert (outcome.status, outcome.stderr) == (0, f"petstore: warning: {warning}\n")

    def test_it_warns_also_when_the_setting_that_was_meant_is_missing(self) -> None:
        told = mistake(in_process("serve", bakend="memory", api_keys=SECRET))
        assert "Did you mean PETSTORE_BACKEND?" in told
        told = mistake(in_process("serve", backend="memory", api_key=SECRET))
        assert "Did you mean PETSTORE_API_KEYS?" in told
        told = mistake(in_process("serve", backend="gone", gone_url=SECRET))
        assert told.startswith("petstore: no backend is named 'gone'")

    def test_what_kubernetes_injects_is_ignored_silently(self) -> None:
        injected = {name.removeprefix("PETSTORE_").lower(): "10.0.0.1" for name in KUBERNETES}
        outcome = in_process("check", backend="memory", memory_service_port="80", **injected)
        assert (outcome.status, outcome.stderr) == (0, "")


class TestOtherCommands:
    def test_version_is_told(self) -> None:
        assert re.fullmatch(r"petstore \d+\.\d+\.\d+\S*\n", command("--version").stdout)

    def test_help_names_every_command(self) -> None:
        outcome = in_process("--help")
        assert outcome.status == 0
        for name in ("serve", "backends", "check", "keys", "openapi"):
            assert re.search(rf"^ +{name} ", outcome.stdout, re.MULTILINE)

    def test_openapi_is_what_a_service_answers(self, service: Live) -> None:
        printed = json.loads(in_process("openapi").stdout)
        with service.anonymous() as client:
            assert printed == client.get("/openapi.json").json()

    def test_openapi_reads_the_root_path_as_a_service_does(self, tmp_path: Path) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text('PETSTORE_ROOT_PATH = "/shop"\n')
        for settings in ({"root_path": "/shop"}, {"config": str(file)}):
            printed = json.loads(in_process("openapi", **settings).stdout)
            assert printed["servers"][0]["url"] == "/shop/v1"
        told = mistake(in_process("openapi", root_path="shop/"))
        assert told.startswith("petstore: PETSTORE_ROOT_PATH must be")

    @pytest.mark.parametrize("arguments", ["openapi", "check", "--help", "keys new"])
    def test_a_closed_pipe_is_no_failure(self, arguments: str) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        env = environment(backend="memory")
        env.pop("PYTHONUNBUFFERED", None)
        done = subprocess.run(
            [*COMMAND, *arguments.split()], env=env, stdout=writer, stderr=subprocess.PIPE,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        os.close(writer)
        assert done.returncode == 0
        assert not re.search(b"Exception|Traceback", done.stderr)


class TestServe:
    def test_the_curl_line_of_dev_works_when_pasted(self, tmp_path: Path) -> None:
        with running(tmp_path, "serve", "--dev", "--listen", "127.0.0.1:0"):
            banner = wait_for(tmp_path / "stdout", r"API key +(\S+)\n.*?\n( +curl .*\}'\n)")
            pasted = ["bash", "-c", banner[2]]
            done = subprocess.run(pasted, capture_output=True, timeout=SECONDS, check=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201 ")
        assert json.loads(body) == {"id": 1, "name": "Rex", "categoryId": 7}
        assert banner[1] not in (tmp_path / "stderr").read_text()

    @pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
    def test_a_second_signal_ends_the_drain_at_once(self, tmp_path: Path, signal_: int) -> None:
        with process(tmp_path, drain_seconds="60") as live:
            assert live.process is not None
            live.process.send_signal(signal_)
            wait_for(tmp_path / "serve.log", "stopping")
            assert live.stop(signal_) == 0  # which waits for 30 seconds at most
        log = (tmp_path / "serve.log").read_text()
        assert "Traceback" not in log
        assert json.loads(log.splitlines()[-1])["event"] == "stopped"
