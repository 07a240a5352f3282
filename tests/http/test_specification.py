"""The specification, line by line, over HTTP."""

import pytest

from tests.support.interface import OPERATIONS
from tests.support.pets import STATUSES
from tests.support.responses import check_error
from tests.support.services import KEY, OTHER_KEY, Live


class TestCreatePet:
    """POST /pets."""

    def test_a_pet_is_added_and_gets_an_id(self, service: Live) -> None:
        sent = {"name": "Rex", "categoryId": 7, "status": "available"}
        response = service.client.post("/v1/pets", json=sent)
        assert response.status_code == 201
        assert response.headers["content-type"] == "application/json"
        pet = response.json()
        assert type(pet["id"]) is int
        assert 1 <= pet["id"] <= 2**53 - 1
        assert pet == {"id": pet["id"], **sent}

    @pytest.mark.parametrize("status", STATUSES)
    def test_every_status_of_the_enumeration_is_accepted(self, service: Live, status: str) -> None:
        response = service.client.post(
            "/v1/pets", json={"name": "", "categoryId": 0, "status": status}
        )
        assert response.json()["status"] == status

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
            ("name", None),
            ("name", 1),
            ("name", ["Rex"]),
            ("categoryId", "1"),
            ("categoryId", True),
            ("categoryId", None),
            ("categoryId", 2**63),
            ("categoryId", -(2**63) - 1),
            ("categoryId", 2**64),
            ("categoryId", [1]),
            ("status", None),
            ("status", "Available"),
            ("status", "gone"),
            ("status", ""),
            ("status", 1),
        ],
    )
    def test_invalid_values_are_refused(self, service: Live, field: str, value: object) -> None:
        body = {"name": "Rex", "categoryId": 7, field: value}
        message = check_error(service.client.post("/v1/pets", json=body), 400, "invalid_request")
        assert field in message

    @pytest.mark.parametrize("value", [b"1.0", b"1e2", b"10E-1", b"-10792.0"])
    def test_a_number_with_fraction_or_exponent_is_not_a_category(
        self, service: Live, value: bytes
    ) -> None:
        response = service.client.post(
            "/v1/pets",
            content=b'{"name":"Rex","categoryId":' + value + b"}",
            headers={"Content-Type": "application/json"},
        )
        assert "categoryId" in check_error(response, 400, "invalid_request")

    @pytest.mark.parametrize("category", [2**63 - 1, -(2**63), 0, -1])
    def test_a_category_is_any_int64(self, service: Live, category: int) -> None:
        response = service.client.post("/v1/pets", json={"name": "Rex", "categoryId": category})
        assert response.json()["categoryId"] == category
        assert service.client.get(response.headers["location"]).json()["categoryId"] == category

    @pytest.mark.parametrize("body", ["[]", "1", '"Rex"', "null", "{}", "", "{", "nonsense"])
    def test_a_body_that_is_not_a_new_pet_is_refused(self, service: Live, body: str) -> None:
        response = service.client.post(
            "/v1/pets", content=body, headers={"Content-Type": "application/json"}
        )
        check_error(response, 400, "invalid_request")


class TestGetPet:
    """GET /pets/{petId}, deprecated."""

    def test_a_pet_is_read_by_its_id(self, service: Live) -> None:
        pet = service.client.post("/v1/pets", json={"name": "Ida", "categoryId": 3}).json()
        response = service.client.get(f"/v1/pets/{pet['id']}")
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == pet

    def test_an_unknown_pet_is_404(self, service: Live) -> None:
        check_error(service.client.get("/v1/pets/9007199254740991"), 404, "not_found")


class TestListPets:
    """GET /pets."""

    def test_the_body_is_an_array_of_pets(self, fresh: Live) -> None:
        assert fresh.client.get("/v1/pets").json() == []
        pets = [
            fresh.client.post("/v1/pets", json={"name": f"{n}", "categoryId": n}).json()
            for n in range(3)
        ]
        response = fresh.client.get("/v1/pets")
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == sorted(pets, key=lambda pet: int(pet["id"]))

    def test_a_page_has_20_pets_unless_limit_is_set(self, fresh: Live) -> None:
        for n in range(101):
            fresh.client.post("/v1/pets", json={"name": f"{n}", "categoryId": n})
        assert len(fresh.client.get("/v1/pets").json()) == 20
        for limit in (1, 99, 100):
            assert len(fresh.client.get(f"/v1/pets?limit={limit}").json()) == limit

    @pytest.mark.parametrize("limit", ["0", "101", "-1", "1000000000000000000000"])
    def test_limit_is_between_1_and_100(self, service: Live, limit: str) -> None:
        message = check_error(service.client.get(f"/v1/pets?limit={limit}"), 400, "invalid_request")
        assert "limit" in message

    def test_status_selects_only_pets_of_that_status(self, fresh: Live) -> None:
        for n, status in enumerate((*STATUSES, None) * 5):
            body = {"name": f"{n}", "categoryId": n} | ({"status": status} if status else {})
            fresh.client.post("/v1/pets", json=body)
        for status in STATUSES:
            found = fresh.client.get(f"/v1/pets?status={status}&limit=100").json()
            assert [pet["status"] for pet in found] == [status] * 5


class TestListOrders:
    """GET /store/orders exists. The decisions about it: test_orders.py."""

    def test_it_returns_an_array(self, service: Live) -> None:
        response = service.client.get("/v1/store/orders")
        assert response.status_code == 200
        assert isinstance(response.json(), list)


class TestAuthentication:
    """Every operation checks the API key before anything else."""

    @pytest.mark.parametrize(("method", "path"), OPERATIONS)
    def test_a_missing_key_is_401(self, service: Live, method: str, path: str) -> None:
        with service.anonymous() as client:
            response = client.request(method, path)
        check_error(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == 'Bearer realm="petstore"'

    @pytest.mark.parametrize(("method", "path"), OPERATIONS)
    def test_an_invalid_key_is_401(self, service: Live, method: str, path: str) -> None:
        with service.anonymous() as client:
            response = client.request(method, path, headers={"Authorization": "Bearer wrong"})
        check_error(response, 401, "unauthorized")
        assert (
            response.headers["www-authenticate"] == 'Bearer realm="petstore", error="invalid_token"'
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
            response = client.get("/v1/pets", headers={"Authorization": scheme + service.key})
        assert response.status_code == 200

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "Bearer",
            "Basic dGVzdDp0ZXN0",
            KEY,
            f"Bearer{KEY}",
            f"Bearer {KEY} extra",
            f"Bearer {KEY},",
            f"Token {KEY}",
            "Bearer \u00e4",
        ],
    )
    def test_odd_values_are_401(self, service: Live, value: str) -> None:
        with service.anonymous() as client:
            response = client.get("/v1/pets", headers=[(b"Authorization", value.encode("latin-1"))])
        check_error(response, 401, "unauthorized")

    def test_two_authorization_headers_are_401(self, service: Live) -> None:
        good = ("Authorization", f"Bearer {service.key}")
        with service.anonymous() as client:
            check_error(client.get("/v1/pets", headers=[good, good]), 401, "unauthorized")

    def test_several_keys_are_valid_at_once(self, service: Live) -> None:
        with service.anonymous() as client:
            for key in (KEY, OTHER_KEY):
                response = client.get("/v1/pets", headers={"Authorization": f"Bearer {key}"})
                assert response.status_code == 200

    def test_an_unauthenticated_body_is_not_read(self, service: Live) -> None:
        head = b"POST /v1/pets HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n"
        response = service.raw(head + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 401 ")  # and not 100: the body is not read
