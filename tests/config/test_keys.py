"""API keys: how they are generated, configured and reloaded, and that nothing reveals them."""

import asyncio
import hashlib
import json
import logging
import os
import re
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore.config import keys as keys_module
from petstore.config.errors import ConfigurationError
from petstore.config.keys import Keys
from petstore.config.settings import Settings
from tests.support.command import SECRET, error_message, in_process
from tests.support.key_files import key_line, replace
from tests.support.pets import REX
from tests.support.raw_http import begin_body
from tests.support.services import ONE_OR_TWO_WORKERS, Live, Start
from tests.support.waiting import eventually, until

DIGEST = hashlib.sha256(b"key").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a key file that accepts the key `key` from the client `a`."""
    path = tmp_path / "keys"
    path.write_text(f"a:{DIGEST}\n")
    return path


class TestNewKey:
    def test_stdout_has_the_key_and_its_line_and_nothing_else(self, tmp_path: Path) -> None:
        outcome = in_process("keys", "new", "shop-1")
        assert outcome.status == 0
        key, line = outcome.stdout.splitlines()
        assert re.fullmatch(r"ps_[A-Za-z0-9_-]{43}", key)
        assert line == f"shop-1:{hashlib.sha256(key.encode()).hexdigest()}"
        assert key not in outcome.stderr
        (tmp_path / "keys").write_text(line)
        assert Keys(file=tmp_path / "keys").client(key.encode()) == "shop-1"

    def test_every_key_is_different_and_the_name_is_optional(self) -> None:
        key, line = in_process("keys", "new").stdout.splitlines()
        assert line.startswith("client:")
        assert key != in_process("keys", "new").stdout.splitlines()[0]

    @pytest.mark.parametrize(
        "name", ["", "a b", "a:b", ".a", "_a", "\u00e4", "a\n", "#a", "a" * 65]
    )
    def test_a_name_that_is_not_valid_in_a_key_file_is_refused(self, name: str) -> None:
        message = error_message(in_process("keys", "new", name))
        assert message.startswith(
            "petstore: the name of a key must have up to 64 letters, digits, "
        )


class TestFile:
    @pytest.mark.parametrize(
        ("text", "clients"),
        [
            (f"a:{DIGEST}", {"key": "a", "other": None}),
            (f"a:{DIGEST}\nb:{OTHER}\n", {"key": "a", "other": "b", "a": None, DIGEST: None}),
            (f"# shops\n\n  \n  # more\n  a:{DIGEST}  \n", {"key": "a"}),
            (f"a:{DIGEST}\r\nb:{OTHER}\r\n", {"key": "a", "other": "b"}),
            (f"\ufeffa:{DIGEST}\n", {"key": "a"}),
            (f"a:{DIGEST.upper()}\n", {"key": "a"}),
            (f"a:{DIGEST}\na:{OTHER}\n", {"key": "a", "other": "a"}),
            (f"a:{DIGEST}\na:{DIGEST}\n", {"key": "a"}),
            (f"Shop_1.de-x:{DIGEST}\n", {"key": "Shop_1.de-x"}),
        ],
        ids=["one", "two", "comments", "CRLF", "BOM", "upper", "rotation", "repeated", "name"],
    )
    def test_its_clients_are_accepted(
        self, file: Path, text: str, clients: dict[str, str | None]
    ) -> None:
        file.write_bytes(text.encode())
        keys = Keys(file=file)
        assert {key: keys.client(key.encode()) for key in clients} == clients

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "contains no key"),
            (b"# nothing yet\n\n", "contains no key"),
            (f"a:{DIGEST}\nb:{DIGEST}\n".encode(), "contains the key of line 2 under two names"),
            (f"# shops\na:{DIGEST}\n{SECRET}\n".encode(), "is invalid in line 3: expected name:s"),
            (f"a:{SECRET}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (f"a:{DIGEST}{SECRET}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (f"a:{DIGEST[:-1]}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (f"a: {DIGEST}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (f"{DIGEST}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (f"a b:{DIGEST}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (f"a:{DIGEST} # {SECRET}\n".encode(), "is invalid in line 1: expected name:sha256-hex"),
            (SECRET.encode() + b"\xff\xfe", "is not UTF-8 text"),
        ],
    )
    def test_an_invalid_line_is_reported_by_its_number_without_its_content(
        self, file: Path, content: bytes, reason: str
    ) -> None:
        file.write_bytes(content)
        outcome = in_process("serve", backend="memory", api_keys_file=str(file))
        message = error_message(outcome)
        assert message.startswith(f"petstore: the key file {file} {reason}")
        assert DIGEST[:-1] not in message

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            (
                "/nothing/keys",
                "cannot read the key file /nothing/keys of PETSTORE_API_KEYS_FILE: N",
            ),
            ("~/keys", "cannot read the key file ~/keys of .*; '~' is not expanded, so write the "),
            ("/", "the key file / is not a regular file"),
            ("/dev/zero", "the key file /dev/zero is not a regular file"),
        ],
    )
    def test_an_unreadable_file_is_reported(self, path: str, message: str) -> None:
        outcome = in_process("check", backend="memory", api_keys_file=path)
        assert re.match(f"petstore: {message}", error_message(outcome))

    @pytest.mark.parametrize(
        ("name", "mode", "warning"),
        [
            ("keys", 0o646, "every user can write the key file, {}, and so add a key"),
            (".", 0o777, "every user can write the folder of the key file, {}, and so add a key"),
            ("keys", 0o664, ""),
            (".", 0o1777, ""),
        ],
    )
    def test_what_every_user_can_write_causes_a_warning(
        self, file: Path, name: str, mode: int, warning: str
    ) -> None:
        path = file.parent / name
        path.chmod(mode)
        shown = in_process("check", backend="memory", api_keys_file=str(file)).stderr
        text = f"petstore: warning: {warning}. Run: chmod o-w {{}}\n" if warning else ""
        assert shown == text.format(path, path)

    def test_more_names_than_possible_are_reported_and_the_keys_stay_unchanged(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keys_module, "MAX_CLIENTS", 1)
        keys = Keys(file=file)
        file.write_text(f"a:{DIGEST}\na:{OTHER}\n")
        assert keys.reload(), "these are two keys, and one name"
        file.write_text(f"a:{DIGEST}\nb:{OTHER}\n")
        with pytest.raises(
            ConfigurationError, match=f"^the key file {file} has 2 names; at most 1 "
        ):
            keys.reload()
        assert keys.client(b"other") == "a"

    def test_keys_in_clear_are_valid_too(self, file: Path) -> None:
        keys = Keys(["other"], file)
        assert len(keys) == 2
        assert (keys.client(b"key"), keys.client(b"other")) == ("a", f"sha256:{OTHER}")

    @pytest.mark.parametrize("in_place", [True, False], ids=["cp -p", "a mounted Secret"])
    def test_a_replaced_file_is_reloaded_even_if_its_size_and_time_are_the_same(
        self, file: Path, in_place: bool
    ) -> None:
        keys = Keys(file=file)
        assert not keys.reload()
        new = file if in_place else file.with_name("new")
        stat = file.stat()
        new.write_text(f"b:{OTHER}\n")
        os.utime(new, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        new.replace(file)
        assert keys.reload()
        assert (keys.client(b"key"), keys.client(b"other")) == (None, "b")


class TestKeysInClear:
    @pytest.mark.parametrize(
        ("text", "keys"),
        [("a", ("a",)), (" a , b ", ("a", "b")), ("a,,b,", ("a", "b")), (" , ", ()), ("", ())],
    )
    def test_keys_are_separated_by_commas_and_optional_spaces(
        self, text: str, keys: tuple[str, ...]
    ) -> None:
        assert Settings.read({"PETSTORE_API_KEYS": text}).api_keys == keys

    @pytest.mark.parametrize(
        "key",
        [f"{SECRET} {SECRET}", f"{SECRET}\u00e4", f"{SECRET}=x", f'"{SECRET}"', f"{SECRET}\n"],
    )
    def test_a_key_that_no_client_could_send_is_refused_and_not_shown(self, key: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^key 2 of .* cannot be sent") as caught:
            Keys(["good", key])
        assert SECRET not in str(caught.value)

    @given(key=st.from_regex(r"[A-Za-z0-9._~+/-]+=*", fullmatch=True))
    def test_every_bearer_token_can_be_a_key(self, key: str) -> None:
        keys = Keys([key])
        assert keys.client(key.encode()) == f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
        assert keys.client(key.encode() + b"=") is None


def status(live: Live, key: str) -> int:
    """Return the status code of a request with this key."""
    with live.new_client(key) as client:
        return client.get("/v1/pets").status_code


class TestReload:
    @pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
    def test_sighup_reloads_it_at_once_and_changes_nothing_else(
        self, start: Start, file: Path, workers: str
    ) -> None:
        live = start(api_keys_file=str(file), workers=workers, drain_seconds="0")
        processes = [live.popen.pid, *live.workers()]
        body = json.dumps(REX)
        with begin_body(live, f"Content-Length: {len(body)}", key=live.key) as connection:
            live.popen.send_signal(signal.SIGHUP)  # without a change nothing else reloads it
            until(lambda: live.log.read_text().count(f"reloaded the key file {file}: 3 keys") >= 1)
            until(lambda: live.log.read_text().count("reloaded the key file") == int(workers))
            connection.sendall(body.encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
        assert [live.popen.pid, *live.workers()] == processes
        assert live.stop() == 0

    async def test_sighup_does_not_wait_for_the_next_look_at_the_file(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(keys_module, "WATCH_SECONDS", 3600)
        keys = Keys(file=file)
        file.parent.chmod(0o777)
        watcher = asyncio.create_task(keys.watch())
        await asyncio.to_thread(replace, file, f"b:{OTHER}\n".encode())
        keys.reload_soon()
        await eventually(lambda: "every user can write the folder" in caplog.text)
        watcher.cancel()
        assert (keys.client(b"key"), keys.client(b"other")) == (None, "b")

    def test_sighup_without_a_key_file_says_so(self, start: Start) -> None:
        live = start(drain_seconds="0")
        live.popen.send_signal(signal.SIGHUP)
        until(lambda: "no key file to reload" in live.log.read_text())
        assert live.client.get("/v1/pets").status_code == 200
        assert live.stop() == 0

    async def test_whatever_happens_while_it_is_reloaded_a_removed_key_becomes_invalid(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(keys_module, "WATCH_SECONDS", 0.01)
        monkeypatch.chdir(file.parent)
        keys = Keys(file=Path(file.name))
        monkeypatch.chdir("/")
        read_text, to_thread = Path.read_text, asyncio.to_thread
        monkeypatch.setattr(Path, "read_text", Mock(side_effect=MemoryError()))
        no_thread = Mock(side_effect=RuntimeError("can't start new thread"))
        monkeypatch.setattr(asyncio, "to_thread", no_thread)
        watcher = asyncio.create_task(keys.watch())
        await to_thread(replace, file, f"b:{OTHER}\n".encode())
        await eventually(lambda: caplog.records)
        monkeypatch.setattr(Path, "read_text", read_text)
        await eventually(lambda: not keys.client(b"key"))
        assert [
            record.getMessage() for record in caplog.records if record.levelname == "ERROR"
        ] == ["MemoryError; the keys stay unchanged"]
        watcher.cancel()

    @pytest.mark.parametrize("invalid", [b"", SECRET.encode(), b"\xff", None])
    async def test_a_file_that_becomes_invalid_is_logged_once_and_the_keys_stay_meanwhile(
        self,
        file: Path,
        invalid: bytes | None,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(keys_module, "WATCH_SECONDS", 0.01)
        caplog.set_level(logging.INFO, "petstore.keys")
        keys = Keys(file=file)
        reloads: list[bool] = []
        keys.on_reload = reloads.append

        watcher = asyncio.create_task(keys.watch())
        await asyncio.to_thread(replace, file, invalid)
        await eventually(lambda: len(reloads) >= 5)
        assert not any(reloads)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert keys.client(b"key") == "a"
        assert SECRET not in caplog.text
        await asyncio.to_thread(replace, file, f"b:{OTHER}\n".encode())
        await eventually(lambda: caplog.records[-1].levelname == "INFO")
        assert (keys.client(b"key"), keys.client(b"other")) == (None, "b")
        assert reloads[-1]
        watcher.cancel()


class TestLog:
    def test_it_contains_no_key_and_no_digest_of_a_key_file(self, start: Start, file: Path) -> None:
        file.write_text(key_line("shop", "file-key"))
        live = start(api_keys=SECRET, api_keys_file=str(file), drain_seconds="0")
        for key in ("file-key", "wrong-key", SECRET, DIGEST):
            assert status(live, key) == (200 if key in {"file-key", SECRET} else 401)
        with live.anonymous() as client:
            client.get("/v1/pets", headers={"Authorization": f"Basic {SECRET}"})
            client.get(f"/v1/pets?key={SECRET}", headers={"Authorization": SECRET})
        live.stop()
        log = live.log.read_text()
        assert '"client":"shop"' in log
        digest = hashlib.sha256(b"file-key").hexdigest()
        assert not re.search(f"file-key|wrong-key|{SECRET}|{DIGEST}|{digest}", log)
        hashed = hashlib.sha256(SECRET.encode()).hexdigest()
        assert f'"client":"sha256:{hashed[:12]}"' in log
        assert hashed not in log
