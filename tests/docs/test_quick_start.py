"""The quick start of the README works when it is followed literally, from the banner on.

Only the address is replaced, by one with a free port.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.documents import README, blocks
from tests.support.services import environment
from tests.support.transcripts import Outcome, Step, differences, follow, section, steps
from tests.support.waiting import HANG_SECONDS

ADDRESS: Final = "127.0.0.1:8000"
QUICK_START: Final = section("## Quick start")
SHOWN: Final[list[str]] = [*blocks(QUICK_START, "http")[:1], *(s.shown for s in steps(QUICK_START))]
"""The blocks shown after the command of the banner and after each step; "" for none."""

SECONDS: Final = HANG_SECONDS
ENVIRONMENT: Final = {
    name: text for name, text in environment().items() if name not in ("KEY", "PET", "ORDER")
}


@contextmanager
def running() -> Iterator[str]:
    """Run the command of `make run` on a free port; yield what it prints before any request."""
    command = [sys.executable, "-m", "petstore", "serve", "--dev", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "-d '" in line:  # the end of the command
                    break
            yield "".join(lines)
        finally:
            process.terminate()


def followed(banner: str, directory: Path, todo: list[Step]) -> list[Outcome]:
    """Run the command of the banner, then the steps, as a reader does."""
    address = re.search(r"http://(\S+)/v1", banner)
    assert address is not None
    commands = [step.command.replace(ADDRESS, address[1]) for step in todo]
    pasted = banner[banner.index("  export KEY=") :]
    return follow([pasted, *commands], directory, ENVIRONMENT, SECONDS)


def wrong(shown: list[str], outcomes: list[Outcome]) -> list[str]:
    """Return the lines that the README shows and a reader does not get."""
    pairs = zip(shown, outcomes, strict=True)
    return [line for text, outcome in pairs if text for line in differences(text, outcome.printed)]


@pytest.fixture(scope="module")
def followed_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Outcome]]:
    with running() as banner:
        place = tmp_path_factory.mktemp("quick-start")
        return banner, followed(banner, place, steps(QUICK_START))


@pytest.fixture
def outcomes(followed_once: tuple[str, list[Outcome]]) -> list[Outcome]:
    return followed_once[1]


def test_the_quick_start_works_when_followed_literally(outcomes: list[Outcome]) -> None:
    assert all(outcome.status == 0 for outcome in outcomes)
    assert wrong(SHOWN, outcomes) == []
    assert outcomes[0].printed.endswith("}\n"), "the prompt of the terminal begins a new line"


def test_every_request_of_the_quick_start_shows_its_response() -> None:
    for step in steps(QUICK_START):
        assert bool(step.shown) == ("curl" in step.command)


def test_the_banner_of_the_readme_is_what_is_printed(
    followed_once: tuple[str, list[Outcome]],
) -> None:
    (shown,) = [block for block in blocks(README, "text") if "press Ctrl-C" in block]
    banner = re.sub(r"(?<=http://)[0-9.:]+", ADDRESS, followed_once[0])
    log, _, printed = banner.partition("\n")
    assert " info serving on " in log
    key = re.compile(r"dev-[\w-]+")
    assert key.sub("KEY", printed).strip() == key.sub("KEY", shown).strip()
    assert len(set(key.findall(shown))) == 1
    assert not key.search(log)
