"""TLS to a server: what `sslmode` and `sslrootcert` in the URL check, and what is refused."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.postgres.tests.binaries import VERSIONS, own
from backends.postgres.tests.places import create, refusal
from backends.postgres.tests.servers import Server, single
from petstore.contract import UnavailableError
from tests.support.environments import missing

ENTRIES = "hostssl all client 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 trust\n"
"""Also for this test: it connects with TLS, or not at all."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an authority, and a certificate that it signs for localhost; return their folder."""
    folder = tmp_path_factory.mktemp("tls")
    authority = "-addext keyUsage=critical,keyCertSign"
    signed = "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:false"
    for name, more in (
        ("ca", authority),
        ("other", authority),
        ("server", f"{signed} -addext subjectAltName=DNS:localhost"),
        ("client", signed.replace("ca.", "other.")),
    ):
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
            f" -subj /CN={name} -keyout {name}.key -out {name}.pem {more}"
        )
        subprocess.run(command.split(), check=True, capture_output=True, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def encrypted(authority: Path) -> Iterator[Server]:
    """Run a server that accepts nobody without TLS. The wheel's have none; those of Debian do."""
    able = [path for path in VERSIONS.values() if b"libssl" in (path / "postgres").read_bytes()]
    if not able:
        missing("a PostgreSQL with TLS is not installed")
    files = "ssl = on", "ssl_ca_file = 'other.crt'"
    with single(*files, binaries=able[0], start=False) as server:
        for name in ("server.key", "server.pem", "other.pem"):
            copy = server.data / name.replace("pem", "crt")
            copy.write_bytes((authority / name).read_bytes())
            copy.chmod(0o600)
            own(copy)
        server.start()
        server.fetch("CREATE USER client SUPERUSER")
        server.stop()
        (server.data / "pg_hba.conf").write_text(ENTRIES)
        server.start(wait=False)
        server.until_listening()
        yield server


@pytest.mark.parametrize("mode", ["prefer", "require", "verify-ca", "verify-full"])
def test_each_mode_works_with_a_server_whose_certificate_is_trusted(
    encrypted: Server, authority: Path, mode: str
) -> None:
    url = encrypted.url(sslmode=mode, sslrootcert=str(authority / "ca.pem"))
    assert create(url.replace("127.0.0.1", "localhost")) == 1


def test_a_certificate_for_another_host_name_is_refused(encrypted: Server, authority: Path) -> None:
    url = encrypted.url(sslmode="verify-full", sslrootcert=str(authority / "ca.pem"))
    assert "certificate is not valid for '127.0.0.1'" in refusal(url, UnavailableError)
    assert create(url.replace("verify-full", "verify-ca")) == 1, "it checks no host name"


def test_a_certificate_of_another_authority_is_refused(encrypted: Server, authority: Path) -> None:
    for mode in ("require", "verify-ca", "verify-full"):  # with an authority, require checks it
        url = encrypted.url(sslmode=mode, sslrootcert=str(authority / "other.pem"))
        message = refusal(url.replace("127.0.0.1", "localhost"), UnavailableError)
        assert "is not trusted (unable to get local issuer certificate); correct it, or" in message
        assert "(sslrootcert=/path/ca.pem)" in message
    assert create(encrypted.url(sslmode="require")) == 1, "nothing to check it with"


def test_a_client_is_known_by_its_certificate(encrypted: Server, authority: Path) -> None:
    files = {"sslcert": f"{authority}/client.pem", "sslkey": f"{authority}/client.key"}
    url = encrypted.url(sslmode="require", **files).replace("postgres@", "client@")
    assert create(url) == 1


def test_a_server_that_requires_tls_says_so(encrypted: Server) -> None:
    assert "no encryption" in refusal(encrypted.url(sslmode="disable"))


def test_a_server_without_tls_is_refused_where_it_is_required(server: Server) -> None:
    message = refusal(server.url(sslmode="require"))
    assert "rejected SSL upgrade; change sslmode in PETSTORE_POSTGRES_URL" in message


def test_a_file_of_certificates_that_is_missing_is_refused(server: Server) -> None:
    message = refusal(server.url(sslmode="verify-full", sslrootcert="/none/ca.pem"))
    assert message == "sslrootcert=/none/ca.pem in PETSTORE_POSTGRES_URL cannot be read"


def test_the_authorities_of_the_system_can_be_used(
    encrypted: Server, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    url = encrypted.url(sslrootcert="system").replace("127.0.0.1", "localhost")
    assert create(url) == 1
    assert create(f"{url}&sslmode=verify-full") == 1
    assert "certificate is not valid for '127.0.0.1'" in refusal(
        encrypted.url(sslrootcert="system"), UnavailableError
    )
    assert "sslrootcert=system needs sslmode=verify-full" in refusal(f"{url}&sslmode=require")
    message = refusal(f"{url}&sslcert={__file__}&ssl_min_protocol_version=TLSv1.3")
    assert "ssl_min_protocol_version, sslcert: sslrootcert must name a file" in message
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "other.pem"))
    assert "unable to get local issuer certificate" in refusal(url, UnavailableError)
    url = url.replace("sslrootcert=system", "sslmode=verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", "system")
    assert "unable to get local issuer certificate" in refusal(url, UnavailableError)
