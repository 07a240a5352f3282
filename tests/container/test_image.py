"""The image: what it contains, how little it may do, and that it starts, serves and stops.

Needs root, podman, buildah and others; `make check-all` runs these tests, `make test` does not.
"""

import json
from datetime import datetime
from typing import Any

import pytest

from petstore import __version__
from tests.container.engine import CONFINED, Engine, tool
from tests.support.pets import AVAILABLE_REX
from tests.support.services import KEY

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("container")]

# As in backends/sqlite/README.md.
BACKUP = """
import apsw; apsw.Connection('/data/petstore.sqlite').execute("VACUUM INTO '/data/backup.sqlite'")
"""


def test_it_runs_unprivileged_and_can_write_nowhere(engine: Engine) -> None:
    with engine.serve() as (name, _):
        assert engine.podman("exec", name, "id", "-u") == "10001"
        capabilities = engine.podman("exec", name, "grep", "CapEff", "/proc/1/status")
        assert int(capabilities.split()[1], 16) == 0
        for directory in ("/", "/tmp", "/data", "/opt/petstore", "/etc"):  # noqa: S108
            engine.podman("exec", name, "touch", f"{directory}/new", status=1)


@pytest.mark.parametrize("options", [(), ("--init",)])
def test_a_stop_drains_and_ends_it(engine: Engine, options: tuple[str, ...]) -> None:
    tool("catatonit")  # the init
    settings = {"drain_seconds": "0.5", "shutdown_seconds": "30"}
    with engine.serve(*options, **settings) as (name, live):
        assert live.client.get("/v1/pets").status_code == 200  # the connection stays open
        engine.podman("stop", "--time=60", name)
        assert engine.podman("wait", name) == "0"
        lines = [json.loads(line) for line in engine.logs(name).splitlines() if line[0] == "{"]
    times = {line["event"]: datetime.fromisoformat(line["time"]) for line in lines}
    took = times["stopped"] - times["stopping: draining for 0.5 s"]
    assert 0.5 <= took.total_seconds() < 1.5


def test_the_health_check_uses_the_configured_address(engine: Engine) -> None:
    with engine.serve(listen="127.0.0.1:8123") as (name, _):
        assert "127.0.0.1:8123" in engine.logs(name)


def test_the_health_check_fails_if_nothing_listens(engine: Engine) -> None:
    name = engine.podman("run", "--detach", "--entrypoint=sleep", "petstore", "60")
    engine.podman("healthcheck", "run", name, status=1)
    engine.podman("rm", "--force", "--time=0", name)


def test_pets_that_were_created_in_sqlite_survive_the_container(engine: Engine) -> None:
    settings = {"backend": "sqlite", "sqlite_path": "/data/petstore.sqlite", "workers": "2"}
    with engine.serve("--volume=pets:/data", **settings) as (name, live):
        created = [live.client.post("/v1/pets", json=AVAILABLE_REX).json() for _ in range(20)]
        engine.podman("kill", name)
    with engine.serve("--volume=pets:/data", **settings) as (name, live):
        assert live.client.get("/v1/pets?limit=50").json() == created
        engine.podman("exec", name, "python", "-c", BACKUP)
        engine.podman("stop", name)
        assert engine.podman("inspect", "--format={{.State.ExitCode}}", name) == "0"
    settings["sqlite_path"] = "/data/backup.sqlite"
    with engine.serve("--volume=pets:/data", **settings) as (name, live):
        assert live.client.get("/v1/pets?limit=50").json() == created


def test_it_contains_nothing_that_only_the_build_needs(engine: Engine) -> None:
    shell = ("run", "--rm", "--user=0", "--entrypoint=sh", "petstore", "-c")
    for name in ("gcc", "cc", "hatchling"):
        engine.podman(*shell, f"command -v {name}", status=127)
    packages = "/opt/petstore/lib/*/site-packages"
    absent = f"/source /build /wheels $HOME/.cache /opt/petstore/bin/pip* {packages}/{{}}/"
    listed = [f"ls -d {absent.format(name)}" for name in ("pip", "hatchling", "tests")]
    assert not engine.podman(*shell, ";".join(listed), status=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "PETSTORE_BACKEND"),
        (("--env=PETSTORE_BACKEND=memory",), "no API key"),
        (("serve", "--dev"), "--dev"),
    ],
    ids=["no backend", "no key", "dev"],
)
def test_it_does_not_start_without_a_backend_and_a_key(
    engine: Engine, arguments: tuple[str, ...], message: str
) -> None:
    options = [argument for argument in arguments if "=" in argument]
    command = [argument for argument in arguments if "=" not in argument]
    name = engine.podman("create", *CONFINED, *options, "petstore", *command)
    engine.podman("start", name)
    assert engine.podman("wait", name) == "2"
    assert message in engine.logs(name)
    engine.podman("rm", name)


def test_it_contains_every_command(engine: Engine) -> None:
    command = ("run", "--rm", *CONFINED, "petstore")
    assert engine.podman(*command, "--version") == f"petstore {__version__}"
    key, line = engine.podman(*command, "keys", "new", "shop").splitlines()
    assert key.startswith("ps_")
    assert line.startswith("shop:")
    listed = engine.podman(*command, "backends")
    for name in ("memory", "postgres", "redis", "sqlite"):
        assert f"{name}  petstore-{name}" in listed


def test_it_has_labels(engine: Engine) -> None:
    inspected: list[dict[str, Any]] = json.loads(engine.podman("image", "inspect", "petstore"))
    labels = inspected[0]["Labels"]
    prefix = "org.opencontainers.image"
    assert labels[f"{prefix}.title"] == "petstore"
    assert labels[f"{prefix}.licenses"] == "MIT"
    assert labels[f"{prefix}.version"] == __version__
    assert KEY not in json.dumps(inspected)
