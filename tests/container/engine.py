"""Containers without a Docker engine: podman and buildah, with their own storage.

A stand-in made of Debian packages replaces every base image: it contains Python, Redis under the
names of Valkey, and PostgreSQL. Without systemd nothing runs health checks, so `Engine` runs them.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.documents import ROOT
from tests.support.environments import captured, missing, program, programs
from tests.support.services import KEY, Live
from tests.support.waiting import HANG_SECONDS, until

DOCKER: Final = ROOT / "docker"

TRUST: Final = "/etc/ssl/certs/ca-certificates.crt"
"""The certificate authorities that this machine trusts; the build trusts them too."""

PACKAGES: Final = "python3-minimal,python3-venv,ca-certificates,redis-server,postgresql"

POSTGRES: Final = """#!/bin/sh -e
# What the image of PostgreSQL does with the settings of compose.yaml.
export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH PGDATA=/var/lib/postgresql/18/docker
if ! test -s $PGDATA/PG_VERSION; then
  mkdir -p $PGDATA
  initdb --username=$POSTGRES_USER --auth=$POSTGRES_HOST_AUTH_METHOD
  echo host all all all $POSTGRES_HOST_AUTH_METHOD >>$PGDATA/pg_hba.conf
  pg_ctl start --wait --options="-c listen_addresses="
  createdb --username=$POSTGRES_USER $POSTGRES_USER
  pg_ctl stop --wait
fi
exec postgres -c listen_addresses=*
"""

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


def tool(name: str) -> str:
    """Return the path of an installed program, or skip the test."""
    tools = programs("container", Path(__file__).parent / "requirements.lock")
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    return program(name, path=path)


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program; return its status and output."""
    whole = [tool(str(command[0])), *command[1:]]
    return captured(whole, 5 * HANG_SECONDS, env=os.environ | environ)


class Engine:
    """Runs containers whose images, networks and volumes are in a directory.

    Podman refuses a directory with a long path.
    """

    def __init__(self, directory: Path) -> None:
        for name in ("mmdebstrap", "buildah", "podman", "runc", "conmon", "iptables"):
            tool(name)
        if os.geteuid() != 0:
            missing("running containers needs root")
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
        """Run a program on this storage; return its standard output.

        status -- the expected exit status; None for any
        """
        ended = run(*command, **self._environ)
        assert status in {None, ended.returncode}, f"{command}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()

    def podman(self, *arguments: str | Path, status: int | None = 0) -> str:
        """Run podman; return its standard output."""
        return self.call("podman", *arguments, status=status)

    def make_base(self, *names: str, postgres: str) -> None:
        """Create the stand-in and tag it with the names of images.

        postgres -- the name of the image that starts PostgreSQL
        """
        archive = self.directory / "base.tar"
        entrypoint = self.directory / "postgres"
        entrypoint.write_text(POSTGRES)
        entrypoint.chmod(0o755)
        no_cluster = "create_main_cluster = false"
        hooks = (
            f"copy-in {entrypoint} /usr/local/bin",
            f"copy-in {TRUST} {Path(TRUST).parent}",
            'for name in server cli; do ln -s redis-$name "$1/usr/bin/valkey-$name"; done',
            'chroot "$1" useradd valkey && chroot "$1" install -d -o valkey /data',
        )
        self.call(
            *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"),
            '--essential-hook=mkdir "$1/etc/postgresql-common"',
            f'--essential-hook=echo "{no_cluster}" >"$1/etc/postgresql-common/createcluster.conf"',
            *(f"--customize-hook={hook}" for hook in hooks),
            *("bookworm", archive),
        )
        image = self.podman("import", "--quiet", "--change", f"ENV PIP_CERT={TRUST}", archive)
        command = 'ENTRYPOINT ["postgres"]'
        self.podman("import", "--quiet", "--change", command, archive, postgres)
        archive.unlink()
        for name in names:
            self.podman("tag", image, name)

    def build(self, image: str, **arguments: str) -> None:
        """Build the image of the service from the unchanged Dockerfile."""
        self.call(
            *("buildah", "bud", "--pull-never", "--isolation", "chroot", "--network", "host"),
            *("--format", "docker", "--file", DOCKER / "Dockerfile", "--tag", image),
            *("--ignorefile", DOCKER / "Dockerfile.dockerignore"),
            *(f"--build-arg={name}={text}" for name, text in arguments.items()),
            ROOT,
        )

    @contextmanager
    def serve(self, *options: str, **settings: str) -> Iterator[tuple[str, Live]]:
        """Run the service, confined, until the block is left; yield its container and a client."""
        settings = {"backend": "memory", "api_keys": KEY, "log": "json"} | settings
        given = [f"--env=PETSTORE_{name.upper()}={text}" for name, text in settings.items()]
        publish = "--publish=127.0.0.1::8000"
        name = self.podman("run", "--detach", publish, *CONFINED, *options, *given, "petstore")
        try:
            self.until_healthy(name)
            live = self.client(name)
            with live.client:
                yield name, live
        finally:
            self.podman("rm", "--force", "--time=0", name)

    def client(self, name: str) -> Live:
        """Return a client of a service."""
        host, _, port = self.podman("port", name, "8000").rpartition(":")
        return Live(host, int(port))

    def until_healthy(self, name: str) -> None:
        """Run the health check of an image until it passes."""
        check = ("podman", "healthcheck", "run", name)
        until(lambda: run(*check, **self._environ).returncode == 0, log=lambda: self.logs(name))

    def logs(self, name: str) -> str:
        """Return the output of a container on both streams."""
        ended = run("podman", "logs", name, **self._environ)
        return ended.stdout + ended.stderr

    def remove(self) -> None:
        """Remove all containers, networks and images, and the directory."""
        self.podman("rm", "--all", "--force", "--time=0", "--depend", status=None)
        self.podman("network", "prune", "--force", status=None)
        self.podman("rmi", "--all", "--force", status=None)
        shutil.rmtree(self.directory)


def default_of(argument: str) -> str:
    """Return the default of a build argument of the Dockerfile."""
    match = re.search(rf"^ARG {argument}=(.+)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert match
    return match[1]
