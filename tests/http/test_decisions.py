"""Decisions where the specification is silent, over HTTP.

Pages: test_pagination.py. The Store group: test_orders.py. Safe retries: test_idempotency.py.
"""

import re

import httpx
import pytest

from tests.support.services import Live

POLICY = "default-src 'none'; frame-ancestors 'none'"

REFERENCE = {"/openapi.json", "/docs", "/docs/reference.css"}

PATHS = [
    *(("GET", path) for path in ("/", "/nothing", "/livez", "/readyz")),
    *(("GET", path) for path in ("/openapi.json", "/docs", "/docs/nothing", "/docs/reference.css")),
    *(("HEAD", path) for path in ("/openapi.json", "/docs")),
    ("PUT", "/livez"),
    *(("OPTIONS", path) for path in ("*", "/docs", "/nothing")),
    *(("GET", path) for path in ("/v1", "/v1/nothing", "/v1/pets", "/v1/pets/", "/v1/pets/0")),
    *((method, "/v1/pets") for method in ("DELETE", "HEAD", "OPTIONS", "POST")),
    ("POST", "/v1/store/orders"),
    *((method, "/v1/store/orders/0") for method in ("GET", "PATCH")),
]


class TestEveryResponse:
    @pytest.mark.parametrize(("method", "path"), PATHS)
    def test_it_has_a_request_id_and_headers_for_caches_and_browsers(
        self, service: Live, method: str, path: str
    ) -> None:
        own = "A.z_0-9" * 18
        responses = [
            service.client.request(method, path, headers={"X-Request-Id": own}),
            *(service.client.request(method, path) for _ in range(2)),
        ]
        ids = [response.headers.get_list("x-request-id") for response in responses]
        assert ids[0] == [own]
        assert len({id_ for [id_] in ids}) == 3
        for response in responses:
            assert response.headers["x-content-type-options"] == "nosniff"
            reference = path in REFERENCE and response.is_success and method != "OPTIONS"
            caching = "no-cache" if reference else "no-store"
            assert response.headers.get_list("cache-control") == [caching]
            policy = response.headers.get("content-security-policy", "")
            assert (policy != POLICY) == reference

    @pytest.mark.parametrize("odd", ["", "a b", "a" * 129, "a/b", "\u00e4", "a,b"])
    def test_a_malformed_request_id_is_replaced(self, service: Live, odd: str) -> None:
        response = service.client.get("/livez", headers=[(b"X-Request-Id", odd.encode("latin-1"))])
        assert response.headers["x-request-id"] not in ("", odd)


class TestOtherPaths:
    """They need no key."""

    def test_the_service_is_live_and_ready_and_describes_itself(self, service: Live) -> None:
        with service.anonymous() as client:
            for probe in (client.get("/livez"), client.get("/readyz")):
                assert probe.status_code == 200
                assert probe.headers["content-type"].startswith("text/plain")
            document = client.get("/openapi.json")
        assert document.headers["content-type"] == "application/json"
        assert document.json()["info"]["version"] == "1.0.0"

    def test_the_reference_refers_to_no_other_host(self, service: Live) -> None:
        with service.anonymous() as client:
            page = client.get("/docs")
            assert page.status_code == 200
            assert page.headers["content-type"].startswith("text/html")
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert "//" not in page.text.replace("<!doctype", "")
            parts = re.findall('(?:href|src)="(docs/[^"]+)"', page.text)
            assert len(parts) == 3
            assert {client.get(f"/{part}").status_code for part in parts} == {200}

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize(
        "path", ["/openapi.json", "/docs", "/docs/reference.js", "/docs/reference.css"]
    )
    def test_what_caches_may_store_has_a_validator(
        self, service: Live, method: str, path: str
    ) -> None:
        def send(known: str = "") -> httpx.Response:
            return service.client.request(method, path, headers={"If-None-Match": known})

        found = send()
        tag = found.headers["etag"]
        assert found.headers["cache-control"] == "no-cache"
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = send(known)
            assert (again.status_code, again.content) == (304, b"")
            assert "content-type" not in again.headers
            for name in ("cache-control", "etag"):
                assert again.headers[name] == found.headers[name]
        assert send('"x"').status_code == 200
