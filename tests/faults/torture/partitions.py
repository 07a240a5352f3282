"""Histories while the network between Redis nodes is cut, in namespaces of the kernel.

The namespaces end with their process: nothing is left behind, whatever happens.
"""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from tests.faults.torture.report import Result, left_out

ISOLATE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def run(seconds: float, seed: int) -> Iterator[Result]:
    """Run histories in a namespace, if that is permitted; else yield a result that says so."""
    try:
        subprocess.run([*ISOLATE, "iptables", "-L"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield left_out("histories: partitions", "namespaces are not permitted", seed)
        return
    command = (sys.executable, "-m", "tests.faults.torture.namespace", str(seconds), str(seed))
    with subprocess.Popen([*ISOLATE, *command], stdout=subprocess.PIPE) as isolated:
        assert isolated.stdout is not None
        try:
            for line in isolated.stdout:
                yield msgspec.json.decode(line, type=Result)
            if isolated.wait():
                status = f"the process in the namespace ended with status {isolated.returncode}"
                yield Result("histories: partitions", {}, [status], seed)
        finally:
            isolated.kill()
