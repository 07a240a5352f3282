"""Packed commands: a template makes the same bytes as packing the whole command."""

import pytest
from petstore_redis.packing import pack, sized, template


@pytest.mark.parametrize("value", [b"", b"7", b"%d%%\r\n\0", b"x" * 100_000])
def test_a_filled_template_is_the_packed_command(value: bytes) -> None:
    made = template("EVAL", "return '%d%%'", None, "1", None)
    assert made % sized(value, b"\xff") == pack("EVAL", "return '%d%%'", value, 1, b"\xff")


@pytest.mark.parametrize("values", [(), (1, b"x"), (1, b"x") * 3])
def test_a_template_refuses_another_number_of_arguments(values: tuple[int | bytes, ...]) -> None:
    with pytest.raises(TypeError):
        assert template("GET", None, None) % values
