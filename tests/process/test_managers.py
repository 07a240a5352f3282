"""Process managers start, reload and stop the service, each by its own means."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.command import COMMAND
from tests.support.documents import ROOT, blocks
from tests.support.environments import node_modules, program
from tests.support.key_files import key_line, replace
from tests.support.raw_http import AUTHORIZED, CLOSE, HOST, JSON, head
from tests.support.services import KEY, OTHER_KEY, environment, receive_all
from tests.support.waiting import HANG_SECONDS, PATIENCE, until

README: Final = (ROOT / "docker/README.md").read_text()
SERVE: Final = " ".join((*COMMAND, "serve"))
DRAIN_SECONDS: Final = 4 * PATIENCE


class Managed(NamedTuple):
    """A service under a manager.

    reload, stop -- what the manager does; neither waits
    status -- the exit status that the manager has seen; None if it has seen none yet
    """

    reload: Callable[[], object]
    stop: Callable[[], object]
    status: Callable[[], str | None]


def settings(directory: Path) -> dict[str, str]:
    (directory / "keys").write_text(key_line("client", KEY))
    return environment(
        backend="sqlite",
        sqlite_path=f"{directory}/pets",
        api_keys_file=f"{directory}/keys",
        listen=f"unix:{directory}/http",
        workers="2",
        drain_seconds=f"{DRAIN_SECONDS}",
    )


def for_test(
    block: str,
    directory: Path,
    command: tuple[str, str] = ("/opt/petstore/bin/petstore serve", SERVE),
) -> str:
    """Return a block of the documentation with the command and the places of the test."""
    for old, new in (
        command,
        ("/var/lib/petstore/petstore.sqlite", f"{directory}/pets"),
        ("/etc/petstore/keys", f"{directory}/keys"),
    ):
        assert old in block, old
        block = block.replace(old, new)
    return block


@contextmanager
def supervisord(directory: Path, more: str = "") -> Iterator[Managed]:
    [block] = [block for block in blocks(README, "ini") if "[program:" in block]
    (directory / "supervisord.conf").write_text(f"""
{for_test(block, directory)}{more}
[supervisord]
logfile = {directory}/log
pidfile = {directory}/pid
childlogdir = {directory}
[unix_http_server]
file = {directory}/control
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl = unix://{directory}/control
""")
    configured, controls = ("-c", f"{directory}/supervisord.conf"), list[subprocess.Popen[bytes]]()
    manager = subprocess.Popen(
        [program("supervisord"), "-n", *configured],
        env=settings(directory),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def control(*words: str) -> None:
        command = [program("supervisorctl"), *configured, *words]
        controls.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def status() -> str | None:
        log = (directory / "log").read_text()
        found = re.search(r"stopped: petstore \((?:exit status )?(.+)\)", log)
        return found and found[1]

    try:
        yield Managed(
            lambda: control("signal", "HUP", "petstore"),
            lambda: control("stop", "petstore"),
            status,
        )
    finally:
        manager.terminate()
        for popen in (manager, *controls):
            popen.wait(HANG_SECONDS)


@contextmanager
def runit(directory: Path) -> Iterator[Managed]:
    service, status = directory / "petstore", directory / "status"
    service.mkdir()
    [block] = [block for block in blocks(README, "sh") if "exec 2>&1" in block]
    finish = f"#!/bin/sh\necho $1 >{status}\n"
    for name, script in (("run", for_test(block, directory)), ("finish", finish)):
        (service / name).write_text(script)
        (service / name).chmod(0o755)
    with (directory / "log").open("wb") as log:
        manager = subprocess.Popen(
            [program("runsv"), service], env=settings(directory), stdout=log, stderr=log
        )

    def control(word: str) -> None:
        subprocess.run([program("sv"), word, service], check=False, stdout=subprocess.DEVNULL)

    try:
        yield Managed(
            lambda: control("hup"),
            lambda: (service / "supervise/control").write_text("d"),
            lambda: status.read_text().strip() if status.exists() else None,
        )
    finally:
        control("exit")
        manager.wait(HANG_SECONDS)


@contextmanager
def pm2(directory: Path) -> Iterator[Managed]:
    """Run pm2, which stops with SIGINT, sent to the workers, too."""
    [block] = blocks(README, "js")
    python, *arguments = COMMAND
    new = f'"{python}", args: "{" ".join(arguments)} serve"'
    file = directory / "petstore.config.js"
    old = '"/opt/petstore/bin/petstore", args: "serve"'
    file.write_text(for_test(block, directory, (old, new)))
    environ = settings(directory) | {"PM2_HOME": f"{directory}/pm2"}
    (directory / "log").symlink_to(directory / "pm2/logs/petstore-error.log")
    manager = f"{node_modules(Path(__file__).parent / 'pm2') / '.bin/pm2'}"
    controls = list[subprocess.Popen[bytes]]()

    def control(*words: str) -> None:
        command = [manager, *words]
        controls.append(subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL))

    def status() -> str | None:
        text = (directory / "pm2/pm2.log").read_text()
        # It writes SIGINT for a process that no signal has ended.
        found = re.search(r"exited with code \[(\d+)\] via signal \[(\w+)\]", text)
        return found and (found[1] if found[2] == "SIGINT" else found[2])

    try:
        control("start", f"{file}")
        yield Managed(
            lambda: control("sendSignal", "SIGHUP", "petstore"),
            lambda: control("stop", "petstore"),
            status,
        )
    finally:
        for popen in controls:
            popen.wait(HANG_SECONDS)
        subprocess.run([manager, "kill"], env=environ, check=True, stdout=subprocess.DEVNULL)


MANAGERS: Final[dict[str, Callable[[Path], AbstractContextManager[Managed]]]] = {
    "supervisord": supervisord,
    "supervisord, stopasgroup": partial(supervisord, more="stopasgroup = true\n"),
    "runit": runit,
    "pm2": pm2,
}


def workers(directory: Path) -> set[int]:
    """Return the process ids of the workers of the service in a directory."""
    mark = f"PETSTORE_LISTEN=unix:{directory}/http".encode()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            spawned = b"spawn_main" in (process / "cmdline").read_bytes()
            if spawned and mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MANAGERS)
def test_a_manager_starts_reloads_and_stops_it(tmp_path: Path, name: str) -> None:
    with MANAGERS[name](tmp_path) as managed:
        until(lambda: get(tmp_path, "/v1/pets") == 200 and len(workers(tmp_path)) == 2)
        killed = workers(tmp_path).pop()
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(workers(tmp_path) - {killed}) == 2)

        lines = "\n".join((key_line("client", KEY), key_line("other", OTHER_KEY)))
        replace(tmp_path / "keys", lines.encode())
        managed.reload()
        for _ in range(4):  # of both workers
            until(lambda: get(tmp_path, "/v1/pets", OTHER_KEY) == 200)

        with connect(tmp_path) as slow:
            body = b'{"name": "Rex", "categoryId": 7}'
            length = f"Content-Length: {len(body)}"
            slow.sendall(head("POST /v1/pets", HOST, AUTHORIZED, JSON, length))
            managed.stop()
            until(lambda: get(tmp_path, "/readyz") == 503)  # it drains
            slow.sendall(body)
            assert receive_all(slow).startswith(b"HTTP/1.1 201 ")
        assert until(managed.status) == "0"
        until(lambda: not workers(tmp_path))
    assert "Traceback" not in (tmp_path / "log").read_text()


def connect(directory: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(HANG_SECONDS)
        sock.connect(f"{directory}/http")
    except OSError:
        sock.close()
        raise
    return sock


def get(directory: Path, path: str, key: str = KEY) -> int:
    """Return the status code of a response."""
    with connect(directory) as sock:
        sock.sendall(head(f"GET {path}", HOST, f"Authorization: Bearer {key}", CLOSE))
        return int(receive_all(sock)[9:12])
