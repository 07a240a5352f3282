"""Several processes of a test run may ask for the same environment at once."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.environments import programs

pytestmark = pytest.mark.slow


@pytest.mark.xdist_group("clients")
def test_the_tests_of_a_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """Nothing else keeps two processes from installing the same packages at the same time."""
    if request.config.getoption("dist") == "loadgroup":
        assert request.node.nodeid.endswith("@clients")


def test_an_environment_is_created_once(tmp_path: Path) -> None:
    """Two that ask at the same time get the same complete environment, created by one of them."""
    lock = tmp_path / "requirements.lock"
    lock.touch()
    with ThreadPoolExecutor(max_workers=2) as callers:
        one, other = callers.map(lambda _: programs("tools", lock, tmp_path / "build"), range(2))
    assert one == other
    subprocess.run([one / "pip", "--version"], check=True)
