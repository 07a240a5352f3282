"""`petstore serve --dev FILE` begins with the pets and orders of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from petstore.exit_status import CONFIGURATION, INVALID_DATA
from tests.support.command import error_message, in_process
from tests.support.services import process

PETS = [
    {"id": 3, "name": "Rex", "categoryId": 7, "status": "pending"},
    {"id": 5, "name": "Ada", "categoryId": -1},
]
ORDERS = [{"id": 2, "petId": 3, "status": "placed", "placedAt": "2026-01-02T03:04:05.000006Z"}]
EXPORT = "".join(
    json.dumps({kind: item}) + "\n"
    for kind, items in (("pet", PETS), ("order", ORDERS))
    for item in items
)
END = '{"end":{"pets":2,"orders":1,"tokens":0}}\n'
OBJECT = json.dumps({"orders": ORDERS, "pets": PETS}, indent=2)


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        pytest.param(EXPORT + END, ORDERS, id="export"),
        pytest.param(EXPORT, ORDERS, id="lines", marks=pytest.mark.slow),
        pytest.param(OBJECT, ORDERS, id="object", marks=pytest.mark.slow),
        pytest.param(f"\n {json.dumps(PETS)}", [], id="array", marks=pytest.mark.slow),
    ],
)
def test_a_service_begins_with_what_a_file_has(tmp_path: Path, text: str, orders: Any) -> None:
    file = tmp_path / "pets.json"
    file.write_text(text)
    with process(tmp_path, "--dev", str(file)) as service:
        assert service.client.get("/v1/pets").json() == PETS
        assert service.client.get("/v1/store/orders").json() == orders
        added = service.client.post("/v1/pets", json={"name": "Tom", "categoryId": 1})
        assert added.json()["id"] == 6
        service.stop()
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (EXPORT.replace("Rex", 'R"x'), ", line 1", "JSON is malformed"),
        (EXPORT + EXPORT.replace("Ada", "Eve"), ", line 5", "its id is taken by"),
        (EXPORT.removesuffix("\n"), ", line 3", "it does not end with a line feed"),
        (END, ", line 1", "the export was cut off or changed"),
        ('[{"id": 1, "name": "Rex"}]', ", pets[0]", "pet.categoryId: required, but missing"),
        (json.dumps({"pets": [PETS[1], PETS[1] | {"id": 0}]}), ", pets[1]", "pet.id: expected"),
        (json.dumps({"pets": [], "orders": ORDERS}), ", orders[0]", "there is no pet 3"),
        ('[{"id": 1, "id": 1, "name": "", "categoryId": 1}]', "", "`id` is repeated"),
        ('{"pets": [], "pets": []}', "", "expected each member once, but `pets` is repeated"),
        ('{"pets": [{"id": 1,}]}', "", "JSON is malformed"),
        ('{"posts": []}', "", "`posts`"),
        ('{"pets": ' + "[" * 2000 + "]" * 2000 + "}", "", "expected at most 200 levels of nesting"),
        ("Rex\n", "", "expected NDJSON as petstore export writes it, an array of pets, or an obj"),
    ],
)
def test_the_place_of_a_mistake_is_named(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    file = tmp_path / "pets.json"
    file.write_text(text)
    error = error_message(in_process("serve", "--dev", str(file)), INVALID_DATA)
    assert error.startswith(f"petstore: {file}{place}: ")
    assert message in error


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file, path = str(tmp_path / "pets.json"), f"{tmp_path}/pets.sqlite"
    for arguments, settings, message in (
        (["--dev", file], {}, f"cannot read {file}: No such file or directory"),
        (["--dev", file], {"backend": "sqlite", "sqlite_path": path}, "petstore import"),
    ):
        assert message in error_message(in_process("serve", *arguments, **settings), CONFIGURATION)
    assert not list(tmp_path.iterdir())
