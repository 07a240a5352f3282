"""`petstore serve` as it runs: the banner of --dev, and a second signal."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command import SECONDS, running
from tests.support.pets import AVAILABLE_REX
from tests.support.services import process
from tests.support.waiting import until


def test_the_curl_line_of_the_banner_works_when_pasted(tmp_path: Path) -> None:
    with running(tmp_path, "serve", "--dev", "--listen", "127.0.0.1:0"):
        pattern = re.compile(r"API key +(\S+)\n.*?\n( +curl .*\}'\n)", re.DOTALL)
        banner = until(lambda: pattern.search((tmp_path / "stdout").read_text()))
        pasted = ["bash", "-c", banner[2]]
        done = subprocess.run(pasted, capture_output=True, timeout=SECONDS, check=True)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201 ")
    assert json.loads(body) == {"id": 1, **AVAILABLE_REX}
    assert banner[1] not in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain_at_once(tmp_path: Path, signal_: int) -> None:
    with process(tmp_path, drain_seconds="60") as live:
        assert live.process is not None
        live.process.send_signal(signal_)
        until(lambda: "stopping" in (tmp_path / "serve.log").read_text())
        assert live.stop(signal_) == 0  # `stop` waits for at most 30 seconds
    log = (tmp_path / "serve.log").read_text()
    assert "Traceback" not in log
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"
