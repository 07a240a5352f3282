"""The petstore command: its arguments, its settings and its error messages.

Backends are in test_discovery.py, keys in test_keys.py, a running service in tests/process.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from msgspec import NODEFAULT

from petstore.config.errors import PREFIX
from petstore.config.loading import configure
from petstore.config.settings import Settings, settings_of
from tests.support.command import SECRET, error_message, in_process, run_command, run_streams
from tests.support.services import KEY, Live

NO_KEY = (
    "petstore: no API key is set, so no client could be admitted. Set PETSTORE_API_KEYS_FILE (to"
    " make a key: petstore keys new), or try it out with: petstore serve --dev\n"
)
FOUR_STORES = (
    "^petstore: the backend 'memory' keeps its data in one process; 4 workers would serve 4"
    r" different stores\. Set --workers 1, or choose a shared backend; 'petstore backends' shows"
    r" which are\n$"
)


KUBERNETES = {
    "port": "tcp://10.0.0.1:80",
    "port_80_tcp": "tcp://10.0.0.1:80",
    "port_80_tcp_addr": "10.0.0.1",
    "service_host": "10.0.0.1",
    "service_port": "80",
    "service_port_http": "80",
    "redis_port": "udp://10.0.0.2:6379",
    "redis_port_6379_udp_addr": "10.0.0.2",
    "redis_port_6379_udp_proto": "udp",
    "redis_service_host": "10.0.0.2",
    "redis_service_port": "6379",
    "memory_port": "tcp://10.0.0.3:80",
    "memory_service_port": "80",
}
"""What Kubernetes sets for Services named petstore, petstore-redis and petstore-memory."""


class TestErrors:
    """Each ends in one or two lines on stderr and status 2: no traceback, no secret."""

    def test_a_process_ends_with_the_message(self) -> None:
        assert error_message(run_command("serve", backend="memory")) == NO_KEY

    @pytest.mark.parametrize(
        ("arguments", "settings", "expected"),
        [
            ([], {}, r"^petstore: no backend is chosen\. Set PETSTORE_BACKEND \(installed: .+\)"),
            (["--workers", "4"], {"backend": "memory", "api_keys": SECRET}, FOUR_STORES),
            (["--workerz", "4"], {}, "unrecognized arguments: --workerz 4"),
        ],
    )
    def test_flags_and_settings_together_are_checked(
        self, arguments: list[str], settings: dict[str, str], expected: str
    ) -> None:
        assert re.search(expected, error_message(in_process("serve", *arguments, **settings)))

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ([], "COMMAND"),
            (["sreve"], "sreve"),
            (["serve", "--wo", "4"], "--wo"),
            (["serve", "--workers"], "--workers"),
            (["serve", "x"], "x"),
            (["serve", "x", "--dev"], "x"),
            (["keys"], "COMMAND"),
            (["keys", "new", "a", "b"], "b"),
            (["check", "--backend", "x"], "--backend"),
            (["server"], "server.* See: petstore --help"),
            (["serve", "--port", "80"], "--port 80. See: petstore serve --help"),
            (["keys", "new", "--nmae", "x"], "arguments: --nmae. See: petstore keys new --help$"),
        ],
    )
    def test_a_wrong_argument_is_named(self, arguments: list[str], expected: str) -> None:
        message = error_message(in_process(*arguments))
        assert re.search(rf"(^|\n)petstore.*: .*{expected}(?!\w)", message)

    @pytest.mark.parametrize(
        ("setting", "text", "expected"),
        [
            ("backend", "memroy", r".*'memroy' \(installed: .+\)\. Did you mean 'memory'\?$"),
            ("backend", "xyzzy", r"there is no backend named 'xyzzy' \(installed: .*memory.*\)\.$"),
            ("listen", "8000", "PETSTORE_LISTEN must be HOST:PORT"),
            ("listen", "192.0.2.1:0", "cannot listen on 192.0.2.1:0: this machine has no such"),
            ("listen", "a..b:80", r"cannot listen on a\.\.b:80"),
            ("listen", "\udcff:80", "(PETSTORE_LISTEN must be|cannot listen on) "),
            ("workers", "0", "PETSTORE_WORKERS must be an integer from 1"),
            ("shutdown_seconds", "0", "PETSTORE_SHUTDOWN_SECONDS must be .* from 1 to 3600"),
            ("log", "xml", "PETSTORE_LOG must be json, text or off; it is 'xml'"),
            ("root_path", "shop/", "PETSTORE_ROOT_PATH must be a path .*; it is 'shop/'"),
            ("root_path", "/shop//x", ".* without a slash at its end, two in a row, .*'/shop//x'"),
            ("root_path", "/../x", r".*, or a segment \. or \.\., .*; it is '/\.\./x'"),
            ("metrics_listen", "yes", ".*METRICS_LISTEN must be HOST:PORT, .* 127.0.0.1:9100 "),
            ("api_keys", f"{KEY},{SECRET[:15]}", "key 2 of PETSTORE_API_KEYS has fewer than 16"),
            (
                "store",
                "x",
                "PETSTORE_STORE is set, but the backend 'memory' .* keeps no store: unset it",
            ),
            ("memory_size", "7", "PETSTORE_MEMORY_SIZE is not a setting of the backend 'memory'"),
            ("api_keys", " , ", re.escape(NO_KEY.removeprefix("petstore: ").strip())),
            ("config", "/nothing.toml", "cannot read PETSTORE_CONFIG /nothing.toml: No such"),
            ("config", "~/x.toml", "cannot read PETSTORE_CONFIG ~/x.toml: .*; '~' is not expanded"),
            ("config", "/", "cannot read PETSTORE_CONFIG /: Is a directory"),
        ],
    )
    def test_a_wrong_setting_is_reported(self, setting: str, text: str, expected: str) -> None:
        settings = {"backend": "memory", "api_keys": KEY, "listen": "127.0.0.1:0", setting: text}
        message = error_message(in_process("serve", **settings))
        assert re.match(f"petstore: {expected}", message), message

    def test_an_error_is_logged_where_the_log_is_set_to_json(self) -> None:
        outcome = run_command("serve", log="json", backend="memory", bakend="x")
        lines = [json.loads(line) for line in outcome.stderr.splitlines()]
        assert [line["level"] for line in lines] == ["warning", "error"]
        assert lines[1]["event"] + "\n" == NO_KEY.removeprefix("petstore: ")

    @pytest.mark.parametrize("setting", ["listen", "metrics_listen"])
    def test_a_port_in_use_is_reported(self, setting: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            settings = {"listen": "127.0.0.1:0", setting: listen}
            message = error_message(in_process("serve", "--dev", **settings))
        assert message.startswith(f"petstore: cannot listen on {listen}: the port is in use; ")
        assert f"PETSTORE_{setting.upper()}" in message

    @pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.0.0.1:80", "localhost.x:80"])
    def test_dev_listens_only_on_loopback_addresses(self, listen: str) -> None:
        message = error_message(in_process("serve", "--dev", "--listen", listen))
        assert message == error_message(in_process("serve", "--dev", listen=listen))
        assert message.startswith(
            "petstore: --dev is for trying out and listens only on loopback addresses, not on "
        )

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("PETSTORE_BACKEND = ", ".* is not valid TOML: "),
            (f'PETSTORE_API_KEYS = "{SECRET}', ".* is not valid TOML: "),
            ('PETSTORE_BAKEND = "memory"', ".* is not a setting. Did you mean PETSTORE_BACKEND"),
            (f'PETSTORE_API_KEY = "{SECRET}"', ".* is not a setting. .*_API_KEYS"),
            ("PETSTORE_WORKERS = true", "PETSTORE_WORKERS must be an integer .*; it is 'true'"),
            ('PETSTORE_PORT = "80"', ".*PETSTORE_PORT is not a setting"),
            ('backend = "memory"', ".*: backend is not a setting. Names begin with PETSTORE_"),
            ('PETSTORE_CONFIG = "x"', "PETSTORE_CONFIG: PETSTORE_CONFIG is not a setting"),
            ('[petstore]\nlog = "x"', ".*: petstore is not a setting. Names begin with PETSTORE_"),
            (f'PETSTORE_API_KEYS = ["{SECRET}"]', ".*: PETSTORE_API_KEYS must be a string, a num"),
            ('[PETSTORE_LOG]\nx = "y"', ".*: PETSTORE_LOG must be a string, a number or a bool"),
            ('PETSTORE_API_KEYS_FILE = "a\\u0000b"', "cannot read the key file"),
        ],
    )
    def test_a_wrong_toml_file_is_reported(self, tmp_path: Path, text: str, expected: str) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text(text)
        outcome = in_process("serve", backend="memory", api_keys=KEY, config=str(file))
        message = error_message(outcome)
        assert re.match(f"petstore: {expected}", message), message


class TestNames:
    """Which settings are read, and what happens to other names."""

    def test_flags_override_the_environment_which_overrides_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text('PETSTORE_WORKERS = 2\nPETSTORE_BACKEND = "memory"\n')
        for flags, settings, expected in (
            ([], {}, "2 workers would serve 2 different stores"),
            ([], {"workers": "3"}, "3 workers would serve 3 different stores"),
            (["--workers", "4"], {"workers": "3"}, "4 workers would serve 4 different stores"),
            (["--backend", "x"], {"backend": "y"}, "there is no backend named 'x'"),
            (["--listen", "z"], {"listen": "8000"}, "it is 'z'"),
        ):
            outcome = in_process("serve", *flags, config=str(file), **settings)
            assert expected in error_message(outcome)

    @pytest.mark.parametrize(
        ("name", "meant"), [("worker", "WORKERS"), ("sqlit_path", "SQLITE_PATH")]
    )
    def test_an_unknown_name_in_the_environment_is_only_a_warning(
        self, tmp_path: Path, name: str, meant: str
    ) -> None:
        settings = {"backend": "sqlite", "sqlite_path": str(tmp_path / "pets.sqlite"), name: "2"}
        outcome = in_process("check", api_keys=KEY, **settings)
        warning = f"PETSTORE_{name.upper()} is not a setting. Did you mean PETSTORE_{meant}?"
        assert (outcome.status, outcome.stderr) == (0, f"petstore: warning: {warning}\n")

    def test_an_error_comes_with_the_warning_that_may_explain_it(self) -> None:
        message = error_message(in_process("serve", bakend="memory", api_keys=SECRET))
        assert "Did you mean PETSTORE_BACKEND?" in message
        message = error_message(in_process("serve", backend="memory", api_key=SECRET))
        assert "Did you mean PETSTORE_API_KEYS?" in message
        message = error_message(in_process("serve", backend="gone", gone_url=SECRET))
        assert message.startswith("petstore: there is no backend named 'gone'")

    def test_what_kubernetes_injects_is_ignored_silently(self) -> None:
        outcome = in_process("check", backend="memory", **KUBERNETES)
        warning = "no API key is set, and the service does not start without one"
        assert (outcome.status, outcome.stderr) == (0, f"petstore: warning: {warning}\n")


class TestOtherCommands:
    def test_the_version_is_printed(self) -> None:
        assert re.fullmatch(r"petstore \d+\.\d+\.\d+\S*\n", run_command("--version").stdout)

    def test_help_names_every_command(self) -> None:
        outcome = in_process("--help")
        assert outcome.status == 0
        for name in ("serve", "backends", "check", "keys", "openapi"):
            assert re.search(rf"^ +{name} ", outcome.stdout, re.MULTILINE)

    def test_help_loads_nothing_that_is_slow(self) -> None:
        command = [sys.executable, "-X", "importtime", "-m", "petstore", "--help"]
        loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "petstore.cli" in loaded
        assert not re.search(r"msgspec|importlib\.metadata|litestar", loaded)

    @pytest.mark.parametrize("backend", ["memory", "sqlite", "redis", "postgres"])
    def test_settings_prints_a_file_that_the_service_accepts_once_it_is_uncommented(
        self, backend: str, tmp_path: Path
    ) -> None:
        printed = in_process("settings", "--backend", backend).stdout
        assert tomllib.loads(printed) == {}
        file = tmp_path / "petstore.toml"
        file.write_text(re.sub("(?m)^#(?=PETSTORE_)", "", printed))
        configuration = configure({"PETSTORE_CONFIG": str(file)}, {}, keyless=True)
        assert configuration.warnings == ()
        assert configuration.settings == Settings(backend=backend)
        plugin = configuration.plugin
        own, others = (
            settings_of(Settings, PREFIX),
            settings_of(plugin.backend.settings, plugin.prefix),
        )
        assert {*tomllib.loads(file.read_text())} == {setting.name for setting in own + others}
        for setting in others:
            value = getattr(configuration.storage, setting.field)
            assert setting.default in {value, NODEFAULT}

    def test_settings_prints_those_of_the_backend_that_is_set(self) -> None:
        assert "PETSTORE_SQLITE_PATH" in in_process("settings", backend="sqlite").stdout
        assert "PETSTORE_SQLITE_PATH" not in in_process("settings").stdout

    def test_openapi_prints_the_document_that_a_service_returns(self, service: Live) -> None:
        printed = json.loads(in_process("openapi").stdout)
        with service.anonymous() as client:
            assert printed == client.get("/openapi.json").json()

    def test_openapi_reads_the_root_path_as_a_service_does(self, tmp_path: Path) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text('PETSTORE_ROOT_PATH = "/shop"\n')
        for settings in ({"root_path": "/shop"}, {"config": str(file)}):
            printed = json.loads(in_process("openapi", **settings).stdout)
            assert printed["servers"][0]["url"] == "/shop/v1"
        message = error_message(in_process("openapi", root_path="shop/"))
        assert message.startswith("petstore: PETSTORE_ROOT_PATH must be")

    @pytest.mark.parametrize("arguments", ["openapi", "keys new"])
    def test_a_closed_pipe_is_not_an_error(self, arguments: str) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        done = run_streams(*arguments.split(), settings={"backend": "memory"}, stdout=writer)
        os.close(writer)
        assert done.returncode == 0
        assert not re.search(b"Exception|Traceback", done.stderr)
