"""What the service listens on other than a port: Unix sockets, and sockets that it inherits."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from petstore import exit_status
from petstore.config.addresses import Address
from petstore.config.errors import ConfigurationError
from petstore.server.sockets import bind, has_connection, refuse, refuses
from tests.support.command import COMMAND, error_message, in_process, running
from tests.support.pets import REX
from tests.support.ports import free_port
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, environment, unix_client
from tests.support.waiting import HANG_SECONDS, until


def test_the_socket_of_a_killed_service_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "http"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with bind(Address.parse(f"unix:{path}")) as sock, socket.socket(socket.AF_UNIX) as client:
        sock.listen()
        client.connect(str(path))


def test_the_socket_of_a_running_service_and_other_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "http"
    settings = {"backend": "memory", "api_keys": KEY, "listen": f"unix:{path}"}
    address = Address.parse(f"unix:{path}")
    with bind(address) as sock:
        with pytest.raises(ConfigurationError), bind(address):
            pass  # although nothing accepts from it yet
        sock.listen()
        assert path.stat().st_mode & 0o777 == 0o666
        message = error_message(in_process("serve", **settings))
        assert f"cannot listen on unix:{path}: another program listens there" in message
        assert path.is_socket()
    assert not path.exists()
    path.write_text("of somebody else")
    assert "there is a file or a folder" in error_message(in_process("serve", **settings))
    assert path.read_text() == "of somebody else"


def test_the_socket_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "http"
    with bind(Address.parse(f"unix:{path}")) as sock:
        sock.close()  # so that the file system may give its number away
        path.unlink()
        successor = socket.socket(socket.AF_UNIX)
        successor.bind(str(path))
    assert path.is_socket()
    successor.close()


def connects(address: tuple[str, int]) -> bool:
    """Return whether a port accepts a connection, which on the loopback takes no time."""
    with socket.socket() as client:
        client.setblocking(False)
        client.connect_ex(address)
        poll = select.poll()
        poll.register(client, select.POLLOUT)
        return bool(poll.poll(0))


def test_a_port_that_refuses_keeps_only_the_clients_that_have_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert connects(sock.getsockname())
        assert not refuses(sock)
        refuse(sock)
        assert refuses(sock)
        assert not connects(sock.getsockname())
        assert has_connection(sock)


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_of_two_services_that_start_together_on_one_port_one_says_that_it_is_in_use(
    tmp_path: Path, workers: str
) -> None:
    """Both may bind it: only listening fails."""
    settings = {"api_keys": KEY, "listen": f"127.0.0.1:{free_port()}", "workers": workers}
    settings |= {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets"}
    command, env = [*COMMAND, "serve"], environment(**settings, drain_seconds="0")
    both = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for _ in range(2)]
    until(lambda: any(popen.poll() is not None for popen in both))
    [refused] = [popen for popen in both if popen.poll() is not None]
    [serving] = [popen for popen in both if popen is not refused]
    serving.terminate()
    _, message = refused.communicate()
    serving.communicate()
    assert (refused.returncode, serving.returncode) == (exit_status.CONFIGURATION, 0)
    assert b"cannot listen on 127.0.0.1:" in message
    assert b": the port is in use" in message
    assert b"Traceback" not in message


SLOW_START = """
from petstore import cli
from petstore.server import workers

workers.QUEUE_SECONDS = 0  # each start takes longer
cli.main()
"""


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_socket_that_is_inherited_is_served(tmp_path: Path, workers: str) -> None:
    settings = {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets", "workers": workers}
    settings |= {"api_keys": KEY, "drain_seconds": "0"}
    path = tmp_path / "inherited"
    with socket.socket(socket.AF_UNIX) as sock, (tmp_path / "log").open("wb") as log:
        sock.bind(str(path))
        sock.listen()
        popen = subprocess.Popen(
            [sys.executable, "-c", SLOW_START, "serve", "--listen", f"fd:{sock.fileno()}"],
            env=environment(**settings),
            pass_fds=[sock.fileno()],
            stderr=log,
        )
        with unix_client(path) as client:  # it waits for the start instead of being refused
            assert client.post("/v1/pets", json=REX).status_code == 201
        popen.terminate()
        assert popen.wait(HANG_SECONDS) == 0
        assert path.is_socket()


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("unix:/nowhere/http", "its folder does not exist; create it"),
        (f"unix:/tmp/{'x' * 200}", "the path is too long; the limit is 107 bytes"),
        ("unix:relative", r"must be HOST:PORT, .* or unix:/PATH, or fd:N"),
        ("fd:9999", "no such descriptor was inherited"),
        ("fd:x", r"must be HOST:PORT, .* or unix:/PATH, or fd:N"),
    ],
)
def test_other_addresses_are_refused_by_what_is_wrong(listen: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), bind(Address.parse(listen)):
        pass


def test_a_descriptor_that_is_no_stream_socket_is_refused(tmp_path: Path) -> None:
    file = os.open(tmp_path, os.O_RDONLY)
    with (
        pytest.raises(ConfigurationError, match="it is not a socket"),
        bind(Address.parse(f"fd:{file}")),
    ):
        pass
    os.close(file)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    one, other = socket.socketpair()
    for sock in (datagrams, one, socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)):
        fd = sock.detach()
        with (
            pytest.raises(ConfigurationError, match="it is not a bound stream socket"),
            bind(Address.parse(f"fd:{fd}")),
        ):
            pass
    other.close()


def test_the_curl_line_of_the_banner_names_the_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "http"
    with running(tmp_path, "serve", "--dev", "--listen", f"unix:{path}") as popen:
        stdout = tmp_path / "stdout"
        until(lambda: f"curl -i --unix-socket {path} http://localhost/v1/" in stdout.read_text())
        popen.send_signal(signal.SIGHUP)  # its terminal was closed
        assert popen.wait(HANG_SECONDS) == 0
