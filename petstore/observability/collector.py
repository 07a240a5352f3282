"""Metrics of the processes themselves, read when Prometheus scrapes: no request pays for them."""

import os
from collections.abc import Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class ServiceCollector(Collector):
    """The build, and the processes of a service, with the label ``process``: main, worker-0...

    Each process has its own series: a limit on descriptors and a core belong to one process, and a
    sum would go back when a worker is replaced.

    workers -- the ids of the worker processes by name, as they change
    build -- the labels of ``petstore_build_info``
    """

    def __init__(self, workers: Mapping[str, int], build: Mapping[str, str]) -> None:
        self._workers = workers
        self._build = build
        self._pid = os.getpid()
        # One for all: it reads the time of the system's start once. A start time that drifts looks
        # like a restart.
        self._collector = ProcessCollector(pid=lambda: self._pid, registry=None)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics. A process that has just ended has none."""
        info = GaugeMetricFamily(
            "petstore_build_info",
            "Versions of the service and of Python, and the backend.",
            labels=tuple(self._build),
        )
        info.add_metric(tuple(self._build.values()), 1)
        yield info
        families: dict[str, Metric] = {}
        for process, pid in {"main": os.getpid(), **self._workers}.items():
            self._pid = pid
            for found in self._collector.collect():
                new = Metric(found.name, found.documentation, found.type)
                family = families.setdefault(found.name, new)
                for sample in found.samples:
                    family.add_sample(sample.name, {"process": process}, sample.value)
        yield from families.values()
