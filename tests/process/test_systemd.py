"""systemd boots, and the unit does what docker/README.md says when what it prints is typed.

The system is a container of systemd-nspawn with this machine's /usr, Python and packages; all else,
the network included, is its own.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Final

import httpx
import pytest
from petstore_conformance.harness.cores import children

from tests.support.documents import ROOT, blocks
from tests.support.environments import captured, missing, program
from tests.support.key_files import key_line
from tests.support.pets import REX
from tests.support.services import KEY, OTHER_KEY, unix_client
from tests.support.waiting import HANG_SECONDS, until

pytestmark = pytest.mark.slow

README: Final = (ROOT / "docker/README.md").read_text()
CLIENTS: Final = 8
RESTARTS: Final = 2

BIND: Final = {
    "/usr": "/usr",
    sys.base_prefix: "/opt/python",
    sysconfig.get_path("purelib"): "/opt/packages",
    str(ROOT): "/opt/checkout",
}

LIBRARIES: Final = "LD_LIBRARY_PATH=/opt/python/lib"
"""For what is started: a Python may look for its library at its own path only."""

FILES: Final = {
    "etc/os-release": "ID=test\n",
    "etc/machine-id": f"{1:032x}\n",  # without it, systemd enables every unit that is installed
    "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
    "etc/group": "root:x:0:\n",
    "opt/petstore/pyvenv.cfg": "home = /opt/python/bin\n",
    "opt/petstore/bin/petstore": "#!/opt/petstore/bin/python\n"
    "from petstore.cli import main\nif __name__ == '__main__':\n    main()\n",
    f"opt/petstore/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/all.pth": (
        "/opt/packages\n/opt/checkout\n/opt/checkout/backends/sqlite\n"
    ),
    "opt/shop/keys": f"{key_line('client', KEY)}\n",
}


class System:
    """A system that has booted.

    root -- the folder of its files
    leader -- the id that its first process has here
    """

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self._enter = (program("nsenter"), "-a", "-t", str(leader), "env", "-i", "HOME=/root")
        self._socket = f"/proc/{leader}/root/run/petstore.sock"

    def type(self, commands: str, directory: str = "/root") -> str:
        """Run commands as root, each of which has to succeed; return what they print."""
        script = f"trap 'journalctl -n 30' ERR; export PATH={os.defpath}:/sbin; cd {directory}\n"
        command = [*self._enter, "bash", "-ec", script + commands]
        done = captured(command, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    def configure(self, **settings: str) -> None:
        """Write the environment file."""
        lines = [f"PETSTORE_{name.upper()}={text}\n" for name, text in settings.items()]
        (self.root / "etc/petstore/environment").write_text("".join(lines))

    def client(self, key: str) -> httpx.Client:
        """Return a client of the socket."""
        return unix_client(self._socket, key)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    nspawn, root = program("systemd-nspawn"), tmp_path / "root"
    if os.geteuid() != 0:
        missing("booting a container needs root")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("etc/systemd/system", "usr", "root", "opt/python", "opt/packages", "opt/checkout"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copy("/etc/ld.so.cache", root / "etc")
    (root / "opt/petstore/bin/petstore").chmod(0o755)
    python = Path(sys.executable).resolve().name
    (root / "opt/petstore/bin/python").symlink_to(f"/opt/python/bin/{python}")
    command = [nspawn, "--quiet", f"--directory={root}", "--register=no", "--keep-unit"]
    command += ["--private-network", *(f"--bind-ro={here}:{there}" for here, there in BIND.items())]
    with (tmp_path / "log").open("wb") as log:
        popen = subprocess.Popen(
            [*command, "--boot", "systemd.unit=basic.target", f"systemd.setenv={LIBRARIES}"],
            env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},  # it cannot see which
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: popen.poll() is not None or children()[popen.pid])
        if popen.poll() is not None:
            missing(f"nothing can be booted here: {(tmp_path / 'log').read_text()}")
        booted = System(root, children()[popen.pid][0])
        until(lambda: booted.type("systemctl is-active basic.target"), errors=(AssertionError,))
        yield booted
    finally:
        popen.terminate()
        popen.wait(HANG_SECONDS)


def block(language: str, fragment: str) -> str:
    """Return the block of the page that contains a text; of commands, without the prompts."""
    [found] = [found for found in blocks(README, language) if fragment in found]
    return found.replace("$ ", "") if language == "console" else found


def load(client: httpx.Client, over: Event, *, keep: bool) -> Counter[str]:
    """Send requests, each fourth of which adds a pet; return how many had which outcome.

    keep -- whether over one connection, for as long as the service keeps it
    """
    outcomes = Counter[str]()
    headers = {} if keep else {"Connection": "close"}
    with client:
        while not over.is_set():
            body, method = (REX, "POST") if outcomes.total() % 4 == 0 else (None, "GET")
            try:
                response = client.request(method, "/v1/pets", json=body, headers=headers)
                outcomes[f"{method} {response.status_code}"] += 1
            except httpx.HTTPError as error:
                outcomes[repr(error)] += 1
    return outcomes


def test_the_unit_serves_as_it_is_installed_and_restarts_under_load(system: System) -> None:
    system.type(block("console", "cp docker/petstore.service"), "/opt/checkout")
    system.type(": < /dev/tcp/127.0.0.1/8000")  # it is open as soon as the command has ended

    unit = system.root / "etc/systemd/system/petstore.socket"
    unit.write_text(block("ini", "ListenStream="))
    system.configure(listen="fd:3")
    system.type(block("console", "enable --now petstore.socket"))
    outcomes = Counter[str]()
    for workers in ("1", "2"):
        system.configure(listen="fd:3", workers=workers)
        system.type("systemctl restart petstore")
        over = Event()
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [
                pool.submit(load, system.client(KEY), over, keep=number % 2 == 0)
                for number in range(CLIENTS)
            ]
            try:
                for _ in range(RESTARTS):
                    system.type("systemctl restart petstore; sleep 1")
            finally:
                over.set()
        outcomes += sum((client.result() for client in clients), Counter[str]())
    assert set(outcomes) == {"GET 200", "POST 201"}, outcomes
    sys.stdout.write(f"{outcomes} over {2 * RESTARTS} restarts\n")

    keys = system.root / "etc/petstore/keys"
    keys.chmod(0o644)
    system.configure(listen="fd:3", workers="2", api_keys_file="/etc/petstore/keys")
    system.type("systemctl restart petstore")
    with keys.open("a") as file:
        file.write(key_line("other", OTHER_KEY))
    system.type("systemctl reload petstore")
    with system.client(OTHER_KEY) as client:
        until(lambda: client.get("/v1/pets").status_code == 200)

    function = block("sh", "as_petstore() {")
    system.type(function + block("console", "as_petstore /opt/petstore/bin/petstore export"))
    exported = (system.root / "root/store.ndjson").read_text().splitlines()
    assert len(exported) == outcomes["POST 201"] + 1  # the last one counts them
    assert (system.root / "root/backup.sqlite").stat().st_size > 10_000
