"""A section of the README as a transcript: commands and their output, in one shell session."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.documents import README

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PLACED_AT: Final = re.compile(r'(?<="placedAt":")[^"]+')


class Step(NamedTuple):
    """An `sh` block, and the `http` or `json` block after it, if there is one."""

    command: str
    shown: str


class Outcome(NamedTuple):
    """The exit status of a command, and its standard output."""

    status: int
    printed: str


def section(heading: str) -> str:
    """Return the section of the README below a heading."""
    _, _, rest = README.partition(f"\n{heading}\n")
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


def steps(text: str) -> list[Step]:
    """Return the steps of a section, in order."""
    found: list[Step] = []
    for language, block in _BLOCK.findall(text):
        if language == "sh":
            found.append(Step(block, ""))
        elif language in ("http", "json") and found and not found[-1].shown:
            found[-1] = Step(found[-1].command, block)
    return found


def follow(
    commands: Sequence[str], directory: Path, environ: Mapping[str, str], seconds: float
) -> list[Outcome]:
    """Run commands one after the other in one bash, which keeps their variables."""
    lines = []
    for number, command in enumerate(commands):
        lines += ["{", command, f"}} > '{directory}/{number}.out'"]
        lines.append(f"echo $? > '{directory}/{number}.status'")
    bash = subprocess.Popen(
        ["bash", "-c", "\n".join(lines)],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert bash.wait(seconds) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(bash.pid, signal.SIGKILL)  # and its background processes
        bash.wait()
    return [
        Outcome(
            int((directory / f"{number}.status").read_text()),
            (directory / f"{number}.out").read_bytes().decode(),
        )
        for number in range(len(commands))
    ]


def differences(shown: str, printed: str) -> list[str]:
    """Return the lines of a block that were not printed; times may differ.

    A block that shows a response has its status line, some of its headers, the line "..." for the
    others, and its whole body.
    """
    shown, printed = (_PLACED_AT.sub("...", text).strip() for text in (shown, printed))
    if not shown.startswith("HTTP/"):
        return [] if shown == printed else [shown]
    head, _, body = printed.partition("\r\n\r\n")
    status, _, rest = head.partition("\r\n")
    headers = rest.splitlines()
    shown_head, _, shown_body = shown.partition("\n\n")
    shown_status, *shown_headers = shown_head.splitlines()
    wrong = [line for line in shown_headers if line not in (*headers, "...")]
    if shown_headers[-1:] != ["..."]:
        wrong.append("a line of dots for the headers that are left out")
    if shown_status != status.strip():
        wrong.append(shown_status)
    if shown_body != body:
        wrong.append(shown_body)
    return wrong
