"""Plugins that are installed in a directory, and the kit's command run on them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from petstore_conformance.harness.cores import INCONCLUSIVE

from tests.support.documents import ROOT
from tests.support.environments import captured
from tests.support.services import environment
from tests.support.waiting import HANG_SECONDS

KIT: Final = str(Path(sys.executable).with_name("petstore-conformance"))  # the kit's command

SECONDS = 5 * HANG_SECONDS + 60 * float(os.environ.get("PETSTORE_FAULT_MINUTES", "0"))
"""How long a command may take, on a busy machine."""


def conformance(
    name: str, directory: Path, *options: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run the kit in a directory that may hold a plugin; the checkout is importable, too."""
    env = environment(**settings) | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
    return captured([KIT, "test", name, *options], SECONDS, cwd=directory, env=env)


def judged(run: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    """Return the run of a command; skip the test if the machine was too busy for any verdict."""
    if run.returncode == INCONCLUSIVE or re.search("^SLOW ", run.stdout, re.MULTILINE):
        pytest.skip(f"{run.stdout}\n{run.stderr}")
    return run


def install(name: str, directory: Path, source: str) -> None:
    """Write a plugin into a directory, as if it were installed there."""
    (directory / f"petstore_{name}.py").write_text(source)
    register(directory, f"petstore-{name}", "1", {name: f"petstore_{name}:backend"})


def register(directory: Path, name: str, version: str, backends: dict[str, str]) -> None:
    """Write the metadata of a distribution into a directory, as if it were installed there.

    backends -- its entry points
    """
    metadata = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{backend} = {value}" for backend, value in backends.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[petstore.backends]", *lines, ""]))
