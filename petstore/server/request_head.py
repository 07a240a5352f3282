"""The head of a request, checked as a whole (RFC 9112, sections 3, 5 and 6)."""

import re
from typing import Final

import httptools

MAX_HEADERS: Final = 100
"""The maximum number of headers and trailers together."""

HeaderList = list[tuple[bytes, bytes]]

_HOST: Final = re.compile(  # RFC 3986, section 3.2, without user information
    rb"""(?:
        [0-9A-Za-z!$&'()*+,;=._~-]* (?:%[0-9A-Fa-f]{2} [0-9A-Za-z!$&'()*+,;=._~-]*)*
        | \[ (?:[0-9A-Fa-f]{0,4}:){2,8} [0-9A-Fa-f.]* \]  # IPv6, and some that are none
        | \[ [Vv] [0-9A-Fa-f]+ \. [0-9A-Za-z!$&'()*+,;=._~:-]+ \]
    ) (?::[0-9]*)?""",
    re.VERBOSE,
)


class MalformedError(Exception):
    """A request is rejected; the message says why."""


def check_headers(headers: HeaderList, version: str, known_host: bytes) -> tuple[bytes, bool, int]:
    """Return the host, whether the client waits for ``100 Continue``, and ``Content-Length``, or 0.

    headers -- with names in lower case and no whitespace around values
    known_host -- a host that is valid; a client sends the same again and again

    Raises `MalformedError` for what is not permitted.
    """
    if len(headers) > MAX_HEADERS:
        raise MalformedError(f"more than {MAX_HEADERS} headers")
    hosts, codings, expects_continue, length = 0, 0, False, 0
    for name, value in headers:
        if name == b"host":
            if value != known_host and _HOST.fullmatch(value):
                known_host = value
            hosts += 1 if value == known_host else 2
        elif name == b"content-length":
            length = int(value.lstrip(b"0") or 0)
        elif name == b"expect" and value.lower() == b"100-continue":
            expects_continue = version == "1.1"  # RFC 9110, section 10.1.1
        elif name == b"transfer-encoding":
            codings += 1 if value.lower() == b"chunked" else 2
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise MalformedError("expected one valid Host header")
    if codings > 1:
        raise MalformedError("expected no Transfer-Encoding but chunked")
    return known_host, expects_continue, length


def parse_target(target: bytes) -> tuple[bytes, bytes]:
    """Return path and query of a target that is not a plain path (RFC 9112, section 3.2).

    Raises `MalformedError` if it is invalid.
    """
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise MalformedError(
            "expected a path, or a URL without user information, as the target"
        ) from None
    if b"#" in target or url.userinfo:
        raise MalformedError("expected a target without fragment and user information")
    if url.schema and url.schema.lower() not in (b"http", b"https"):
        raise MalformedError("expected an http or https target")
    return url.path or b"/", url.query or b""
