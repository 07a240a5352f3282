"""The metrics of running services."""

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.services import NO_TLS, Live
from tests.support.waiting import HANG_SECONDS


def metrics_url(live: Live) -> str:
    """Return the URL of the metrics in the start line of a service."""
    match = re.search(r"metrics on (http://[^\s\"]+/metrics)", live.log.read_text())
    assert match
    return match[1]


def exposition(service: Live | str) -> str:
    """Return the text that Prometheus would get.

    service -- a service, or the URL of its metrics if its log is not a file
    """
    url = service if isinstance(service, str) else metrics_url(service)
    return httpx.get(url, timeout=HANG_SECONDS, verify=NO_TLS).text


def scrape(service: Live | str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values; of the histogram only count and sum."""
    found = {}
    for family in text_string_to_metric_families(exposition(service)):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                labels = sample.labels
                found[(sample.name, *(labels[name] for name in sorted(labels)))] = sample.value
    return found
