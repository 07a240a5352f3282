"""The log of requests."""

import errno
import json
import logging
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from petstore.config.settings import LogFormat, LogLevel
from petstore.observability import logs
from petstore.observability.output import Output
from tests.support.command import COMMAND, log_restored
from tests.support.metrics import scrape
from tests.support.ports import free_port
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, Live, environment, in_thread, place
from tests.support.waiting import until

GET = b"GET /nothing HTTP/1.1\r\nHost: x\r\nX-Request-Id: %b\r\n" % (b"x" * 128)
HUNDRED = (GET + b"\r\n") * 99 + GET + b"Connection: close\r\n\r\n"


def test_text_begins_with_time_level_and_event(capfd: pytest.CaptureFixture[str]) -> None:
    with log_restored(), in_thread() as live:
        logs.set_up(LogFormat.TEXT)
        assert live.client.get("/v1/pets/7").status_code == 404
        logging.getLogger("petstore").warning("an event")
    lines = capfd.readouterr().err.splitlines()
    begin = r"\d\d:\d\d:\d\d\.\d{3} "
    request = r"info request .*\bmethod=GET route=/v1/pets/{pet_id} status=404 .*"
    assert [line for line in lines if re.fullmatch(begin + request, line)]
    assert [line for line in lines if re.fullmatch(begin + "warning an event", line)]


def test_a_path_that_is_not_utf8_can_be_logged(capfd: pytest.CaptureFixture[str]) -> None:
    with log_restored():
        logs.set_up(LogFormat.JSON)
        logging.getLogger("petstore").error("cannot read %s", "/srv/\udcff")
    assert json.loads(capfd.readouterr().err)["event"] == r"cannot read /srv/\udcff"


@pytest.mark.parametrize("level", LogLevel)
def test_lines_below_the_level_are_not_logged(
    level: LogLevel, capfd: pytest.CaptureFixture[str]
) -> None:
    with log_restored(), in_thread() as live:
        logs.set_up(LogFormat.JSON, level)
        assert live.client.get("/v1/pets").status_code == 200
        for severity in LogLevel:
            getattr(logging.getLogger("petstore.sqlite"), severity)("an event")
        logging.getLogger("asyncio").warning("a library's")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    shown = [line["level"] for line in lines if line["event"] == "an event"]
    assert shown == [*LogLevel][[*LogLevel].index(level) :]
    events = [line["event"] for line in lines]
    assert ("request" in events) == (level is LogLevel.INFO)
    assert ("a library's" in events) == (level is not LogLevel.ERROR)


@contextmanager
def serving(directory: Path, stderr: int | IO[bytes], **settings: str) -> Iterator[Live]:
    """Run a service whose standard error this is; at the end of the block it stops."""
    port = free_port()
    settings = {"backend": "sqlite", **place("sqlite", directory), "drain_seconds": "0"} | settings
    env = environment(api_keys=KEY, listen=f"127.0.0.1:{port}", **settings)
    with (
        subprocess.Popen([*COMMAND, "serve"], env=env, stderr=stderr) as popen,
        ExitStack() as stack,
    ):
        stack.callback(popen.kill)
        live = Live("127.0.0.1", port, popen)
        stack.enter_context(closing(live.client))
        until(lambda: live.client.get("/livez"))
        yield live
        assert live.stop() == 0


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_stalled_reader_of_the_log_stops_no_request_and_learns_what_it_missed(
    workers: str, tmp_path: Path
) -> None:
    count = 12_000  # more than the pipe and the buffers of two workers hold
    metrics = f"127.0.0.1:{free_port()}"
    settings = {"workers": workers, "metrics_listen": metrics}
    with serving(tmp_path, subprocess.PIPE, **settings) as live:
        for _ in range(count // 100):
            assert live.raw(HUNDRED).count(b"HTTP/1.1 404 ") == 100
        log = list[bytes]()
        counted = scrape(f"http://{metrics}/metrics")["petstore_log_lines_dropped_total",]
        reader = threading.Thread(target=log.extend, args=(live.popen.stderr,))
        reader.start()
        live.client.get("/livez")
        assert live.stop() == 0
        reader.join()
    events = [json.loads(line)["event"] for line in log]
    missed = [int(text.split()[0].replace(",", "")) for text in events if " dropped: " in text]
    assert 0 < counted <= sum(missed)  # some were dropped after they were counted
    assert events.count("request") + sum(missed) == count + 2


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_terminal_that_nobody_reads_stops_no_request(workers: str, tmp_path: Path) -> None:
    """It was written to as by a shell, which waits: the service stood still, and ended late."""
    terminal, slave = pty.openpty()
    with serving(tmp_path, slave, workers=workers) as live:
        for _ in range(500):
            assert live.client.get("/livez").status_code == 200
    os.close(terminal)
    os.close(slave)


def test_after_a_part_of_a_line_comes_a_new_line_and_how_many_were_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room, write = 5, os.write

    def write_while_there_is_room(fd: int, lines: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "")
        written = write(fd, lines[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write_while_there_is_room)
    with (tmp_path / "log").open("wb") as file:
        output = Output(file.fileno())
        for lines in (b"one\ntwo\n", b"three\n"):
            output.write(lines)
        room = 99
        output.write(b"four\n")
    assert (tmp_path / "log").read_text() == "one\nt\nfour\n"
    assert "2 log lines dropped" in caplog.text


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_lines_that_a_full_disk_refuses_are_counted(workers: str, tmp_path: Path) -> None:
    """Of two workers, the process above them logs the start line: the only one at first."""
    metrics = f"127.0.0.1:{free_port()}"
    settings = {"workers": workers, "metrics_listen": metrics, "foo": "1"}  # a warning is no harm
    with Path("/dev/full").open("wb") as full, serving(tmp_path, full, **settings):
        dropped = "petstore_log_lines_dropped_total"
        until(lambda: scrape(f"http://{metrics}/metrics")[dropped,] >= 2)  # and that of the request


@pytest.mark.parametrize(
    ("mode", "zeros"), [("ab", False), pytest.param("wb", True, marks=pytest.mark.slow)]
)
def test_the_log_is_rotated_by_copying_and_truncating(
    mode: str, zeros: bool, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open(mode) as file, serving(tmp_path, file) as live:
        until(lambda: "/livez" in log.read_text())
        os.truncate(log, 0)  # as logrotate does with copytruncate
        live.client.get("/livez")
        until(lambda: log.read_bytes().endswith(b"}\n"))
        assert log.read_bytes().startswith(b"\0") == zeros
        renamed = log.rename(tmp_path / "log.1")  # as it does without
        live.popen.send_signal(signal.SIGHUP)
        live.client.get("/livez")
        until(lambda: renamed.read_text().count("/livez") == 2)
        assert not log.exists()
