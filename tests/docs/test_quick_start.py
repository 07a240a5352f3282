"""The quick start of the README works when it is followed literally, from the banner on.

Only the address is replaced, by one with a free port.
"""

import re
import subprocess
import sys
from typing import Final

import pytest

from tests.support.documents import README, blocks
from tests.support.services import environment
from tests.support.transcripts import Outcome, differences, follow, section, steps
from tests.support.waiting import HANG_SECONDS

ADDRESS: Final = "127.0.0.1:8000"
QUICK_START: Final = section("## Quick start")
SHOWN: Final[list[str]] = [*blocks(QUICK_START, "http")[:1], *(s.shown for s in steps(QUICK_START))]
"""The blocks shown after the command of the banner and after each step; "" for none."""

ENVIRONMENT: Final = {
    name: text for name, text in environment().items() if name not in ("KEY", "PET", "ORDER")
}


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Outcome]]:
    """Run the command of `make run` on a free port, that of its banner, and the steps.

    Return the banner, with all that is printed before any request, and the outcomes.
    """
    command = [sys.executable, "-m", "petstore", "serve", "--dev", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            banner = ""
            for line in process.stdout:
                banner += line
                if "-d '" in line:  # the end of the command
                    break
            address = re.search(r"http://(\S+)/v1", banner)
            assert address is not None
            pasted = banner[banner.index("  export KEY=") :]
            commands = [step.command.replace(ADDRESS, address[1]) for step in steps(QUICK_START)]
            place = tmp_path_factory.mktemp("quick-start")
            return banner, follow([pasted, *commands], place, ENVIRONMENT, HANG_SECONDS)
        finally:
            process.terminate()


def test_the_quick_start_works_when_followed_literally(followed: tuple[str, list[Outcome]]) -> None:
    for shown, outcome in zip(SHOWN, followed[1], strict=True):
        assert outcome.status == 0
        assert not shown or differences(shown, outcome.printed) == []
    assert followed[1][0].printed.endswith("}\n"), "the prompt of the terminal begins a new line"


def test_every_request_of_the_quick_start_shows_its_response() -> None:
    for step in steps(QUICK_START):
        assert bool(step.shown) == ("curl" in step.command)


def test_the_banner_of_the_readme_is_what_is_printed(followed: tuple[str, list[Outcome]]) -> None:
    (shown,) = [block for block in blocks(README, "text") if "press Ctrl-C" in block]
    banner = re.sub(r"(?<=http://)[0-9.:]+", ADDRESS, followed[0])
    log, _, printed = banner.partition("\n")
    assert " info serving on " in log
    key = re.compile(r"dev-[\w-]+")
    assert key.sub("KEY", printed).strip() == key.sub("KEY", shown).strip()
    assert len(set(key.findall(shown))) == 1
    assert not key.search(log)
