"""The specification, over HTTP. What it says of pets and orders, the kit tests over HTTP, too."""

import pytest

from tests.support.interface import OPERATIONS, PETS
from tests.support.pets import add_pets
from tests.support.raw_http import AUTHORIZED, JSON, each, request
from tests.support.responses import check_error
from tests.support.services import KEY, Live


class TestCreatePet:
    @pytest.mark.parametrize(
        ("field", "values"),
        [
            ("name", ["", "null", "1", '["Rex"]']),
            ("categoryId", ["", '"1"', "true", "null", "[1]", "1.0", "1e2", "10E-1", "-10792.0"]),
            ("categoryId", [str(2**63), str(-(2**63) - 1), str(2**64)]),
            ("status", ["null", '"Available"', '"gone"', '""', "1"]),
        ],
    )
    def test_missing_and_invalid_values_are_refused(
        self, service: Live, field: str, values: list[str]
    ) -> None:
        for value in values:
            fields = {"name": '"Rex"', "categoryId": "7"} | {field: value}
            body = ",".join(f'"{name}":{text}' for name, text in fields.items() if text)
            response = request(service, f"POST {PETS}", JSON, body=f"{{{body}}}".encode())
            assert f"body.{field}:" in check_error(response, 400, "invalid_request")


def test_a_page_has_20_pets_unless_limit_is_set(fresh: Live) -> None:
    add_pets(fresh, 101)
    for query, size in (("", 20), ("?limit=1", 1), ("?limit=99", 99), ("?limit=100", 100)):
        assert len(fresh.client.get(f"{PETS}{query}").json()) == size


class TestAuthentication:
    """Every operation checks the API key before anything else."""

    @pytest.mark.parametrize(
        ("key", "parameters"), [("", ""), ("Authorization: Bearer x", ', error="invalid_token"')]
    )
    def test_without_a_valid_key_it_is_401_with_a_challenge(
        self, service: Live, key: str, parameters: str
    ) -> None:
        for method, path in OPERATIONS:
            response = request(service, f"{method} {path}", key=key)
            check_error(response, 401, "unauthorized")
            challenge = f'Bearer realm="petstore"{parameters}'
            assert response.headers["www-authenticate"] == challenge

    @each("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer    "])
    def test_the_scheme_is_case_insensitive(self, service: Live, scheme: str) -> None:
        key = f"Authorization: {scheme}{KEY}"
        assert request(service, f"GET {PETS}", key=key).status_code == 200

    @each(
        "value",
        [
            *("", "Bearer", KEY, f"Bearer{KEY}", f"Bearer:{KEY}", f"Bearer\t{KEY}"),
            *(f"Basic {KEY}", f"Token {KEY}", f"Bearer {KEY} extra", f"Bearer {KEY},"),
            *(f'Bearer "{KEY}"', f"Bearer {KEY.upper()}", f"Bearer {KEY}, Bearer {KEY}"),
            *("Bearer \u00e4", f"Bearer \u00a0{KEY}", "Bearer " + "x" * 20_000),
            *(f"Bearer {KEY}\r\nAuthorization:", f"Bearer {KEY}\r\n{AUTHORIZED}"),
            *(f"\r\n{AUTHORIZED}", f"\r\nProxy-{AUTHORIZED}"),
        ],
    )
    def test_an_odd_value_is_401(self, service: Live, value: str) -> None:
        key = f"Authorization: {value}"
        assert request(service, f"GET {PETS}?access_token={KEY}", key=key).status_code == 401
