"""Metrics of the processes themselves, read when Prometheus scrapes: no request pays for them."""

import os
import resource
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_FAMILIES: Final = (  # of what `_measure` returns
    (CounterMetricFamily, "process_cpu_seconds", "CPU time in seconds."),
    (GaugeMetricFamily, "process_resident_memory_bytes", "Resident memory in bytes."),
    (GaugeMetricFamily, "process_open_fds", "Open file descriptors."),
    (GaugeMetricFamily, "process_max_fds", "The limit on open file descriptors."),
    (GaugeMetricFamily, "process_start_time_seconds", "The time of the start, in Unix seconds."),
)


class ProcessCollector(Collector):
    """The build, and the processes of a service, with the label ``process``: main, worker-0...

    Each process has its own series: a limit on descriptors and a core belong to one process, and a
    sum would go back when a worker is replaced. That of the client library needs ``/proc/stat``,
    which systemd's ``ProcSubset=pid`` hides.

    workers -- the ids of the worker processes by name, as they change
    build -- the labels of ``petstore_build_info``
    """

    def __init__(self, workers: Mapping[str, int], build: Mapping[str, str]) -> None:
        self._workers = workers
        self._build = build

    def collect(self) -> Iterator[Metric]:
        """Return the metrics. A process that has just ended has none."""
        info = GaugeMetricFamily(
            "petstore_build_info",
            "Versions of the service and of Python, and the backend.",
            labels=tuple(self._build),
        )
        info.add_metric(tuple(self._build.values()), 1)
        yield info
        families = [family(name, text, labels=("process",)) for family, name, text in _FAMILIES]
        for name, pid in {"main": os.getpid(), **self._workers}.items():
            try:
                values = _measure(pid)
            except OSError:  # it has ended, or this is not Linux
                continue
            for family, value in zip(families, values, strict=True):
                family.add_metric((name,), value)
        yield from families


def _measure(pid: int) -> tuple[float, float, float, float, float]:
    """Return CPU seconds, resident bytes, open and allowed descriptors, and the start time."""
    directory = Path("/proc", str(pid))
    # The fields of proc(5) after the command, which may contain spaces: the first is number 3.
    fields = (directory / "stat").read_text().rpartition(")")[2].split()
    user, system, started, pages = (int(fields[number - 3]) for number in (14, 15, 22, 24))
    ticks = os.sysconf("SC_CLK_TCK")
    return (
        (user + system) / ticks,
        pages * resource.getpagesize(),
        sum(1 for _ in (directory / "fd").iterdir()),
        resource.prlimit(pid, resource.RLIMIT_NOFILE)[0],
        _boot_time() + started / ticks,
    )


@cache
def _boot_time() -> float:
    """Return when the system started. Read once: a start time that drifts looks like a restart."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
