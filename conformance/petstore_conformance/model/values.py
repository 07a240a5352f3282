"""Hostile values and sizes, from which the clauses and the machine draw."""

import hashlib
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import UNSET, UnsetType

from petstore.contract import MAX_ID, IdempotencyToken, NewPet, PetStatus, TokenRecord

PET_STATUSES: Final[tuple[PetStatus | UnsetType, ...]] = (*PetStatus, UNSET)

NAMES: Final = (
    *("", " ", "  Rex  ", "\tRex\n", "a b", "a  b", "a\r\nb", "\u00a0Rex\u3000"),  # white space
    *("Rex", "rex", "REX"),  # case
    *("\x00", "a\x00b", "Rex\x00", "\x00\x00", "\x01\x1f\x7f\x80"),  # control characters
    *("null", "None", "true", "nan", "-", "0", "007", "1", "1.0", "1e5", "0x1F", "9" * 25),
    *("%s", "%00", "50%", "a_b", "\\x00", "\\", "a\\", "a\\nb", "\\\\t", "%%", "$1", "${a}", "{0}"),
    *("'", "''", '"', "`", "''; DROP TABLE pets; --", "<b>&amp;</b>", "&lt;", "\\u0041", "%41"),
    *("\\0", "\\u0000", "a\\0b\\u0000", "\\U0001f436"),  # written as in a program, or in JSON
    *("a+b", "=1+1", '"Rex"', "'Rex'", "`Rex`", '\\"Rex\\"'),  # quoting
    *("{ps}", "*", "?", "[a]", "^a$", "a:b", "a,b", "a;b", "a|b", "a/b", "../a", "a=b", "#a"),
    *("available", "pending", "sold", "pets", "id", "b'Rex'", "\x1e\x1f", "key\tvalue"),
    *("\u00e9", "e\u0301", "\u212b", "\u00c5", "\ufb01", "\u2460"),  # normalization
    *("\u00c3\u00a9", "\u00e2\u20ac\u2122", "\u00ef\u00bb\u00bf"),  # like UTF-8 read as Latin-1
    *("\u1e9e", "\u00df", "ss", "\u0130", "\u0131", "\u03c2", "\uff32"),  # case folding
    *("\u2028\u2029", "\x85\x0b\x0c", "\u202eRex", "\u200b", "\ufeffRex", "\u00ad"),  # separators
    *("\ud7ff", "\ue000", "\ufdd0", "\ufffd", "\uffff"),  # around surrogates, and the last ones
    *("\U00010000", "\U0001f436", "\U0001f468\u200d\U0001f469", "\U0010ffff"),  # beyond 16 bits
    *("\u0e01\u0e33", "\u0627\u0644", "\uac00", "\u1100\u1161"),  # other scripts
    *("ab", "ba", "plumless", "buckeroo", "Rex 120", "Rex 201"),  # equal by sum, CRC-32, Adler-32
    *("costarring", "liquid", "Rex 25299", "Rex 37336"),  # FNV-1a, and four bytes of SHA-256,
    *("Rex 2932", "Rex 81905", "Rex 2082", "Rex 121489"),  # SHA-1 and MD5
)
"""Names that trimming, folding, quoting, separators, patterns, types or checksums may change."""

LONG_NAMES: Final = (
    *("n" * length for length in (63, 64, 127, 128, 255, 256, 300, 1024, 4096, 8191, 8192)),
    *("n" * 65_535, "n" * 70_000, "\u00e9" * 128, "\U0001f436" * 64, "\U0001f436" * 16_000),
    *("n" * 254 + "\u00e9", " " * 300, "n" * 299 + " "),
    *("n" * shift + "\U0001f436" * 17_000 for shift in range(4)),  # characters across any border
    "a\r\nb\r" * 20_000,
    *("".join(chr(32 + n**3 % 20_011) for n in range(length)) for length in (100, 1000, 20_000)),
)
"""Names at the borders of columns, buffers and length prefixes; the last do not compress."""

CATEGORIES: Final = (
    *(0, 1, -1, 7, 9, 10, 127, 128, -128, -129, 255, 256),
    *(2**15 - 1, 2**15, -(2**15) - 1, 2**16 - 1, 2**16, 10**5, 2**24 + 1),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**32 + 1),  # around 32 bits
    *(10**15, 10**15 + 1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1),  # what a double holds exactly
    *(10**18 + 1, 2**62 + 1, 2**63 - 2, 2**63 - 1, -(2**63), -(2**63) + 1),  # up to 64 bits
)
"""Categories that floats, narrower integers or text may change."""

HOSTILE_PETS: Final = (
    *(NewPet(name, n, PET_STATUSES[n % 4]) for n, name in enumerate((*NAMES, *LONG_NAMES))),
    *(NewPet(f"of {c}", c, PET_STATUSES[n % 4]) for n, c in enumerate(CATEGORIES)),
    *(NewPet("Rex", 7, status) for status in PET_STATUSES),
)
"""Pets with each of these names and categories, of every status and of none."""

AT: Final = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)  # for clauses that are not about times

TIMES: Final = (
    *(AT.replace(hour=hour, minute=hour * 2, microsecond=999 + 7 * hour) for hour in range(24)),
    *(
        datetime(year, month, 31, 23, 59, 59, microsecond, tzinfo=UTC)
        for year, month in ((1970, 1), (1999, 12), (2026, 3), (2026, 10), (2099, 12))
        for microsecond in (0, 1, 500_000, 999_999)
    ),
    *(datetime(2026, 3, 29, hour, 30, 0, 3, tzinfo=UTC) for hour in (0, 1, 2)),  # clocks change
    *(datetime(2026, 10, 25, hour, 30, 0, 5, tzinfo=UTC) for hour in (0, 1, 2)),
    *(datetime(2026, 6, 1, *time, tzinfo=UTC) for time in ((0, 0), (14, 0), (14, 30))),
    datetime(999, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1901, 12, 13, 20, 45, 51, 7, tzinfo=UTC),
    *(datetime(1970, 1, 1, microsecond=number, tzinfo=UTC) for number in (0, 1)),
    datetime(2024, 2, 29, 12, 0, 0, 100, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),  # seconds in 32 bits
    datetime(2106, 2, 7, 6, 28, 16, 1, tzinfo=UTC),
    datetime(2255, 6, 5, 23, 47, 34, 740_993, tzinfo=UTC),  # microseconds in a double
    datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    *(AT + timedelta(microseconds=10**power) for power in range(6)),
)
"""Times that floats, local time, 32 bits or text may change."""

_BASE: Final = bytes(range(160, 192))

DIGESTS: Final = (
    *(bytes(32), b"\xff" * 32, b"\n" * 32, b" " * 32, b"\0" * 31 + b"\n", b"{}" * 16, b"%s:*" * 8),
    *(b"token".ljust(32, b"\0"), b"token".ljust(32), b"Token".ljust(32), b"TOKEN".ljust(32, b"\0")),
    *(b"\r" * 32, b"\r\n" * 16, b"\n" * 16 + bytes(16), b"\n" * 16 + b" " * 16),  # ends of lines
    *(b"token" + end + pad * 26 for end in (b"\x1a", b"\0", b"\n", b"\r") for pad in (b"a", b"b")),
    *(b"0" * 32, b"-" + b"0" * 31, b"1" * 32, b"\x80" * 32),
    *(b"\xc3\xa9" * 16, b"\xed\xa0\x80  " * 6 + b"xx"),
    *(bytes(31 - at) + b"\x01" + bytes(at) for at in range(32)),
    *(b"\xff" * (31 - at) + b"\xfe" + b"\xff" * at for at in range(32)),
    *((int.from_bytes(_BASE) ^ 1 << bit).to_bytes(32) for bit in range(256) if bit % 8 in (0, 7)),
    *(b64decode(letter * 42 + "A=") for letter in "aBb"),
    *(bytes.fromhex(digits) for digits in ("1" * 64, "1" * 63 + "2", "0" * 62 + "1e", "1e" * 32)),
    _BASE,
)
"""Digests of 32 bytes: text, line ends, nulls, those that differ in one byte or one bit, those that
differ only in case as Base64, and those that are numbers in hexadecimal."""

BORDERS: Final = (
    *(1, 2, 3, 7, 9, 10, 11, 20, 21, 49, 50, 51, 63, 64, 65, 99, 100, 101, 127, 128, 129, 199, 200),
    *(201, 255, 256, 257, 499, 500, 501, 511, 512, 513, 999, 1000, 1001, 1023, 1024, 1025),
)
"""Sizes around which pages and calls may be cut into pieces."""

MANY: Final = 1300  # how many pets or tokens are stored, if `MANY_SECONDS` are enough for them

_ID_BORDERS: Final = (
    *(10**digits for digits in range(1, 16)),
    *(2**bits for bits in (7, 8, 15, 16, 24, 31, 32, 40, 48, 52, 53)),
    *(MAX_ID - 10**digits for digits in range(4)),
)
_NEAR_BORDERS: Final = {id_ + n for id_ in _ID_BORDERS for n in (-2, -1, 0, 1)}

IDS: Final = sorted(id_ for id_ in _NEAR_BORDERS if id_ <= MAX_ID)  # of every number of digits

NOW: Final = 4_000_000_000  # a caller's clock, in 2096: later than any that a backend may read
PAST: Final = 1_000_000_000  # another's, in 2001: earlier than any; it has just got a tenth digit

SPANS: Final = (
    *(1, 2, 3, 7, 10, 59, 60, 61, 3599, 3600, 3601, 40_000, 86_399, 86_401, 4_000_000),
    2**32 - NOW + 1,
)
"""The lifetimes of records, in seconds: the last one ends beyond 32 bits."""

DAY_SECONDS: Final = 24 * 60 * 60
REX: Final = NewPet("Rex", 7, PetStatus.AVAILABLE)


def absent_ids(*stored: int) -> list[int]:
    """Return ids that are not stored: low ones, high ones, and neighbors of the stored ones."""
    near = {id_ + distance for id_ in stored for distance in (-1, 1, 1000, 2**31, 2**32)}
    found = {1, 2, 5, 2**31, MAX_ID - 1, MAX_ID, *near} - {*stored}
    return sorted(id_ for id_ in found if 1 <= id_ <= MAX_ID)


def record_of(token: IdempotencyToken, id_: int) -> TokenRecord:
    """Return what a store must remember of a write that was assigned this id."""
    return TokenRecord(token.value, token.fingerprint, token.until, id_)


def make_token(
    name: str, payload: object, now: int = NOW, seconds: int = DAY_SECONDS
) -> IdempotencyToken:
    """Return a token whose value is the hash of a name.

    payload -- what has the fingerprint: mostly a `NewPet`, or the id of the pet that is ordered
    now -- the caller's clock, in seconds since 1970
    seconds -- after how many seconds its record expires
    """
    value = hashlib.sha256(name.encode()).digest()
    fingerprint = hashlib.sha256(repr(payload).encode()).digest()
    return IdempotencyToken(value, fingerprint, now, now + seconds)
