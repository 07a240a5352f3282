"""Schemathesis finds nothing: the service does what the OpenAPI document says."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.environments import captured
from tests.support.services import BACKEND, KEY, Start, place
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

CASES = os.environ.get("PETSTORE_SCHEMATHESIS_CASES", "40")
"""Cases per operation and phase, beside those of the coverage phase."""

HOOKS = Path(__file__).parent / "schemathesis_hooks.py"


def test_schemathesis_finds_nothing(start: Start, tmp_path: Path) -> None:
    # It needs its own service: it sends back what it reads, and other tests store names so long
    # that a body with one of them is over the limit.
    service = start(backend=BACKEND, **place(BACKEND, tmp_path))
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(f'[auth.openapi.apiKey]\nbearer = "{KEY}"\n')
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration)),
        *("run", f"{service.url}/openapi.json", "--checks", "all", "--max-examples", CASES),
        *("--no-color", "--workers", "1"),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": str(HOOKS)}
    run = captured(command, 5 * HANG_SECONDS, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stdout
    generated = re.search(r"(\d+) generated", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1]) >= 300, run.stdout
    assert "7 selected / 7 total" in run.stdout
