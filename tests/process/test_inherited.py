"""What a process inherits: whatever it is, the service serves and stops, or says why it cannot."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import pytest

from tests.support.command import COMMAND
from tests.support.environments import missing
from tests.support.key_files import key_line
from tests.support.pets import REX
from tests.support.services import KEY, Live, environment, unix_client
from tests.support.waiting import HANG_SECONDS, until

MOUNTED: Final = 'exec unshare --mount sh -c \'{} && exec "$@"\' sh "$@"'
DELETED: Final = "mkdir gone && cd gone && rmdir ../gone"
NO_UTF8: Final = "export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"

SERVED: Final = {
    "no signal and no stream": 'exec env --ignore-signal=CHLD --block-signal "$@" <&- >&- 2>&-',
    "SIGCHLD ignored": 'exec env --ignore-signal=CHLD "$@"',
    "signals ignored": 'exec env --ignore-signal "$@"',
    "signals blocked": 'exec env --block-signal "$@"',
    "0 closed": "exec <&-",
    "1 closed": "exec >&-",
    "2 closed": "exec 2>&-",
    "umask 0": "umask 0",
    "umask 0777": "umask 0777",
    "few files": "ulimit -n 68",
    "few processes": "chown 54321 . && exec setpriv --reuid=54321 --clear-groups"
    ' --inh-caps=+dac_override --ambient-caps=+dac_override prlimit --nproc=16 "$@"',
    "little memory": "ulimit -v 416000",
    "small files": "ulimit -f 16384",
    "small stack": "ulimit -s 256",
    "directory deleted": DELETED,
    "locale C": "export LC_ALL=C PETSTORE_SQLITE_PATH=$PWD/tür",
    "locale POSIX": "export LC_ALL=POSIX PETSTORE_SQLITE_PATH=$PWD/tür",
    "no UTF-8": NO_UTF8,
    "key file not UTF-8": "k=$PWD/$(printf 'k\\377') && cp keys $k && export"
    " PETSTORE_API_KEYS_FILE=$k",
    "PYTHONOPTIMIZE": "export PYTHONOPTIMIZE=2",
    "PYTHONDONTWRITEBYTECODE": "export PYTHONDONTWRITEBYTECODE=1",
    "PYTHONWARNINGS": "export PYTHONWARNINGS=error",
    "shared memory read-only": "export PETSTORE_METRICS_LISTEN=127.0.0.1:0 && "
    + MOUNTED.format("mount -t tmpfs -o ro none /dev/shm"),
    "shared memory missing": MOUNTED.format(
        "mount -t tmpfs none /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9"
    ),
    "nothing but the store writable": MOUNTED.format(
        "mount -t tmpfs -o ro none /dev/shm && mount --bind $PWD $PWD && mount -o remount,bind,ro /"
        " && cd /"
    ),
    "proc missing": MOUNTED.format("mount -t tmpfs none /proc"),
    "no HOME": "unset HOME",
    "HOME missing": "export HOME=/nowhere",
    "no PATH": "unset PATH",
    "TMPDIR missing": "export TMPDIR=/nowhere",
    "environment empty": 'exec env -i $(env | grep ^PETSTORE_) "$@"',
}
"""What a shell does before it becomes a service."""

QUICK: Final = ("no signal and no stream", "2")
NEED_ROOT: Final = ("umask 0777", "unshare", "setpriv")

REFUSED: Final = {
    "directory deleted, relative path": (
        f"{DELETED} && export PETSTORE_SQLITE_PATH=pets",
        "PETSTORE_SQLITE_PATH is 'pets', and the working directory was deleted",
    ),
    "directory deleted, relative key file": (
        f"{DELETED} && export PETSTORE_API_KEYS_FILE=keys",
        "cannot read the key file keys of PETSTORE_API_KEYS_FILE: No such file or directory",
    ),
    "locale C": (f"{NO_UTF8} PETSTORE_SQLITE_PATH=$PWD/tür", r"t\udcc3\udcbcr': the path must be"),
    "path not UTF-8": (
        "export PETSTORE_SQLITE_PATH=$PWD/$(printf 't\\377r')",
        r"t\udcffr': the path must be UTF-8, and so must be the locale, such as LC_ALL=C.UTF-8",
    ),
    "directory not UTF-8": (
        "d=$(printf 'd\\377') && mkdir $d && cd $d && export PETSTORE_SQLITE_PATH=pets",
        r"d\udcff/pets': the path must be UTF-8",
    ),
    "few processes": (
        SERVED["few processes"].replace("=16", "=1"),
        "can't start new thread: raise the limit on processes (ulimit -u)",
    ),
    "nothing writable": (
        "export PETSTORE_METRICS_LISTEN=127.0.0.1:0 && " + SERVED["nothing but the store writable"],
        "cannot create the files of PETSTORE_METRICS_LISTEN: No usable temporary directory found",
    ),
}
"""The same, and what the service says then."""


@contextmanager
def started(
    directory: Path, before: str, workers: str, stderr: IO[bytes] | int
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a service that listens on a Unix socket in a directory; no process is left of it.

    before -- what the shell does before it becomes the service
    """
    if os.geteuid() != 0 and any(what in before for what in NEED_ROOT):
        missing("this needs root")
    (directory / "keys").write_text(key_line("client", KEY))
    env = environment(
        backend="sqlite",
        sqlite_path=f"{directory}/pets",
        api_keys_file=f"{directory}/keys",
        listen=f"unix:{directory}/http",
        workers=workers,
        rate_limit="1000/s",
        drain_seconds="0",
    )
    shell = ["sh", "-c", f'{before}\nexec "$@"', "sh", *COMMAND, "serve"]
    with subprocess.Popen(shell, env=env, cwd=directory, stderr=stderr, process_group=0) as popen:
        try:
            yield popen
        finally:
            with suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("before", "workers"),
    [
        pytest.param(
            *(before, workers),
            id=f"{name}-{workers}",
            marks=() if (name, workers) == QUICK else pytest.mark.slow,
        )
        for name, before in SERVED.items()
        for workers in ("1", "2")
    ],
)
def test_whatever_it_inherits_a_service_serves_and_stops(
    tmp_path: Path, before: str, workers: str
) -> None:
    log = tmp_path / "log"
    with (
        log.open("wb") as stderr,
        started(tmp_path, before, workers, stderr) as popen,
        unix_client(f"{tmp_path}/http") as client,
    ):
        until(lambda: popen.poll() or listens(f"{tmp_path}/http"), log=log.read_text)
        assert popen.poll() is None, log.read_text()
        until(lambda: client.get("/readyz").is_success, log=log.read_text)
        paths = client.get("/openapi.json").json()["paths"]
        assert paths["/pets"]["get"]["operationId"] == "listPets"
        pet = client.post("/v1/pets", json=REX).json()
        live = Live("", 0, popen)
        if workers == "2":
            until(lambda: len(live.workers()) == 2)
            killed = live.workers()[0]
            os.kill(killed, signal.SIGKILL)
            until(lambda: len({*live.workers()} - {killed}) == 2, log=log.read_text)
            assert {output_of(worker) for worker in live.workers()} == {output_of(popen.pid)}
        assert client.get("/v1/pets").json() == [pet]
        assert live.stop() == 0, log.read_text()
        assert not (tmp_path / "http").exists()
        until(lambda: not exists(popen.pid))
    lines = log.read_text().splitlines()
    assert not [line for line in lines if "info" not in line and "; replacing it" not in line]


def listens(path: str) -> bool:
    """Return True if something listens on a Unix socket. Raises `OSError` otherwise."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
    return True


def output_of(process: int) -> tuple[Path, Path]:
    """Return which files are a process's standard output and error."""
    first, second = (Path(f"/proc/{process}/fd/{fd}").readlink() for fd in (1, 2))
    return first, second


def exists(group: int) -> bool:
    """Return whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_prevents_serving_is_one_line(tmp_path: Path, name: str, workers: str) -> None:
    before, message = REFUSED[name]
    with started(tmp_path, before, workers, subprocess.PIPE) as popen:
        assert popen.stderr is not None
        [line] = popen.stderr.read().decode().splitlines()
        assert popen.wait(HANG_SECONDS) == 2
    assert line.startswith("petstore: ")
    assert message in line


def test_without_standard_error_messages_do_not_go_to_standard_output() -> None:
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, "keys", "new"]
    printed = subprocess.run(shell, stdout=subprocess.PIPE, check=True, timeout=HANG_SECONDS)
    assert len(printed.stdout.splitlines()) == 2
