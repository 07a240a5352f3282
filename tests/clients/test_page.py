"""What docs/clients.md installs is what its tests install from lock files."""

import json
import re
from typing import Final

from tests.clients.page import CLIENTS
from tests.support.documents import ROOT

HERE: Final = ROOT / "tests/clients"
NPM: Final = json.loads((HERE / "typescript/package.json").read_text())["dependencies"]
PIP: Final = dict(
    re.findall(
        r"^([\w-]+)==([\d.]+)", (HERE / "python/requirements.lock").read_text(), re.MULTILINE
    )
)


def test_what_the_page_installs_has_the_versions_of_the_lock_files() -> None:
    installs = re.findall(r"^\$ .*\b(npm|pip) install (.+)$", CLIENTS, re.MULTILINE)
    assert len(installs) == 5
    for manager, packages in installs:
        separator, locked = {"npm": ("@", NPM), "pip": ("==", PIP)}[manager]
        for package in packages.split():
            name, _, version = package.rpartition(separator)
            assert f"{locked[name]}.".startswith(f"{version}."), package
