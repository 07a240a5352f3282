"""Reverse proxies in front of a running service, configured as docker/ says."""

import os
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Final, NamedTuple

import httpx

from tests.support.documents import ROOT, blocks
from tests.support.environments import missing, program, programs
from tests.support.ports import free_port
from tests.support.services import NO_TLS
from tests.support.waiting import HANG_SECONDS, until

DOCKER: Final = ROOT / "docker"
LOCK: Final = Path(__file__).parent / "python/requirements.lock"
LISTEN: Final = "127.0.0.1:PORT"


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a configuration after changes, each of which it needs."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def block(language: str, *changes: tuple[str, str]) -> str:
    """Return the first configuration of docker/README.md in a language, after changes."""
    text, *_ = blocks((DOCKER / "README.md").read_text(), language)
    return changed(text, *changes)


class Proxy(NamedTuple):
    """A proxy: what runs it in the foreground, what prints its version, and its configuration.

    PORT, DIRECTORY and FILE stand for those of a run. The configuration is that for deployers, with
    what is around it in an installed proxy; if it has TLS, with a certificate of the test.
    """

    run: str
    version: str
    configuration: str
    tls: bool = False


NGINX: Final = """
user root;
daemon off;
pid DIRECTORY/nginx.pid;
events {{}}
http {{
{}
}}
"""

APACHE: Final = """
Listen 127.0.0.1:PORT
StartServers 1
ServerLimit 1
User www-data
Group www-data
ServerName localhost
DefaultRuntimeDir DIRECTORY
PidFile DIRECTORY/apache2.pid
ErrorLog DIRECTORY/log
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
{}
"""

CADDY: Final = """
{
  admin off
  auto_https disable_redirects
  servers {
    protocols h1 h2
  }
}
"""

# The header says which HTTP the client speaks.
CERTIFICATE: Final = """
  tls DIRECTORY/petstore.crt DIRECTORY/petstore.key
  header X-Protocol {http.request.proto}
"""

ENVOY: Final = """
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": TYPE.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: petstore
          http_filters: [{name: router, typed_config: {"@type": TYPE.http.router.v3.Router}}]
          route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [ROUTE]}]}
  clusters:
""".replace("TYPE", "type.googleapis.com/envoy.extensions.filters").replace(
    "ROUTE", "{match: {prefix: /}, route: {cluster: petstore}}"
)

SQUID: Final = """
pid_filename none
cache_log /dev/null
access_log none
coredump_dir /
shutdown_lifetime 0
"""

PROXIES: Final = {
    "nginx": Proxy(
        "nginx -e DIRECTORY/log -c FILE",
        "nginx -v",
        changed(
            NGINX.format((DOCKER / "nginx.conf").read_text()),
            ("listen 443", f"listen {LISTEN}"),
            ("  listen [::]:443 ssl;\n", ""),
            ("/etc/nginx", "DIRECTORY"),
            ("/var/log/nginx", "DIRECTORY"),
        ),
        tls=True,
    ),
    "HAProxy": Proxy(
        "haproxy -db -f FILE",
        "haproxy -v",
        block("haproxy", (":443", LISTEN), ("/etc/haproxy", "DIRECTORY")),
        tls=True,
    ),
    "Caddy": Proxy(
        "caddy run --adapter caddyfile --config FILE",
        "caddy version",
        CADDY + block("caddyfile", ("api.example.test {", f"https://{LISTEN} {{{CERTIFICATE}")),
        tls=True,
    ),
    "Apache httpd": Proxy(
        "apache2 -D FOREGROUND -f FILE",
        "apache2 -v",
        APACHE.format(block("apache", ("*:443", LISTEN), ("/etc/apache2", "DIRECTORY"))),
        tls=True,
    ),
    "Varnish": Proxy(
        f"varnishd -F -j none -a {LISTEN} -f FILE -n DIRECTORY/varnish", "varnishd -V", block("vcl")
    ),
    "Envoy": Proxy(
        "envoy -c FILE --disable-hot-restart --concurrency 1 --log-level warn",
        "envoy --version",
        ENVOY + indent(block("yaml"), "  "),
    ),
    "Squid": Proxy(
        "squid -N -d 1 -n petstorePORT -f FILE",
        "squid --version",
        SQUID + block("squid", ("8080", LISTEN)),
    ),
    "lighttpd": Proxy(
        "lighttpd -D -f FILE",
        "lighttpd -v",
        block("lighttpd", ("server.port = 8080", 'server.port = PORT\nserver.bind = "127.0.0.1"')),
    ),
}


def certify(directory: Path) -> Path:
    """Make a certificate for 127.0.0.1 in a directory; return its file.

    Its key is in petstore.key, and both are in petstore.pem.
    """
    key, certificate = directory / "petstore.key", directory / "petstore.crt"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ("-subj", "/CN=petstore", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        [*request.split(), *names, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    (directory / "petstore.pem").write_text(certificate.read_text() + key.read_text())
    return certificate


class Front(NamedTuple):
    """Where a service is: its URL, and with TLS what clients verify its certificate with."""

    url: str
    certificate: Path | None = None
    tls: ssl.SSLContext = NO_TLS


@contextmanager
def in_front(proxy: Proxy, service_port: int, directory: Path) -> Iterator[Front]:
    """Run a proxy in front of a port until the block is left."""
    if os.geteuid() != 0:
        missing("nginx and Apache httpd need root to change their user")
    port = free_port()
    file, log = directory / "configuration.yaml", directory / "log"
    values = {"8000": service_port, "PORT": port, "FILE": file, "DIRECTORY": directory}

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text

    file.write_text(filled(proxy.configuration))
    front = Front(f"http://127.0.0.1:{port}")
    if proxy.tls:
        certificate = certify(directory)
        tls = ssl.create_default_context(cafile=certificate)
        front = Front(f"https://127.0.0.1:{port}", certificate, tls)
    command = shlex.split(filled(proxy.run))
    path = f"{programs('clients', LOCK)}:{os.environ['PATH']}"  # Envoy is a package of Python
    home = os.environ | {"HOME": f"{directory}"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program(command[0], path=path), *command[1:]], env=home, stdout=output, stderr=output
        )

    def serves() -> bool:
        assert process.poll() is None, log.read_text()
        return httpx.get(f"{front.url}/livez", verify=front.tls).status_code < 500

    try:
        until(serves, log=log.read_text)
        yield front
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)
