"""Decisions where the specification is silent, over HTTP.

Pages: test_pagination.py. The Store group: test_orders.py. Safe retries: test_idempotency.py.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.interface import OPERATIONS
from tests.support.responses import check_error
from tests.support.services import Live

PATHS = [
    ("GET", "/v1/pets"),
    ("GET", "/v1/pets/0"),
    ("GET", "/v1/nothing"),
    ("GET", "/v1"),
    ("GET", "/v1/pets/"),
    ("DELETE", "/v1/pets"),
    ("OPTIONS", "/v1/pets"),
    ("HEAD", "/v1/pets"),
    ("GET", "/"),
    ("GET", "/nothing"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("POST", "/v1/store/orders"),
    ("GET", "/v1/store/orders/0"),
    ("PATCH", "/v1/store/orders/0"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/docs/nothing"),
    ("PUT", "/livez"),
]


class TestPets:
    def test_a_pet_created_without_a_status_has_none(self, fresh: Live) -> None:
        created = fresh.client.post("/v1/pets", json={"name": "Rex", "categoryId": 7})
        pet = {"id": created.json()["id"], "name": "Rex", "categoryId": 7}
        assert created.json() == pet
        assert fresh.client.get(created.headers["location"]).json() == pet
        assert fresh.client.get("/v1/pets").json() == [pet]

    def test_no_status_filter_matches_it(self, fresh: Live) -> None:
        fresh.client.post("/v1/pets", json={"name": "Rex", "categoryId": 7})
        for status in ("available", "pending", "sold"):
            assert fresh.client.get(f"/v1/pets?status={status}").json() == []

    @settings(max_examples=60)
    @given(name=st.text())
    @example(name="")
    @example(name="\x00")
    @example(name="a\u0000b\u2028\U0001f436 e\u0301\u202e\ufeff\uffff")
    @example(name='"\\/\b\f\n\r\t\x7f')
    @example(name="n" * 60_000)
    def test_a_name_is_returned_exactly_as_it_was_sent(self, service: Live, name: str) -> None:
        created = service.client.post("/v1/pets", json={"name": name, "categoryId": 7})
        assert created.status_code == 201
        assert created.json()["name"] == name
        assert service.client.get(created.headers["location"]).json()["name"] == name

    def test_unknown_properties_are_ignored(self, service: Live) -> None:
        body = {"name": "Rex", "categoryId": 7, "id": 5, "color": {"deep": [None, 1.5]}}
        pet = service.client.post("/v1/pets", json=body).json()
        assert set(pet) == {"id", "name", "categoryId"}

    def test_a_201_has_the_location(self, service: Live) -> None:
        created = service.client.post("/v1/pets", json={"name": "Rex", "categoryId": 7})
        assert created.headers["location"] == f"/v1/pets/{created.json()['id']}"


class TestDeprecation:
    @pytest.mark.parametrize(
        ("path", "key", "status"),
        [(None, True, 200), (None, False, 401), ("/v1/pets/0", True, 404)],
    )
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_every_response_of_get_pet_announces_it(
        self, fresh: Live, method: str, path: str | None, key: bool, status: int
    ) -> None:
        created = fresh.client.post("/v1/pets", json={"name": "Rex", "categoryId": 7})
        path = path or created.headers["location"]
        with fresh.anonymous() as anonymous:
            response = (fresh.client if key else anonymous).request(method, path)
        assert response.status_code == status
        assert response.headers["deprecation"] == "@1764892800"
        assert response.headers["sunset"] == "Thu, 05 Dec 2030 00:00:00 GMT"
        assert response.headers["link"] == '</v1/pets>; rel="successor-version"'

    def test_no_other_operation_does(self, service: Live) -> None:
        for method, path in OPERATIONS:
            if path != "/v1/pets/1":
                assert "deprecation" not in service.client.request(method, path).headers


class TestEveryResponse:
    @pytest.mark.parametrize(("method", "path"), PATHS)
    def test_it_has_a_new_request_id(self, service: Live, method: str, path: str) -> None:
        ids = {service.client.request(method, path).headers["x-request-id"] for _ in range(3)}
        assert len(ids) == 3

    @pytest.mark.parametrize(("method", "path"), PATHS)
    def test_it_has_the_clients_own_request_id(self, service: Live, method: str, path: str) -> None:
        own = "A.z_0-9" * 18
        response = service.client.request(method, path, headers={"X-Request-Id": own})
        assert response.headers.get_list("x-request-id") == [own]

    @pytest.mark.parametrize("odd", ["", "a b", "a" * 129, "a/b", "\u00e4", "a,b"])
    def test_a_malformed_request_id_is_replaced(self, service: Live, odd: str) -> None:
        response = service.client.get("/livez", headers=[(b"X-Request-Id", odd.encode("latin-1"))])
        assert response.headers["x-request-id"] not in ("", odd)

    def test_a_response_to_malformed_http_has_it_too(self, service: Live) -> None:
        response = service.raw(b"GET /livez HTTP/1.1\r\nX-Request-Id: without-host\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nx-request-id: without-host\r\n" in response

    @pytest.mark.parametrize(("method", "path"), PATHS)
    def test_under_v1_it_must_not_be_stored(self, service: Live, method: str, path: str) -> None:
        response = service.client.request(method, path)
        if path.startswith("/v1"):
            assert response.headers["cache-control"] == "no-store"
        else:
            assert "no-store" not in response.headers.get("cache-control", "")

    @pytest.mark.parametrize("key", [True, False])
    def test_an_unknown_path_is_404_with_or_without_a_key(self, service: Live, key: bool) -> None:
        with service.anonymous() as anonymous:
            client = service.client if key else anonymous
            for path in ("/v1", "/v2/pets", "/v1/store", "/v1/pets/1/2", "/nothing"):
                check_error(client.get(path), 404, "not_found")

    @pytest.mark.parametrize("key", [True, False])
    def test_an_unknown_method_is_405_with_or_without_a_key(self, service: Live, key: bool) -> None:
        with service.anonymous() as anonymous:
            response = (service.client if key else anonymous).delete("/v1/pets")
        check_error(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"


class TestOrderOfChecks:
    """After the key: 404, 415, 413, 400."""

    def test_the_media_type_comes_before_size_and_content(self, service: Live) -> None:
        response = service.client.post("/v1/pets", content=b"{" * 100_000)
        check_error(response, 415, "unsupported_media_type")

    def test_size_comes_before_content(self, service: Live) -> None:
        response = service.client.post(
            "/v1/pets", content=b"{" * 100_000, headers={"Content-Type": "application/json"}
        )
        check_error(response, 413, "payload_too_large")


class TestOtherPaths:
    @pytest.mark.parametrize("path", ["/livez", "/readyz"])
    def test_liveness_and_readiness_need_no_key(self, service: Live, path: str) -> None:
        with service.anonymous() as client:
            assert client.get(path).status_code == 200

    def test_the_document_needs_no_key(self, service: Live) -> None:
        with service.anonymous() as client:
            document = client.get("/openapi.json")
        assert document.headers["content-type"] == "application/json"
        assert document.json()["info"]["version"] == "1.0.0"

    def test_the_reference_refers_to_no_other_host(self, service: Live) -> None:
        with service.anonymous() as client:
            page = client.get("/docs")
            assert page.status_code == 200
            assert "//" not in page.text.replace("<!doctype", "")
            for part in ("swagger-ui.css", "swagger-ui-bundle.js", "reference.js"):
                assert f"docs/{part}" in page.text
                assert client.get(f"/docs/{part}").status_code == 200

    @pytest.mark.parametrize("name", ["swagger-ui-bundle.js", "reference.js", "reference.css"])
    def test_parts_of_the_reference_are_compressed_and_tagged(
        self, service: Live, name: str
    ) -> None:
        path = f"/docs/{name}"
        tags: dict[str | None, str] = {}
        for accepted, coding in (
            ("gzip, deflate, br", "gzip"),
            ("br, GZIP;q=0.5", "gzip"),
            ("identity", None),
            ("gzip;q=0", None),
            ("gzip; q=0.0", None),
            ("br", None),
        ):
            found = service.client.get(path, headers={"Accept-Encoding": accepted})
            assert found.headers.get("content-encoding") == coding
            assert found.headers["vary"] == "accept-encoding"
            assert len(found.content) > int(found.headers["content-length"]) or coding is None
            tag = tags.setdefault(coding, found.headers["etag"])
            assert tag == found.headers["etag"]
            for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
                headers = {"Accept-Encoding": accepted, "If-None-Match": known}
                again = service.client.get(path, headers=headers)
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["etag"] == tag
            headers = {"Accept-Encoding": accepted, "If-None-Match": '"x"'}
            assert service.client.get(path, headers=headers).status_code == 200
        assert tags["gzip"] != tags[None]
