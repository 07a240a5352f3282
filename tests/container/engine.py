"""Containers without a Docker engine: podman and buildah, with a storage of their own.

One stand-in, made of Debian packages, takes the place of every base image: it has a python3, and
a Redis under the names of Valkey. Without systemd nobody runs health checks, so `Engine` does.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.live import KEY, Live
from tests.locked import programs

ROOT: Final = Path(__file__).parents[2]
DOCKER: Final = ROOT / "docker"

SECONDS: Final = 60
"""How long one step may take; a build may take five times that."""

TRUST: Final = "/etc/ssl/certs/ca-certificates.crt"
"""The authorities that this machine trusts; the build does, too."""

PACKAGES: Final = "python3-minimal,python3-venv,ca-certificates,redis-server"

CONFIGURATION: Final = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "{directory}/networks"
"""

STORAGE: Final = """
[storage]
driver = ""
graphroot = "{directory}/images"
runroot = "{directory}/run"
"""

CONFINED: Final = (
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
)


def program(name: str) -> str:
    """Return the path of a program that is installed, or skip the test."""
    tools = programs("container", Path(__file__).parent / "requirements.lock")
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    if found := shutil.which(name, path=path):
        return found
    return missing(f"not installed: {name}")


def missing(reason: str) -> str:
    """Skip the test, or fail it where services are required."""
    if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program and return how it ended."""
    return subprocess.run(
        [program(str(command[0])), *command[1:]],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=5 * SECONDS,
        check=False,
    )


class Engine:
    """Runs containers whose images, networks and volumes are in a directory.

    Podman does not take one whose name is long.
    """

    def __init__(self, directory: Path) -> None:
        for name in ("mmdebstrap", "buildah", "podman", "runc", "conmon", "iptables"):
            program(name)
        if os.geteuid() != 0:
            missing("only root may run containers here")
        self.directory = directory
        self._environ = {"TMPDIR": str(directory)}
        for name, text in (
            ("CONTAINERS_CONF", CONFIGURATION),
            ("CONTAINERS_STORAGE_CONF", STORAGE),
        ):
            file = directory / name.lower()
            file.write_text(text.format(directory=directory))
            self._environ[name] = str(file)

    def call(self, *command: str | Path, status: int | None = 0) -> str:
        """Run a program on this storage; return what it printed. None stands for any status."""
        ended = run(*command, **self._environ)
        assert status in {None, ended.returncode}, f"{command}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()

    def podman(self, *arguments: str | Path, status: int | None = 0) -> str:
        """Run podman; return what it printed."""
        return self.call("podman", *arguments, status=status)

    def make_base(self, *names: str) -> None:
        """Make the stand-in and give it the names of images."""
        archive = self.directory / "base.tar"
        hooks = (
            f"copy-in {TRUST} {Path(TRUST).parent}",
            'for name in server cli; do ln -s redis-$name "$1/usr/bin/valkey-$name"; done',
            'chroot "$1" useradd valkey && chroot "$1" install -d -o valkey /data',
        )
        self.call(
            *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"),
            *(f"--customize-hook={hook}" for hook in hooks),
            *("bookworm", archive),
        )
        image = self.podman("import", "--quiet", "--change", f"ENV PIP_CERT={TRUST}", archive)
        archive.unlink()
        for name in names:
            self.podman("tag", image, name)

    def build(self, image: str, **arguments: str) -> None:
        """Build the image of the service from the Dockerfile as it is."""
        self.call(
            *("buildah", "bud", "--pull-never", "--isolation", "chroot", "--network", "host"),
            *("--format", "docker", "--file", DOCKER / "Dockerfile", "--tag", image),
            *("--ignorefile", DOCKER / "Dockerfile.dockerignore"),
            *(f"--build-arg={name}={text}" for name, text in arguments.items()),
            ROOT,
        )

    @contextmanager
    def serve(self, *options: str, **settings: str) -> Iterator[tuple[str, Live]]:
        """Run the service confined, until the block is left; yield its container and a client."""
        settings = {"backend": "memory", "api_keys": KEY, "log": "json"} | settings
        given = [f"--env=PETSTORE_{name.upper()}={text}" for name, text in settings.items()]
        publish = "--publish=127.0.0.1::8000"
        name = self.podman("run", "--detach", publish, *CONFINED, *options, *given, "petstore")
        try:
            self.until_healthy(name)
            live = self.client(name)
            yield name, live
            live.client.close()
        finally:
            self.podman("rm", "--force", "--time=0", name)

    def client(self, name: str) -> Live:
        """Return a client of a service."""
        host, _, port = self.podman("port", name, "8000").rpartition(":")
        return Live(host, int(port))

    def until_healthy(self, name: str) -> None:
        """Run the health check of an image until it passes."""
        end = time.monotonic() + SECONDS
        while run("podman", "healthcheck", "run", name, **self._environ).returncode:
            assert time.monotonic() < end, self.logs(name)
            time.sleep(0.1)

    def logs(self, name: str) -> str:
        """Return what a container has written to both of its streams."""
        ended = run("podman", "logs", name, **self._environ)
        return ended.stdout + ended.stderr

    def remove(self) -> None:
        """Remove everything."""
        self.podman("rm", "--all", "--force", "--time=0", "--depend", status=None)
        self.podman("network", "prune", "--force", status=None)
        self.podman("rmi", "--all", "--force", status=None)
        shutil.rmtree(self.directory)


def default_of(argument: str) -> str:
    """Return the default of an argument of the Dockerfile."""
    match = re.search(rf"^ARG {argument}=(.+)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert match
    return match[1]
