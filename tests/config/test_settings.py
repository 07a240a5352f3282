"""How settings are gathered, checked, converted and masked."""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from petstore.config import discovery
from petstore.config.addresses import Address
from petstore.config.errors import PREFIX, ConfigurationError, did_you_mean
from petstore.config.settings import Settings, convert, gather, is_secret, mask, settings_of

NAMES = [setting.name for setting in settings_of(Settings, PREFIX)]

texts = st.text() | st.binary().map(os.fsdecode)  # everything that an environment can hold


class Color(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Toy(Struct, frozen=True):
    """A field of every type that backends use."""

    path: str
    count: Annotated[int, Meta(ge=0, description="an integer from 0")] = 0
    ratio: float = 0.5
    sync: bool = False
    color: Color = Color.RED
    share: Annotated[float, Meta(ge=0.5, le=1)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=60, title="how long it waits")] = 1
    size: Annotated[int, Meta(ge=1, le=9)] = 1
    password: Annotated[str, Meta(min_length=3, description="three characters or more")] | None = (
        None
    )

    def __post_init__(self) -> None:
        if self.size != 1 != self.share:
            raise ValueError("size and share exclude each other")


class TestConvert:
    @pytest.mark.parametrize(
        ("field", "text", "value"),
        [
            ("path", " a b ", "a b"),
            ("path", "null", "null"),
            ("count", " 7 ", 7),
            ("ratio", "2", 2.0),
            ("sync", "True", True),
            ("sync", "0", False),
            ("color", "red", Color.RED),
            ("password", "hunter2", "hunter2"),
        ],
    )
    def test_text_is_converted_to_the_type_of_its_field(
        self, field: str, text: str, value: object
    ) -> None:
        toy = convert(Toy, "TOY_", {"TOY_PATH": "p", f"TOY_{field.upper()}": text})
        converted = getattr(toy, field)
        assert converted == value
        assert type(converted) is type(value)

    @pytest.mark.parametrize(
        ("field", "expected"),
        [
            ("ratio", "a valid value of Toy.ratio"),
            ("sync", "true or false"),
            ("color", "red, green or blue"),
            ("share", "a number from 0.5 to 1"),
            ("wait_seconds", "a number of seconds from 0 to 60"),
            ("size", "an integer from 1 to 9"),
        ],
    )
    def test_without_a_description_the_type_says_what_is_accepted(
        self, field: str, expected: str
    ) -> None:
        message = f"^TOY_{field.upper()} must be {expected}; it is 'x'$"
        with pytest.raises(ConfigurationError, match=message):
            convert(Toy, "TOY_", {"TOY_PATH": "p", f"TOY_{field.upper()}": "x"})

    def test_what_a_struct_refuses_itself_is_reported(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^TOY_\*: size and share exclude each other$"
        ):
            convert(Toy, "TOY_", {"TOY_PATH": "p", "TOY_SIZE": "2", "TOY_SHARE": "0.5"})

    @pytest.mark.parametrize("name", NAMES)
    @given(text=texts)
    @example(text="\udcff")
    @example(text="a..b:80")
    @example(text="9" * 5000)
    @example(text="\U00012544" * 5000)
    @example(text="line\nline")
    def test_any_text_gives_settings_or_a_message_of_one_line_that_names_the_setting(
        self, name: str, text: str
    ) -> None:
        try:
            Settings.read({name: text})
        except ConfigurationError as error:
            message = str(error)
            assert message.startswith(f"{name} must be ")
            assert len(message.splitlines()) == 1
            assert len(message) < 300

    @pytest.mark.parametrize("backend", ["redis", "postgres"])
    def test_the_range_of_a_number_is_the_described_one(self, backend: str) -> None:
        settings = discovery.find(backend).backend.settings
        info = msgspec.inspect.type_info(settings)
        assert isinstance(info, msgspec.inspect.StructType)
        numbers = 0
        for field in info.fields:
            match field.type:
                case msgspec.inspect.Metadata(
                    type=msgspec.inspect.IntType(ge=ge, le=le)
                    | msgspec.inspect.FloatType(ge=ge, le=le),
                    extra_json_schema={"description": str(description)},
                ):
                    numbers += 1
                    assert f"from {ge} to {le}" in description, field.name
        assert numbers


class TestGather:
    def test_a_file_may_begin_with_a_byte_order_mark_but_not_be_utf_16(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text("\ufeffPETSTORE_WORKERS = 2\r\n", "utf-8")
        assert gather({"PETSTORE_CONFIG": str(file)}, {}).values == {"PETSTORE_WORKERS": "2"}
        file.write_text("PETSTORE_WORKERS = 2\n", "utf-16")
        with pytest.raises(ConfigurationError, match=f"PETSTORE_CONFIG {file} is not UTF-8 text"):
            gather({"PETSTORE_CONFIG": str(file)}, {})

    def test_an_empty_variable_counts_as_not_set(self, tmp_path: Path) -> None:
        file = tmp_path / "petstore.toml"
        file.write_text("PETSTORE_WORKERS = 2\n")
        environ = {"PETSTORE_CONFIG": str(file), "PETSTORE_WORKERS": "", "PETSTORE_LOG": ""}
        assert gather(environ, {}).values == {"PETSTORE_WORKERS": "2"}
        assert gather({"PETSTORE_CONFIG": ""}, {}).values == {}

    @pytest.mark.parametrize("name", NAMES)
    def test_no_setting_has_a_name_that_kubernetes_injects(self, name: str) -> None:
        service = {"PETSTORE_PORT": "tcp://10.0.0.1:80"}
        assert gather(service | {name: "x"}, {}).injected == {*service}


class TestAddress:
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1", "2001:db8::8:800", "localhost", "a-1.b"])
    @pytest.mark.parametrize("port", [0, 65535])
    def test_a_host_is_an_address_or_a_name_and_ipv6_needs_brackets(
        self, host: str, port: int
    ) -> None:
        parsed = Address.parse(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        assert (parsed.host, parsed.port) == (host, port)

    @pytest.mark.parametrize(
        "text",
        [
            *("", "8000", ":8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1"),
            *("127.0.0.1:http", "::1:8000", "[::1]", "http://127.0.0.1:80", "a@b:80"),
            *("127.0.0.1:80/", "127.0.0.1 :80", "127.0.0.1:\u0663"),
        ],
    )
    def test_anything_else_is_refused_with_examples(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"HOST:PORT, .* or \[::1\]:8000"):
            Address.parse(text)

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
    def test_a_loopback_address_is_not_public(self, host: str) -> None:
        assert not Address.parse(f"{host}:80").is_public


class TestMask:
    parts = st.text(st.characters(min_codepoint=32, max_codepoint=126))

    @given(user=st.from_regex(r"[a-z]*", fullmatch=True), before=parts, after=parts)
    @example(user="me", before="a:", after="")
    @example(user="", before="a/", after="b")
    @example(user="", before="", after="@a")
    def test_any_password_in_a_url_is_masked(self, user: str, before: str, after: str) -> None:
        shown = mask("url", f"redis://{user}:{before}hunter2{after}@db.example:6379/0")
        assert shown == f"redis://{user}:***@db.example:6379/0"

    @pytest.mark.parametrize(
        "value",
        [
            "redis://db/0?password=hunter2",
            "postgresql://db/x?user=me&password=hunter2&a=b",
            "host=db password=hunter2 user=me",
        ],
    )
    def test_a_password_parameter_is_masked(self, value: str) -> None:
        assert mask("url", value) == value.replace("hunter2", "***")

    @pytest.mark.parametrize("field", ["password", "api_keys", "access_key", "token", "db_secret"])
    @given(value=st.text(min_size=1))
    def test_a_secret_field_is_masked(self, field: str, value: str) -> None:
        assert is_secret(field)
        assert mask(field, value) == "***"

    @pytest.mark.parametrize(
        ("field", "value", "shown"),
        [
            ("url", "redis://db.example:6379/0", "redis://db.example:6379/0"),
            ("url", "127.0.0.1:8000", "127.0.0.1:8000"),
            *((f, "/etc/petstore", "/etc/petstore") for f in ("path", "keyspace", "api_keys_file")),
            *(("count", 7, "7"), ("sync", True, "true"), ("sync", False, "false")),
            *((f, unset, "") for f in ("password", "path") for unset in (None, "")),
        ],
    )
    def test_other_values_are_shown_as_they_are_set(
        self, field: str, value: object, shown: str
    ) -> None:
        assert mask(field, value) == shown


class TestDidYouMean:
    @given(data=st.data(), name=st.sampled_from(NAMES))
    def test_a_name_that_lacks_a_letter_is_recognized(self, data: st.DataObject, name: str) -> None:
        index = data.draw(st.integers(len(PREFIX), len(name) - 1))
        word = name[:index] + name[index + 1 :]
        assert did_you_mean(word, NAMES) == f" Did you mean {name}?"

    @pytest.mark.parametrize("word", ["IMAGE", "ENV", "COLOR", "VERSION", "XYZZY", "TIMEOUT"])
    def test_a_name_that_resembles_no_other_gets_no_suggestion(self, word: str) -> None:
        assert did_you_mean(f"PETSTORE_{word}", NAMES) == ""
