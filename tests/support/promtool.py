"""The alert rules of docker/, and promtool, which checks and tests them."""

import re
import subprocess
from pathlib import Path
from typing import Final

from tests.support.documents import ROOT
from tests.support.environments import program

RULES: Final = (ROOT / "docker/alerts.yaml").read_text()
ALERTS: Final[list[str]] = re.findall(r"- alert: (\w+)", RULES)
FIRING: Final = 'group by (alertname) (ALERTS{alertstate="firing"})'


def promtool(folder: Path, command: str, file: str) -> subprocess.CompletedProcess[str]:
    """Run promtool in a folder."""
    arguments = [program("promtool"), *command.split(), file]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)


def passes(folder: Path, command: str, file: str) -> None:
    """Run promtool in a folder, and expect that it succeeds."""
    checked = promtool(folder, command, file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def labelled(name: str, instance: str = "shop:9100") -> str:
    """Return a series with the labels that Prometheus adds."""
    name, _, labels = name.rstrip("}").partition("{")
    return f'{name}{{job="petstore",instance="{instance}"{labels and f",{labels}"}}}'
