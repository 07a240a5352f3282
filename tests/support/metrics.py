"""The metrics of running services."""

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.services import NO_TLS
from tests.support.waiting import HANG_SECONDS


def metrics_url(log: str) -> str:
    """Return the URL of the metrics in the start line."""
    match = re.search(r"metrics on (http://[^\s\"]+/metrics)", log)
    assert match
    return match[1]


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values; of the histogram only count and sum."""
    found = {}
    text = httpx.get(url, timeout=HANG_SECONDS, verify=NO_TLS).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                labels = sample.labels
                found[(sample.name, *(labels[name] for name in sorted(labels)))] = sample.value
    return found
