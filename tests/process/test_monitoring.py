"""The alert rules and the dashboard: whether they fit the metrics of a real service."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.documents import ROOT, blocks
from tests.support.metrics import exposition
from tests.support.pets import REX
from tests.support.promtool import RULES, labelled, passes
from tests.support.services import Live, Start
from tests.support.waiting import until

pytestmark = pytest.mark.slow

README: Final = (ROOT / "docker/README.md").read_text()
OPERATING: Final = (ROOT / "docs/operating.md").read_text()
QUERIES: Final = [
    target["expr"].replace("$instance", ".+").replace("$__rate_interval", "5m")
    for panel in json.loads((ROOT / "docker/dashboard.json").read_text())["panels"]
    for target in panel["targets"]
]


def scrape(live: Live) -> dict[str, float]:
    """Return values by series, as Prometheus would store them."""
    samples = re.findall(r"^(\w+(?:{.*})?) (\S+)$", exposition(live), re.MULTILINE)
    return {labelled(name): float(value) for name, value in samples}


def test_each_query_finds_something_in_the_metrics_of_a_service_and_each_metric_is_used(
    start: Start, tmp_path: Path
) -> None:
    live = start(metrics_listen="127.0.0.1:0", rate_limit="1/h", workers="2")
    before = scrape(live)
    live.client.post("/v1/pets", json=REX)
    for _ in range(5):
        live.client.get("/v1/pets/1")
    names = set(re.findall(r"\b(?:petstore|process)_\w+", " ".join(QUERIES) + RULES))
    until(lambda: names <= {name.partition("{")[0] for name in scrape(live)})
    after = scrape(live)
    shown = " ".join(QUERIES) + RULES + re.sub(r"(?m)^\|.*", "", OPERATING)
    families = {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) for name in after}
    unused = {name for name in families if name not in shown and not name.endswith("_created")}
    assert not unused, (
        "a rule, a panel or a sentence of docs/operating.md should say what it is for"
    )
    an_hour = [
        {
            "series": name,
            # As before for thirty minutes, then a change each minute like that of the requests.
            "values": f"{before.get(name, 0):f}x29"
            f" {after[name]:f}+{max(0, after[name] - before.get(name, 0)):f}x29",
        }
        for name in after
    ]
    expected = [
        {"expr": f"clamp_max(count({query}), 1)", "eval_time": "45m"}
        | {"exp_samples": [{"labels": "{}", "value": 1}]}
        for query in QUERIES
    ]
    test = {"interval": "1m", "input_series": an_hour, "promql_expr_test": expected}
    (tmp_path / "alerts.yaml").write_text(RULES)
    whole = {"rule_files": ["alerts.yaml"], "tests": [test]}
    (tmp_path / "test.yaml").write_text(json.dumps(whole))
    passes(tmp_path, "test rules", "test.yaml")


def test_prometheus_accepts_the_configuration(tmp_path: Path) -> None:
    (text,) = (text for text in blocks(README, "yaml") if "scrape_" in text)
    (tmp_path / "alerts.yaml").write_text(RULES)
    (tmp_path / "prometheus.yaml").write_text(text)
    passes(tmp_path, "check config", "prometheus.yaml")
