"""docs/size.md shows what was measured: its tables are those of benchmarks/growth.json."""

import re

import msgspec
import pytest

from benchmarks import curves, sizing
from benchmarks.growth import QUESTIONS, TITLES
from tests.support.documents import ROOT

POINTS = msgspec.json.decode(curves.KEPT.read_bytes(), type=list[curves.Point])
SIZE = (ROOT / "docs/size.md").read_text()
TABLES = {question: curves.tables(POINTS, question) for question in QUESTIONS}
NEEDS = sizing.needs(POINTS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_has_its_tables_and_its_picture(question: str) -> None:
    assert TABLES[question]
    for table in TABLES[question]:
        assert f"\n{table}\n" in SIZE
    assert f"(growth/{question}.svg)" in SIZE
    picture = curves.picture(POINTS, question, TITLES[question])
    assert (curves.PICTURES / f"{question}.svg").read_text() == picture


def test_what_a_deployment_needs_is_computed_from_what_was_measured() -> None:
    assert f"\n{NEEDS}\n" in SIZE


def test_no_other_table_of_the_page_has_figures() -> None:
    rest = SIZE
    for table in (NEEDS, *(table for tables in TABLES.values() for table in tables)):
        rest = rest.replace(table, "")
    rows = [row.replace("503", "") for row in re.findall(r"^\|.*", rest, re.MULTILINE)]
    assert [row for row in rows if re.search(r"\d\d", row)] == []


def test_the_page_names_each_date_and_commit() -> None:
    for point in POINTS:
        assert point.date in SIZE
        assert point.commit.partition(" ")[0] in SIZE


@pytest.mark.parametrize(
    ("backend", "pattern"),
    [
        ("memory", r"a pet takes\s+about (\d+) bytes"),
        ("postgres", r"names of 8 bytes \| (\d+) bytes each"),
    ],
)
def test_the_bytes_of_a_pet_agree_with_the_page_of_the_backend(backend: str, pattern: str) -> None:
    (said,) = re.findall(pattern, (ROOT / f"backends/{backend}/README.md").read_text())
    measured = curves.total(sizing.largest(POINTS, backend).figures["bytes a pet"])
    assert abs(int(said) - measured) < 10
