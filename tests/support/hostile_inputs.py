"""Values that no operation accepts: in bodies, in paths and in queries."""


def pet_body(more: bytes = b"", name: bytes = b'"Rex"', category: bytes = b"7") -> bytes:
    """Return the body of a pet; name and category are sent as they are."""
    return b'{"name":%s,"categoryId":%s%s}' % (name, category, more)


_GOOD = pet_body()

BAD_VALUES = [
    *(b'"\xff"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"'),
    *(rb'"\ud800"', rb'"\udc00"', rb'"\ud800\u0041"', rb'"\udc00\ud800"', rb'"\ud800x"'),
    *(rb'"\x41"', rb'"\u1"', b'"\x00"', b'"\n"', b"'a'", b'"a', b"a", b"NaN", b"Infinity"),
    *(b"-Infinity", b"01", b"+1", b".5", b"1.", b"0x1", b"\xd9\xa1"),
]
NON_INTEGERS = [b"9" * 5000, b"-" + b"9" * 5000, b"1e5000", b"0." + b"1" * 5000, b"1e0", b"-0.0"]

BAD_BODIES = [
    *(pet_body(category=value) for value in NON_INTEGERS),
    *(_GOOD.decode().encode(f"utf-{code}") for code in ("8-sig", "16", "16-le", "16-be", "32")),
    *(_GOOD * 2, _GOOD + b"x", _GOOD + b"\x00", b"/**/" + _GOOD, b"\x0c" + _GOOD, b"\xa0" + _GOOD),
    pet_body(b","),
    pet_body(b',"x"'),
    pet_body(b',"name":1'),
    pet_body(b',"categoryId":1.0'),
    _GOOD[:-1],
    *(b"", b" ", b"{", b"{}", b"[]", b"1", b'"Rex"', b"null", b"nonsense"),
]

ODD_IDS = [
    *("0", "-1", "+1", "%2B1", "01", "1_0", "%201", "1%20", "1%00", "1%0a", "%31", "1%2F..", "1.0"),
    *("1e0", "0x1", "1,2", "1;x", "..", "%2e%2e", "%D9%A1", "%FF", "%zz", "%", "null"),
    *("{pet_id:str}", "*", "a" * 1000, "1" * 1000),
    *(str(2**n) for n in (53, 63, 64)),
]

BAD_QUERIES = [
    *(
        f"limit={text}"
        for text in (
            *("", "0", "101", "-1", "1.0", "1e1", "+5", "%2B5", "%205", "5%20", "%D9%A3", "05"),
            *("0x5", "1_0", "5%00", "5;x", "5,5", "null", "true", "%EF%BC%95", "5%0A", "1" * 5000),
        )
    ),
    "limit",
    *(
        f"status={text}"
        for text in (
            *("", "null", "Sold", "sold%20", "sold,pending", "sold%00", "undefined", "s" * 5000),
        )
    ),
    *(
        f"cursor={text}"
        for text in (
            *("", "1", "p", "p0", "null", "p" + "g" * 14, "%70" * 5000),
            *("p0000000000000", "p000000000000001", "p2fffffffffffff", "P00000000000001"),
            *("p0000000000000A", "p00000000000001%00", "p0000000000000%D9%A1"),
            *("%20p00000000000001", "p00000000000001%0A"),
        )
    ),
    "limit=1&limit=1",
    "status=sold&status=sold",
    "cursor=&cursor=",
    "limit=1&%6Cimit=1",
    "x=%",
    "x=%4",
    "x=%zz",
    "%zz=x",
    "x=%u0041",
    "x=%FF",
    "%FF=x",
    "x=%C0%AF",
    "x=%ED%A0%80",
    "x=%E2%82",
]
