"""The written interface, line by line, over HTTP."""

import httpx
import pytest

from tests.live import Live

SORTED_STATUSES = ("available", "pending", "sold")


def check_error(answer: httpx.Response, status: int, code: str) -> str:
    """Check that an answer is the documented error and nothing else; return its message."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"code", "message", "status"}
    assert body["code"] == code
    assert body["status"] == status
    assert isinstance(body["message"], str)
    assert body["message"]
    return str(body["message"])


class TestCreatePet:
    """POST /pets."""

    def test_an_animal_is_added_and_gets_an_id(self, service: Live) -> None:
        sent = {"name": "Rex", "categoryId": 7, "status": "available"}
        answer = service.client.post("/v1/pets", json=sent)
        assert answer.status_code == 201
        assert answer.headers["content-type"] == "application/json"
        pet = answer.json()
        assert type(pet["id"]) is int
        assert 1 <= pet["id"] <= 2**53 - 1
        assert pet == {"id": pet["id"], **sent}

    @pytest.mark.parametrize("status", SORTED_STATUSES)
    def test_every_status_of_the_enumeration_is_taken(self, service: Live, status: str) -> None:
        answer = service.client.post(
            "/v1/pets", json={"name": "", "categoryId": 0, "status": status}
        )
        assert answer.json()["status"] == status

    def test_ids_are_unique(self, service: Live) -> None:
        ids = [
            service.client.post("/v1/pets", json={"name": "n", "categoryId": 1}).json()["id"]
            for _ in range(50)
        ]
        assert len(set(ids)) == 50

    @pytest.mark.parametrize("missing", ["name", "categoryId"])
    def test_name_and_category_must_be_present(self, service: Live, missing: str) -> None:
        body = {"name": "Rex", "categoryId": 7}
        del body[missing]
        message = check_error(service.client.post("/v1/pets", json=body), 400, "invalid_request")
        assert missing in message

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", None), ("name", 1), ("name", ["Rex"]),
            ("categoryId", "1"), ("categoryId", True), ("categoryId", None),
            ("categoryId", 2**63), ("categoryId", -(2**63) - 1), ("categoryId", 2**64),
            ("categoryId", [1]),
            ("status", None), ("status", "Available"), ("status", "gone"), ("status", ""),
            ("status", 1),
        ],
    )  # fmt: skip
    def test_invalid_values_are_refused(self, service: Live, field: str, value: object) -> None:
        body = {"name": "Rex", "categoryId": 7, field: value}
        message = check_error(service.client.post("/v1/pets", json=body), 400, "invalid_request")
        assert field in message

    @pytest.mark.parametrize("number", [b"1.0", b"1e2", b"10E-1", b"-10792.0"])
    def test_a_number_with_fraction_or_exponent_is_no_category(
        self, service: Live, number: bytes
    ) -> None:
        answer = service.client.post(
            "/v1/pets",
            content=b'{"name":"Rex","categoryId":' + number + b"}",
            headers={"Content-Type": "application/json"},
        )
        assert "categoryId" in check_error(answer, 400, "invalid_request")

    @pytest.mark.parametrize("category", [2**63 - 1, -(2**63), 0, -1])
    def test_a_category_is_any_int64(self, service: Live, category: int) -> None:
        answer = service.client.post("/v1/pets", json={"name": "Rex", "categoryId": category})
        assert answer.json()["categoryId"] == category
        assert service.client.get(answer.headers["location"]).json()["categoryId"] == category

    @pytest.mark.parametrize("body", ["[]", "1", '"Rex"', "null", "{}", "", "{", "nonsense"])
    def test_a_body_that_is_no_new_pet_is_refused(self, service: Live, body: str) -> None:
        answer = service.client.post(
            "/v1/pets", content=body, headers={"Content-Type": "application/json"}
        )
        check_error(answer, 400, "invalid_request")


class TestGetPet:
    """GET /pets/{petId}, deprecated."""

    def test_an_animal_is_read_by_its_id(self, service: Live) -> None:
        pet = service.client.post("/v1/pets", json={"name": "Ida", "categoryId": 3}).json()
        answer = service.client.get(f"/v1/pets/{pet['id']}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == pet

    def test_an_animal_that_does_not_exist_is_404(self, service: Live) -> None:
        check_error(service.client.get("/v1/pets/9007199254740991"), 404, "not_found")


class TestListPets:
    """GET /pets."""

    def test_the_body_is_an_array_of_animals(self, fresh: Live) -> None:
        assert fresh.client.get("/v1/pets").json() == []
        pets = [
            fresh.client.post("/v1/pets", json={"name": f"{n}", "categoryId": n}).json()
            for n in range(3)
        ]
        answer = fresh.client.get("/v1/pets")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == sorted(pets, key=lambda pet: int(pet["id"]))

    def test_a_page_has_20_animals_unless_asked_otherwise(self, fresh: Live) -> None:
        for n in range(101):
            fresh.client.post("/v1/pets", json={"name": f"{n}", "categoryId": n})
        assert len(fresh.client.get("/v1/pets").json()) == 20
        for limit in (1, 99, 100):
            assert len(fresh.client.get(f"/v1/pets?limit={limit}").json()) == limit

    @pytest.mark.parametrize("limit", ["0", "101", "-1", "1000000000000000000000"])
    def test_limit_is_between_1_and_100(self, service: Live, limit: str) -> None:
        message = check_error(service.client.get(f"/v1/pets?limit={limit}"), 400, "invalid_request")
        assert "limit" in message

    def test_status_selects_animals_of_that_status_only(self, fresh: Live) -> None:
        for n, status in enumerate((*SORTED_STATUSES, None) * 5):
            body = {"name": f"{n}", "categoryId": n} | ({"status": status} if status else {})
            fresh.client.post("/v1/pets", json=body)
        for status in SORTED_STATUSES:
            found = fresh.client.get(f"/v1/pets?status={status}&limit=100").json()
            assert [pet["status"] for pet in found] == [status] * 5


class TestListOrders:
    """GET /store/orders exists. What was decided about it: test_store.py."""

    def test_it_answers_an_array(self, service: Live) -> None:
        answer = service.client.get("/v1/store/orders")
        assert answer.status_code == 200
        assert isinstance(answer.json(), list)


OPERATIONS = [
    ("GET", "/v1/pets"), ("POST", "/v1/pets"), ("GET", "/v1/pets/1"), ("GET", "/v1/store/orders"),
    ("POST", "/v1/store/orders"), ("GET", "/v1/store/orders/1"), ("PATCH", "/v1/store/orders/1"),
]  # fmt: skip


class TestAuthentication:
    """Every operation asks for an API key, before it looks at anything else."""

    @pytest.mark.parametrize(("method", "path"), OPERATIONS)
    def test_a_missing_key_is_401(self, service: Live, method: str, path: str) -> None:
        with service.anonymous() as client:
            answer = client.request(method, path)
        check_error(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == 'Bearer realm="petstore"'

    @pytest.mark.parametrize(("method", "path"), OPERATIONS)
    def test_an_invalid_key_is_401(self, service: Live, method: str, path: str) -> None:
        with service.anonymous() as client:
            answer = client.request(method, path, headers={"Authorization": "Bearer wrong"})
        check_error(answer, 401, "unauthorized")
        assert (
            answer.headers["www-authenticate"] == 'Bearer realm="petstore", error="invalid_token"'
        )

    @pytest.mark.parametrize(
        ("method", "path", "extra"),
        [
            ("GET", "/v1/pets/nonsense", {}),
            ("GET", "/v1/pets?limit=0", {}),
            ("GET", "/v1/pets?%zz", {}),
            ("POST", "/v1/pets", {"content": b"{"}),
            ("POST", "/v1/pets", {"content": b"x" * 100_000}),
            ("POST", "/v1/pets", {"headers": {"Idempotency-Key": "a b"}}),
            ("GET", "/v1/store/orders?limit=0", {}),
            ("POST", "/v1/store/orders", {"content": b"{"}),
            ("GET", "/v1/store/orders/nonsense", {}),
            ("PATCH", "/v1/store/orders/nonsense", {"content": b"{"}),
            ("PATCH", "/v1/store/orders/1", {"content": b"x" * 100_000}),
        ],
    )
    def test_it_comes_before_path_query_and_body(
        self, service: Live, method: str, path: str, extra: dict[str, object]
    ) -> None:
        with service.anonymous() as client:
            check_error(client.request(method, path, **extra), 401, "unauthorized")  # type: ignore[arg-type]

    @pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer    "])
    def test_the_scheme_is_case_insensitive(self, service: Live, scheme: str) -> None:
        with service.anonymous() as client:
            answer = client.get("/v1/pets", headers={"Authorization": scheme + service.key})
        assert answer.status_code == 200

    @pytest.mark.parametrize(
        "value",
        ["", "Bearer", "Basic dGVzdDp0ZXN0", "test-key", "Bearertest-key",
         "Bearer test-key extra", "Bearer test-key,", "Token test-key", "Bearer \u00e4"],
    )  # fmt: skip
    def test_odd_values_are_401(self, service: Live, value: str) -> None:
        with service.anonymous() as client:
            answer = client.get("/v1/pets", headers=[(b"Authorization", value.encode("latin-1"))])
        check_error(answer, 401, "unauthorized")

    def test_two_authorization_fields_are_401(self, service: Live) -> None:
        good = ("Authorization", f"Bearer {service.key}")
        with service.anonymous() as client:
            check_error(client.get("/v1/pets", headers=[good, good]), 401, "unauthorized")

    def test_several_keys_are_valid_at_once(self, service: Live) -> None:
        with service.anonymous() as client:
            for key in ("test-key", "other-test-key"):
                answer = client.get("/v1/pets", headers={"Authorization": f"Bearer {key}"})
                assert answer.status_code == 200

    def test_an_unauthenticated_body_is_not_read(self, service: Live) -> None:
        head = b"POST /v1/pets HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n"
        answer = service.raw(head + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")  # and not 100: nobody waits for the body
