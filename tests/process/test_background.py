"""What runs in the background goes on after any error, and says so; the one list of all of it."""

import ast
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from petstore.server import workers as workers_module
from tests.support.key_files import key_line, replace
from tests.support.pets import REX
from tests.support.services import KEY, process
from tests.support.waiting import until

ROOT: Final = Path(__file__).parents[2]

STARTED_BY: Final = {
    **dict.fromkeys(("create_task", "ensure_future", "Task"), 0),
    **dict.fromkeys(("call_soon", "call_soon_threadsafe", "add_done_callback"), 0),
    **dict.fromkeys(("to_thread", "start_new_thread"), 0),
    **dict.fromkeys(("call_later", "call_at", "add_reader", "add_writer", "run_in_executor"), 1),
}
"""The position of what a function starts; a `Thread` has it by name."""

CALLER: Final = "somebody awaits it and gets the error"
ONCE: Final = "it closes or frees something, once; an error is logged"

BACKGROUND: Final = {
    # The function that raises an error in the test below: the one itself, or one that it calls.
    "petstore/config/keys.py self.reload": "petstore.config.keys:Keys.reload",
    "petstore/http/app.py keys.watch": "petstore.config.keys:Keys.reload",
    "petstore/observability/logs.py self._flush": "petstore.observability.output:Output.write",
    "petstore/observability/metrics.py self._flush": (
        "petstore.observability.metrics:_Durations.store"
    ),
    "petstore/server/listener.py self._check_again": "petstore.server.listener:has_connection",
    "petstore/server/listener.py self._on_arrival": "petstore.server.listener:Listener._accept",
    "petstore/server/listener.py self._open": (
        "petstore.server.connection:HttpConnection.connection_made"
    ),
    "petstore/server/metrics_port.py server.run": "petstore.server.process:SweepingServer.sweep",
    "petstore/server/process.py self._keep_sweeping": "petstore.server.process:Server.sweep",
    "petstore/server/process.py self._reload": "petstore.config.keys:Keys.reload_soon",
    "petstore/server/workers.py self._keep_keys": "petstore.config.keys:Keys.reload",
    "petstore/store/watched.py _watch": "petstore_sqlite.repository:SqliteRepository.check",
    "backends/sqlite/petstore_sqlite/writer.py self._run": "petstore_sqlite.writer:Writer._commit",
    "backends/sqlite/petstore_sqlite/writer.py _resolve": "petstore_sqlite.writer:Writer._commit",
    # The file that tests it.
    "petstore/server/process.py self._end_in_time": "tests/process/test_restart.py",
    "petstore/server/process.py _log.error": "tests/process/test_restart.py",
    "petstore/server/workers.py _stop_with_parent": "tests/process/test_background.py",
    "backends/redis/petstore_redis/client.py self._check": "backends/redis/tests/test_client.py",
    "backends/redis/petstore_redis/client.py self._flush": "backends/redis/tests/test_client.py",
    "backends/redis/petstore_redis/client.py self._open": "backends/redis/tests/test_client.py",
    "backends/redis/petstore_redis/masters.py self._watch": "backends/redis/tests/test_failover.py",
    "backends/postgres/petstore_postgres/pool.py self._connect": (
        "backends/postgres/tests/test_network_failures.py"
    ),
    "backends/postgres/petstore_postgres/pool.py self._expire": (
        "backends/postgres/tests/test_network_failures.py"
    ),
    # Nothing depends on it later.
    **dict.fromkeys(
        (
            "petstore/server/connection.py run",
            "petstore/http/api/operations.py _page",
            "petstore/http/api/operations.py _part",
            "backends/redis/petstore_redis/batches.py self._dispatch",
            "backends/redis/petstore_redis/batches.py self._run",
            "backends/redis/petstore_redis/locator.py self._ask",
            "backends/postgres/petstore_postgres/pool.py self._dispatch",
            "backends/postgres/petstore_postgres/pool.py self._run",
            "backends/postgres/petstore_postgres/servers.py self._ask",
            "backends/postgres/petstore_postgres/servers.py self._reach",
            "backends/sqlite/petstore_sqlite/reader.py self._measure",
        ),
        CALLER,
    ),
    **dict.fromkeys(
        (
            "petstore/observability/output.py resume",
            "petstore/server/connection.py self._close_unless_active",
            "petstore/observability/tracing.py self._provider.shutdown",
            "petstore/observability/tracing.py self._shut_down",
            "backends/postgres/petstore_postgres/__init__.py first.connection.terminate",
            "backends/postgres/petstore_postgres/pool.py connection.terminate",
            "backends/postgres/petstore_postgres/pool.py self._release",
            "backends/postgres/petstore_postgres/servers.py _terminate",
            "backends/postgres/petstore_postgres/servers.py task.cancel",
            "backends/redis/petstore_redis/client.py partial(self._replicated, futures, replies)",
            "backends/redis/petstore_redis/masters.py lambda asking: asking.exception()",
            "backends/sqlite/petstore_sqlite/reader.py self._close",
            "backends/sqlite/petstore_sqlite/writer.py self._thread.join",
        ),
        ONCE,
    ),
}
"""All that runs in the background, by where it is started, and what shows that it goes on."""

INJECTED: Final = sorted({how for how in BACKGROUND.values() if ":" in how})
KEYS: Final = "petstore.config.keys:Keys.reload"
IN_THE_PARENT: Final = KEYS, "petstore.server.process:SweepingServer.sweep"
"""What runs in the parent of several workers, too, and is made to fail there."""

QUICK: Final = "petstore.server.process:Server.sweep", "petstore_sqlite.writer:Writer._commit"

FAILS_TWICE: Final = """
import functools, importlib, pathlib, sys
from petstore import cli

# They are bound when the service starts, so they are replaced before.
module, _, path = "{target}".partition(":")
*owners, name = path.split(".")
owner = functools.reduce(getattr, owners, importlib.import_module(module))
function = getattr(owner, name)
armed, left = pathlib.Path("{armed}"), [1, 2]

def failing(*args, **kwargs):
    if left and armed.exists():
        left.pop()
        if not left:
            armed.unlink()
        raise MemoryError("injected")
    return function(*args, **kwargs)

setattr(owner, name, failing)
cli.main()
"""


def started() -> Iterator[str]:
    """Return what any module starts in the background, and where."""
    for path in [*ROOT.glob("petstore/**/*.py"), *ROOT.glob("backends/*/petstore_*/**/*.py")]:
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func).rpartition(".")[2]
            if name == "Thread":
                [what] = [given.value for given in call.keywords if given.arg == "target"]
            elif name in STARTED_BY:
                what = call.args[STARTED_BY[name]]
            else:
                continue
            if name in ("create_task", "ensure_future") and isinstance(what, ast.Call):
                what = what.func
            if not ast.unparse(what).endswith(".discard"):
                yield f"{path.relative_to(ROOT)} {ast.unparse(what)}"


def test_all_that_runs_in_the_background_is_in_the_list() -> None:
    assert {*started()} == {*BACKGROUND}
    assert all((ROOT / how).exists() for how in BACKGROUND.values() if how.endswith(".py"))


@pytest.mark.parametrize(
    ("target", "workers"),
    [
        *(
            pytest.param(target, "1", marks=() if target in QUICK else pytest.mark.slow)
            for target in INJECTED
        ),
        *(pytest.param(target, "2", marks=pytest.mark.slow) for target in IN_THE_PARENT),
    ],
)
def test_it_goes_on_after_errors_and_says_so(tmp_path: Path, target: str, workers: str) -> None:
    keys, armed = tmp_path / "keys", tmp_path / "armed"
    keys.write_text(key_line("old", "old"))
    settings = {
        "api_keys_file": str(keys),
        "metrics_listen": "127.0.0.1:0",
        "drain_seconds": "0",
        "workers": workers,
    }
    script = FAILS_TWICE.format(target=target, armed=armed)
    with process(tmp_path, script=script, **settings) as live:
        armed.touch()

        def used() -> bool:
            with live.new_client(KEY) as client:
                client.post("/v1/pets", json=REX)
            os.kill(live.popen.pid, signal.SIGHUP)
            return not armed.exists()

        until(used)
        if (target, workers) != (KEYS, "2"):  # its workers say that
            until(lambda: "injected" in live.log.read_text())
        replace(keys, key_line("new", "new").encode())
        with live.new_client("old") as old, live.new_client("new") as new:
            until(
                lambda: (
                    (old.get("/v1/pets").status_code, new.get("/v1/pets").status_code) == (401, 200)
                )
            )
        with live.new_client(KEY) as client:
            assert client.post("/v1/pets", json=REX).status_code == 201
        assert live.stop() == 0, live.log.read_text()


def test_a_worker_that_cannot_watch_its_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[int]()
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    monkeypatch.setattr(os, "kill", lambda _, number: ended.append(number))
    with pytest.raises(AttributeError):
        workers_module._stop_with_parent()  # noqa: SLF001 - a thread of another process
    assert ended == [signal.SIGTERM]
