"""Several processes of a test run may ask for the same environment at once."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.environments import programs

pytestmark = pytest.mark.slow


def test_an_environment_is_created_once(tmp_path: Path) -> None:
    """Two that ask at the same time get the same complete environment, created by one of them."""
    lock = tmp_path / "requirements.lock"
    lock.touch()
    with ThreadPoolExecutor(max_workers=2) as callers:
        one, other = callers.map(lambda _: programs("tools", lock, tmp_path / "build"), range(2))
    assert one == other
    subprocess.run([one / "pip", "--version"], check=True)
