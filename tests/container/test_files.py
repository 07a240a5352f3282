"""The files in docker/ pass the checks of the tools that read them."""

import re
from pathlib import Path

import pytest

from tests.container.engine import DOCKER, run, tool

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("container")]

README = (DOCKER / "README.md").read_text()

CHECKS = {
    "Dockerfile": ("hadolint",),
    "compose.yaml": ("check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
    "kubernetes.yaml": ("kubernetes-validate", "--strict", "--no-warn"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_file_passes_its_check(name: str) -> None:
    checked = run(*CHECKS[name], DOCKER / name)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_port_of_the_pod_is_in_the_network_policy() -> None:
    text = (DOCKER / "kubernetes.yaml").read_text()
    ports = re.findall(r"name: (\w+), containerPort: \d+", text)
    assert sorted(ports) == sorted(re.findall(r"- ports: \[\{port: (\w+)\}\]", text))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "petstore.service"
    text = (DOCKER / unit.name).read_text()
    unit.write_text(text.replace("/opt/petstore/bin/petstore", tool("petstore")))
    verified = run("systemd-analyze", "verify", unit)
    assert (verified.returncode, verified.stderr) == (0, "")
    # The threshold is ten times the exposure level, which ranges from 0 (safe) to 10.
    rated = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", unit)
    assert rated.returncode == 0, rated.stdout


def test_commands_run_with_the_settings_of_the_unit() -> None:
    unit = (DOCKER / "petstore.service").read_text().replace("%S", "/var/lib")
    function = README.partition("as_petstore() {")[2].partition("\n}")[0]
    properties = re.findall(r"-p (\S+)", function)
    assert [each for each in properties if each not in unit.splitlines()] == ["User=petstore"]
    variables = [f"Environment={each}" for each in re.findall(r"-E (\S+)", function)]
    listed = [line for line in unit.splitlines() if line.startswith("Environment=PETSTORE_")]
    assert variables == [line for line in listed if "API_KEYS" not in line]


def test_git_ignores_the_keys() -> None:
    assert "keys" in (DOCKER / ".gitignore").read_text().splitlines()


def test_the_readme_and_the_files_name_each_other() -> None:
    for file in DOCKER.iterdir():
        if file.name not in {"README.md", "Dockerfile.dockerignore", ".gitignore", "keys"}:
            assert f"({file.name})" in README, file.name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (DOCKER / target).exists(), target
