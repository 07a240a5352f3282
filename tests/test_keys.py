"""API keys: how they are made, given and changed, and that nothing shows them."""

import asyncio
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore import auth
from petstore.auth import Keys, KeysError
from petstore.settings import Settings
from tests.conftest import Start
from tests.live import Live, key_line
from tests.test_command import SECRET, in_process, mistake

DIGEST = hashlib.sha256(b"key").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a key file that lets in the client `a` with the key `key`."""
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

    def test_no_two_keys_are_the_same(self) -> None:
        assert len({in_process("keys", "new").stdout for _ in range(20)}) == 20

    def test_the_name_may_be_left_out(self) -> None:
        assert in_process("keys", "new").stdout.splitlines()[1].startswith("client:")

    @pytest.mark.parametrize(
        "name", ["", "a b", "a:b", ".a", "_a", "\u00e4", "a\n", "#a", "a" * 65]
    )
    def test_a_name_that_a_key_file_does_not_take_is_refused(self, name: str) -> None:
        told = mistake(in_process("keys", "new", name))
        assert told.startswith("petstore: the name of a key is up to 64 letters, digits, ")

    @given(name=st.text())
    def test_every_line_made_can_be_read(self, name: str) -> None:
        try:
            key, line = auth.new_key(name)
        except KeysError:
            return
        assert line == key_line(name, key)
        assert auth._parse(f"{line}\n", Path("keys")) == {auth.digest(key.encode()): name}  # noqa: SLF001 - spares writing a file for each name


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
    def test_a_good_one_lets_its_clients_in(
        self, file: Path, text: str, clients: dict[str, str | None]
    ) -> None:
        file.write_bytes(text.encode())
        keys = Keys(file=file)
        assert {key: keys.client(key.encode()) for key in clients} == clients

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "holds no key"),
            (b"# nothing yet\n\n", "holds no key"),
            (f"a:{DIGEST}\nb:{DIGEST}\n".encode(), "gives the key of line 2 two names"),
            (f"# shops\na:{DIGEST}\n{SECRET}\n".encode(), "is wrong in line 3: expected name:sha2"),
            (f"a:{SECRET}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (f"a:{DIGEST}{SECRET}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (f"a:{DIGEST[:-1]}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (f"a: {DIGEST}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (f"{DIGEST}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (f"a b:{DIGEST}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (f"a:{DIGEST} # {SECRET}\n".encode(), "is wrong in line 1: expected name:sha256-hex"),
            (SECRET.encode() + b"\xff\xfe", "is no UTF-8 text"),
        ],
    )
    def test_a_wrong_one_is_told_with_its_line_and_without_its_content(
        self, file: Path, content: bytes, reason: str
    ) -> None:
        file.write_bytes(content)
        told = mistake(in_process("serve", backend="memory", api_keys_file=str(file)))
        assert told.startswith(f"petstore: the key file {file} {reason}")
        assert DIGEST[:-1] not in told

    @pytest.mark.parametrize(
        ("path", "reason"),
        [("/nothing/keys", "No such file or directory"), ("/", "Is a directory")],
    )
    def test_one_that_cannot_be_read_is_told(self, path: str, reason: str) -> None:
        told = mistake(in_process("check", backend="memory", api_keys_file=path))
        assert told == f"petstore: cannot read the key file {path}: {reason}\n"

    def test_keys_in_clear_are_valid_beside_it(self, file: Path) -> None:
        keys = Keys(["other"], file)
        assert len(keys) == 2
        assert (keys.client(b"key"), keys.client(b"other")) == ("a", f"sha256:{OTHER}")

    def test_another_file_in_its_place_is_taken_up_also_if_size_and_time_are_equal(
        self, file: Path
    ) -> None:
        keys = Keys(file=file)
        assert not keys.reload()
        new = file.with_name("new")
        new.write_text(f"b:{OTHER}\n")
        stat = file.stat()
        os.utime(new, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        new.replace(file)  # as Kubernetes does for a mounted Secret
        assert keys.reload()
        assert (keys.client(b"key"), keys.client(b"other")) == (None, "b")


class TestClear:
    @pytest.mark.parametrize(
        ("text", "keys"),
        [("a", ("a",)), (" a , b ", ("a", "b")), ("a,,b,", ("a", "b")), (" , ", ()), ("", ())],
    )
    def test_keys_stand_between_commas_and_spaces(self, text: str, keys: tuple[str, ...]) -> None:
        assert Settings.read({"PETSTORE_API_KEYS": text}).keys == keys

    @pytest.mark.parametrize(
        "key",
        [f"{SECRET} {SECRET}", f"{SECRET}\u00e4", f"{SECRET}=x", f'"{SECRET}"', f"{SECRET}\n"],
    )
    def test_a_key_that_no_client_could_send_is_refused_without_showing_it(self, key: str) -> None:
        with pytest.raises(KeysError, match="API key number 2 cannot be sent") as caught:
            Keys(["good", key])
        assert SECRET not in str(caught.value)

    @given(key=st.from_regex(r"[A-Za-z0-9._~+/-]+=*", fullmatch=True))
    def test_every_bearer_token_can_be_a_key(self, key: str) -> None:
        keys = Keys([key])
        assert keys.client(key.encode()) == f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
        assert keys.client(key.encode() + b"=") is None


def status(live: Live, key: str) -> int:
    """Return what a request with this key is answered."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{live.url}/v1/pets", headers=headers, timeout=10).status_code


def put(file: Path, content: bytes | None) -> None:
    """Replace a file at once, so that nobody reads half of it; remove it if there is no content."""
    if content is None:
        file.unlink()
    else:
        new = file.with_name("new")
        new.write_bytes(content)
        new.replace(file)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until something is so; return whether it came to be."""
    end = time.monotonic() + seconds
    while not (so := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return so


class TestChange:
    def test_a_running_service_takes_up_a_change_within_5_seconds(
        self, start: Start, file: Path
    ) -> None:
        live = start(api_keys_file=str(file))
        assert [status(live, key) for key in ("key", "other")] == [200, 401]
        put(file, f"a:{DIGEST}\na:{OTHER}\n".encode())
        assert within(5, lambda: status(live, "other") == 200)
        assert status(live, "key") == 200
        put(file, f"a:{OTHER}\n".encode())
        assert within(5, lambda: status(live, "key") == 401)
        assert [status(live, key) for key in ("other", live.key)] == [200, 200]

    @pytest.mark.parametrize("wrong", [b"", SECRET.encode(), b"\xff", None])
    def test_a_file_that_becomes_wrong_keeps_the_keys_is_logged_once_and_can_be_repaired(
        self,
        file: Path,
        wrong: bytes | None,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(auth, "WATCH_SECONDS", 0.01)
        caplog.set_level(logging.INFO, "petstore.auth")
        keys = Keys(file=file)

        async def logged(level: int) -> None:
            async with asyncio.timeout(5):
                while level not in [record.levelno for record in caplog.records]:  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(0.01)

        async def change() -> None:
            watcher = asyncio.create_task(keys.watch())
            await asyncio.to_thread(put, file, wrong)
            await logged(logging.ERROR)
            await asyncio.sleep(0.1)
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            assert keys.client(b"key") == "a"
            assert SECRET not in caplog.text
            await asyncio.to_thread(put, file, f"b:{OTHER}\n".encode())
            await logged(logging.INFO)
            assert (keys.client(b"key"), keys.client(b"other")) == (None, "b")
            watcher.cancel()

        asyncio.run(change())


class TestLog:
    def test_it_holds_no_key_and_no_digest_of_a_file(
        self, start: Start, tmp_path: Path, file: Path
    ) -> None:
        file.write_text(key_line("shop", "file-key"))
        live = start(api_keys=SECRET, api_keys_file=str(file), drain_seconds="0")
        for key in ("file-key", "wrong-key", SECRET, DIGEST):
            assert status(live, key) == (200 if key in {"file-key", SECRET} else 401)
        with live.anonymous() as client:
            client.get("/v1/pets", headers={"Authorization": f"Basic {SECRET}"})
            client.get(f"/v1/pets?key={SECRET}", headers={"Authorization": SECRET})
        live.stop()
        log = (tmp_path / "service-1" / "serve.log").read_text()
        assert '"client":"shop"' in log
        digest = hashlib.sha256(b"file-key").hexdigest()
        assert not re.search(f"file-key|wrong-key|{SECRET}|{DIGEST}|{digest}", log)
