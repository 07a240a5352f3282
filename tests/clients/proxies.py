"""Reverse proxies in front of a running service, configured as docker/ says."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from tests.support.documents import ROOT, blocks
from tests.support.environments import missing, program
from tests.support.ports import free_port
from tests.support.waiting import HANG_SECONDS, until

DOCKER: Final = ROOT / "docker"
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

    PORT and DIRECTORY stand for those of a run. The configuration is that for deployers, without
    TLS, so that no client needs a certificate, and with what is around it in an installed proxy.
    """

    run: str
    version: str
    configuration: str


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
{}
"""

_NGINX: Final = Proxy(
    "nginx -e DIRECTORY/log -c FILE",
    "nginx -v",
    changed(
        NGINX.format((DOCKER / "nginx.conf").read_text()),
        ("listen 443 ssl", f"listen {LISTEN}"),
        ("  listen [::]:443 ssl;\n", ""),
        ("  ssl_certificate /etc/nginx/petstore.crt;\n", ""),
        ("  ssl_certificate_key /etc/nginx/petstore.key;\n", ""),
        ("/var/log/nginx", "DIRECTORY"),
    ),
)

# The lines with which nginx forwards WebSockets, and any other Upgrade that a client offers.
_MAP: Final = """
map $http_upgrade $connection_upgrade {
  default upgrade;
  '' close;
}
"""
_UPGRADE: Final = """
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
"""

PROXIES: Final = {
    "nginx": _NGINX,
    "nginx, WebSocket map": _NGINX._replace(
        configuration=changed(
            _NGINX.configuration,
            ("\nupstream petstore", f"{_MAP}\nupstream petstore"),
            ('\n    proxy_set_header Connection "";\n', _UPGRADE),
        )
    ),
    "HAProxy": Proxy(
        "haproxy -db -f FILE",
        "haproxy -v",
        block("haproxy", (":443 ssl crt /etc/haproxy/petstore.pem", LISTEN)),
    ),
    "Caddy": Proxy(
        "caddy run --adapter caddyfile --config FILE",
        "caddy version",
        "{\n  admin off\n}\n" + block("caddyfile", ("api.example.test", f"http://{LISTEN}")),
    ),
    "Apache httpd": Proxy(
        "apache2 -D FOREGROUND -f FILE",
        "apache2 -v",
        APACHE.format(
            block(
                "apache",
                ("*:443", LISTEN),
                ("  SSLEngine on\n  SSLCertificateFile /etc/apache2/petstore.pem\n", ""),
            )
        ),
    ),
    "Varnish": Proxy(
        f"varnishd -F -j none -a {LISTEN} -f FILE -n DIRECTORY/varnish", "varnishd -V", block("vcl")
    ),
}


@contextmanager
def in_front(proxy: Proxy, service_port: int, directory: Path) -> Iterator[str]:
    """Run a proxy in front of a port until the block is left; yield its URL."""
    if os.geteuid() != 0:
        missing("nginx and Apache httpd need root to change their user")
    port = free_port()
    file, log = directory / "configuration", directory / "log"
    values = {"8000": service_port, "PORT": port, "FILE": file, "DIRECTORY": directory}

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text

    file.write_text(filled(proxy.configuration))
    command = shlex.split(filled(proxy.run))
    home = os.environ | {"HOME": f"{directory}"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program(command[0]), *command[1:]], env=home, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{port}"

    def serves() -> bool:
        assert process.poll() is None, log.read_text()
        return httpx.get(f"{url}/livez").status_code == 200

    try:
        until(serves, log=log.read_text)
        yield url
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)
