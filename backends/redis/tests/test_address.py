"""PETSTORE_REDIS_URL: its forms, and the messages for invalid ones, never with a password."""

import asyncio
import ssl
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from petstore_conformance.faults.proxy import Proxy
from petstore_redis import address
from petstore_redis.address import Topology

from backends.redis.tests.servers import REDIS, VALKEY, Server, certificate, single
from backends.redis.tests.stores import opened, unavailable
from petstore.contract import SettingsError, UnavailableError
from tests.support.repositories import REX, refused

SECRET = "hun/ter2?#@:%"
QUOTED = quote(SECRET, safe="")
BINARIES = [binary for binary in (VALKEY, REDIS) if binary]


@pytest.mark.parametrize(
    ("url", "topology", "addresses"),
    [
        ("redis://db", Topology.SINGLE, [("db", 6379)]),
        ("redis://[::1]", Topology.SINGLE, [("::1", 6379)]),
        ("rediss://db", Topology.SINGLE, [("db", 6379)]),
        ("unix:///run/redis%20.sock", Topology.SINGLE, [("/run/redis .sock", 0)]),
        (
            "redis+sentinel://a,b:7,[::1]/pets",
            Topology.SENTINEL,
            [("a", 26379), ("b", 7), ("::1", 26379)],
        ),
        ("redis+cluster://a,b:7", Topology.CLUSTER, [("a", 7000), ("b", 7)]),
        ("rediss+cluster://a", Topology.CLUSTER, [("a", 7000)]),
    ],
)
def test_a_url_names_the_servers(
    url: str, topology: Topology, addresses: list[tuple[str, int]]
) -> None:
    target = address.parse(url)
    assert (target.topology, list(target.addresses), target.db) == (topology, addresses, 0)
    assert (target.tls is not None) == url.startswith("rediss")
    assert (target.user, target.password) == ("", "")
    assert target.service == ("pets" if topology is Topology.SENTINEL else "")


def test_a_url_has_the_login_and_the_database() -> None:
    target = address.parse(f"redis://us%3Aer:{QUOTED}@db:7/12")
    assert (target.user, target.password, target.db) == ("us:er", SECRET, 12)
    assert target.name == "redis at redis://us%3Aer:***@db:7/12"
    assert address.parse(f"redis://:{QUOTED}@db").name == "redis at redis://:***@db"
    target = address.parse(
        f"redis+sentinel://u:{QUOTED}@a/pe%2Fts/3?sentinel_username=s&sentinel_password={QUOTED}"
    )
    assert (target.service, target.db, target.password) == ("pe/ts", 3, SECRET)
    assert (target.sentinel_user, target.sentinel_password) == ("s", SECRET)
    assert "***" in target.name.partition("sentinel_password=")[2]
    target = address.parse(f"unix://u:{QUOTED}@/run/redis.sock")
    assert (target.user, target.password, target.addresses) == (
        "u",
        SECRET,
        (("/run/redis.sock", 0),),
    )


INVALID = [
    ("db:6379", "not a URL"),
    ("redis+://db", "does not begin"),
    ("redis://", "missing or not valid"),
    ("redis://a,b", "several hosts"),
    ("redis://a..b", "missing or not valid"),
    ("redis://a\0b", "missing or not valid"),
    ("redis://db:65536", "port"),
    ("redis://db:\u0663", "port"),
    ("redis://[::1", "missing or not valid"),
    ("redis://db/x", "database"),
    ("redis://db/\u00b2", "database"),
    ("redis+cluster://db/1", "only database 0"),
    ("redis+sentinel://a//1", "name of the master"),
    ("unix://run/x", "path of the socket"),
    ("redis://db?ssl_ca_certs=x", "'ssl_ca_certs' is unknown (known: none)"),
    ("rediss://db?ssl_ca_certs=/none", "(/none): No such file"),
    ("redis://db?x", "'x' is unknown"),
    ("redis://user:@db", "a user needs a password"),
    ("redis+sentinel://u:1/hunter2@db", "%2F"),
    ("redis://u:1?hunter2=1@db", "%3F"),
    ("redis://u:1/0#hunter2@db", "%23"),
]


@pytest.mark.parametrize(("url", "reason"), INVALID)
def test_an_invalid_url_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        address.parse(url)
    message = str(caught.value)
    assert message.startswith("PETSTORE_REDIS_URL is not valid: ")
    assert reason in message
    assert "hunter2" not in message
    assert "\n" not in message


@settings(deadline=None)
@given(
    user=st.text("abc:%/@ \u00e9\n", max_size=4),
    secret=st.text(max_size=6).map(lambda text: f"GEHEIM{text}".encode("utf-8", "ignore").decode()),
    raw=st.booleans(),
    scheme=st.sampled_from(["redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "x", ""]),
    rest=st.sampled_from(["db", "db:1/0", "a,b:1", "db/s/1", "/run/x", "db:x", "", "[", "db?a=1"]),
    option=st.sampled_from(["", "?sentinel_password=", "?sentinel_pasword=", "?", "?ssl_keyfile="]),
)
@example(user="u", secret="GEHEIM:x", raw=True, scheme="redis", rest="db", option="")
@example(
    user="",
    secret="GEHEIM",
    raw=True,
    scheme="redis+sentinel",
    rest="db/s/1",
    option="?sentinel_password=",
)
def test_no_message_shows_a_password(
    *, user: str, secret: str, raw: bool, scheme: str, rest: str, option: str
) -> None:
    password = secret if raw else quote(secret, safe="")
    url = f"{scheme}://{user if raw else quote(user, safe='')}:{password}@{rest}"
    if option.endswith("password="):
        url += option + quote(secret, safe="")
    elif option:
        url += option
    try:
        text = address.parse(url).name
    except SettingsError as error:
        text = str(error)
    assert "GEHEIM" not in text
    assert "\n" not in text


async def _use(url: str, **settings: object) -> None:
    async with opened(url, **settings) as repository:
        receipt = await repository.create_pet(REX)
        assert await repository.get_pet(receipt.id) is not None


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_a_password_and_a_user_are_used(binary: Path, tmp_path: Path) -> None:
    with single(tmp_path, f"unixsocket {tmp_path}/s", binary=binary, password=SECRET) as server:
        server.call("ACL", "SETUSER", "rex", "on", f">{SECRET}2", "~*", "+@all")
        host = f"127.0.0.1:{server.port}"
        for url in (
            f"redis://:{QUOTED}@{host}/3",
            f"redis://rex:{QUOTED}2@{host}",
            f"unix://rex:{QUOTED}2@{tmp_path}/s",
            f"unix://rex:{QUOTED}2@{tmp_path}/s?db=4",
        ):
            asyncio.run(_use(url))
        assert {"db3", "db4"} < server.call("INFO", "keyspace").keys()
        for url in (
            f"redis://:{QUOTED}x@{host}",
            f"redis://rex:{QUOTED}@{host}",
            f"redis://{host}",
        ):
            with pytest.raises(SettingsError, match="user or the password is refused") as caught:
                asyncio.run(_use(url))
            assert SECRET not in str(caught.value)
        with pytest.raises(SettingsError, match="DB index is out of range"):
            asyncio.run(_use(f"redis://:{QUOTED}@{host}/99"))


def test_a_password_for_a_server_that_has_none_is_refused(valkey: Server) -> None:
    with pytest.raises(SettingsError, match="user or the password is refused"):
        asyncio.run(_use(f"redis://:hunter2@127.0.0.1:{valkey.port}"))


def test_tls_works_with_a_proxy_and_an_unknown_certificate_is_refused(
    valkey: Server, tmp_path: Path
) -> None:
    file, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    with Proxy(valkey.host, valkey.port, context) as front:
        for host in ("127.0.0.1", "localhost"):
            asyncio.run(_use(f"rediss://{host}:{front.port}?ssl_ca_certs={file}"))
        message = asyncio.run(unavailable(_use(f"rediss://127.0.0.1:{front.port}")))
        assert "certificate is not trusted (self-signed certificate); correct it, or" in message
        assert "(?ssl_ca_certs=/path/ca.pem)" in message


def test_a_server_that_wants_certificates_gets_them(redis: Server, tmp_path: Path) -> None:
    with single(tmp_path, binary=redis.binary, tls=True) as server:
        server.call("CONFIG", "SET", "tls-auth-clients", "yes")
        asyncio.run(unavailable(_use(f"redis://127.0.0.1:{server.port}")))
        file, key = server.certificate, server.directory / "server.key"
        files = f"ssl_ca_certs={file}&ssl_certfile={file}&ssl_keyfile={key}"
        asyncio.run(_use(f"rediss://127.0.0.1:{server.port}?{files}"))


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    assert refused(opened("redis://:hunter2@127.0.0.1:6399/0"), UnavailableError) == (
        "redis at redis://:***@127.0.0.1:6399/0: connection refused (PETSTORE_REDIS_URL)"
    )
