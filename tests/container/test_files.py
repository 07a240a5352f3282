"""What lies in docker/, given to the tools that read it: they find nothing wrong."""

import re
from pathlib import Path

import pytest

from tests.container.engine import DOCKER, program, run

README = (DOCKER / "README.md").read_text()

CHECKS = {
    "Dockerfile": ("hadolint",),
    "compose.yaml": ("check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
    "kubernetes.yaml": ("kubernetes-validate", "--strict", "--no-warn"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_nothing_is_found(name: str) -> None:
    checked = run(*CHECKS[name], DOCKER / name)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Dockerfile", "USER 10001:10001", "USER root\nMAINTAINER nobody"),
        ("compose.yaml", "read_only:", "readonly:"),
        ("kubernetes.yaml", "runAsNonRoot:", "runAsNonroot:"),
    ],
)
def test_a_mistake_would_be_found(tmp_path: Path, name: str, old: str, new: str) -> None:
    text = (DOCKER / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new))
    assert run(*CHECKS[name], tmp_path / name).returncode != 0


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "petstore.service"
    text = (DOCKER / unit.name).read_text()
    unit.write_text(text.replace("/opt/petstore/bin/petstore", program("petstore")))
    verified = run("systemd-analyze", "verify", unit)
    assert (verified.returncode, verified.stderr) == (0, "")
    # In tenths, from 0, which is nothing to expose, to 100.
    rated = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", unit)
    assert rated.returncode == 0, rated.stdout


def test_the_folder_of_the_keys_is_ignored() -> None:
    assert "keys" in (DOCKER / ".gitignore").read_text().splitlines()


def test_the_readme_and_the_files_name_each_other() -> None:
    for file in DOCKER.iterdir():
        if file.name not in {"README.md", "Dockerfile.dockerignore", ".gitignore", "keys"}:
            assert f"({file.name})" in README, file.name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (DOCKER / target).exists(), target
