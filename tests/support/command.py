"""The petstore command, run as a process or within this one."""

import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from petstore import cli, exit_status
from petstore.config.settings import LogFormat
from petstore.observability.logs import request_log
from tests.support.services import environment
from tests.support.waiting import HANG_SECONDS

SECRET: Final = "hunter2-hunter2-hunter2"  # a value that no message may contain

COMMAND: Final = (sys.executable, "-m", "petstore")


class Outcome(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    stdout: str
    stderr: str


def run_streams(
    *arguments: str, settings: Mapping[str, str], through: Sequence[str] = (), **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command on these streams; what it writes to the others is returned.

    settings -- these and no others
    through -- a command that runs it, if it is not run itself
    streams -- `input`, or `stdin`, or `stdout`, as of `subprocess.run`
    """
    command, env = [*through, *COMMAND, *arguments], environment(**settings)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, env=env, timeout=HANG_SECONDS, check=False, **streams)


def run_command(*arguments: str, **settings: str) -> Outcome:
    """Run the command with these settings and no others."""
    done = run_streams(*arguments, settings=settings)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_process(*arguments: str, **settings: str) -> Outcome:
    """Do the same as `run_command` within this process, which saves half a second of start-up."""
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    stderr = io.StringIO()
    with (
        log_restored(),
        handler_restored(),
        mock.patch.dict(os.environ, environment(**settings) | {"COLUMNS": "80"}, clear=True),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        pytest.raises(SystemExit) as exit_,
    ):
        cli.main(arguments)
    assert isinstance(exit_.value.code, int)
    assert isinstance(stdout.buffer, io.BytesIO)
    return Outcome(exit_.value.code, stdout.buffer.getvalue().decode(), stderr.getvalue())


@contextmanager
def log_restored() -> Iterator[None]:
    """Undo what `petstore.observability.logs.set_up` does within the block."""
    loggers = [logging.getLogger(name) for name in ("", "petstore", "uvicorn")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
        request_log.set_up(LogFormat.OFF)


@contextmanager
def handler_restored() -> Iterator[None]:
    """Undo what ``petstore serve`` does to the handling of signals within the block."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def error_message(outcome: Outcome, status: int = exit_status.CONFIGURATION) -> str:
    """Check that a command reported an error as it should; return its message.

    status -- the expected exit status
    """
    assert outcome.status == status, outcome
    settings = outcome.stdout.splitlines()  # `check` prints them before it opens the storage
    assert all(line.startswith("PETSTORE_") for line in settings)
    assert 1 <= len(outcome.stderr.splitlines()) <= 2, outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert SECRET not in outcome.stderr
    return outcome.stderr


@contextmanager
def running(directory: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command until the block is left; its output is in directory/stdout and /stderr.

    It leads a process group, as a shell's job does.
    """
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        env = environment(**settings)
        popen = subprocess.Popen(
            [*COMMAND, *arguments], env=env, stdout=out, stderr=err, process_group=0
        )
    try:
        yield popen
    finally:
        popen.kill()
        popen.wait()
