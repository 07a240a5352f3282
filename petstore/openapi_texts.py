"""What the OpenAPI document says that no code can tell: descriptions, meanings and examples."""

from typing import Any, Final

DESCRIPTION: Final = """The animals of a pet store.

**Keys.** Every operation needs an API key: `Authorization: Bearer <API_KEY>`.

**Pages.** A list is a plain array. A page that has a successor carries a `Link` header with
`rel="next"`: follow it as it is until a page has none.

**Errors.** Every error is an `Error`; decide by its `code`. After 503, wait for the seconds that
`Retry-After` says.

**Retries.** Send an `Idempotency-Key` of your own with a `POST`, such as a UUID, and repeat the
request with the same key as often as you need: it takes effect once. For 24 hours the first answer
comes again, with `Idempotency-Replayed: true`.

**Requests.** Every answer carries an `X-Request-Id`: your own, if you sent one, or a fresh one.
Quote it when you report a problem.

**Deprecation.** An operation that is to be removed says so in `Deprecation` and `Sunset` headers.
"""

KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key; here without the word Bearer.",
}

TAGS: Final = {
    "Pets": "The animals: list them, add one, read one.",
    "Store": "Orders of animals. Experimental: operations of this group may still change.",
}

EXAMPLES: Final = {
    "NewPet": {"name": "Rex", "categoryId": 7, "status": "available"},
    "Pet": {"id": 1, "name": "Rex", "categoryId": 7, "status": "available"},
    "NewOrder": {"petId": 1},
    "OrderUpdate": {"status": "completed"},
    "Order": {"id": 1, "petId": 1, "status": "placed", "placedAt": "2026-11-21T09:30:00.123456Z"},
}

ERROR_EXAMPLES: Final = {
    400: "limit: expected a whole number from 1 to 100.",
    401: "The API key is not valid.",
    404: "This animal does not exist.",
    409: "This animal is not available.",
    413: "body: expected at most 65536 bytes.",
    415: "Content-Type: expected application/json.",
    500: "The service failed. Its log has the cause under this X-Request-Id.",
    503: "The storage cannot be reached. Try again.",
}

MEANINGS: Final = {
    200: "What was asked for",
    201: "Added",
    400: "The body or the query string is wrong; the message names the field",
    401: "The API key is missing or invalid",
    404: "It does not exist",
    409: "What is there does not permit it; or the Idempotency-Key came with another body before",
    413: "The body is too large",
    415: "The body is not declared as application/json",
    500: "A fault of the service",
    503: "The storage cannot be reached, or the service is overloaded or stopping",
}

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Any text of yours, such as a UUID: repeated with it, the request takes effect"
    " once. A key is known for 24 hours, to you and for this operation only.",
    "schema": {
        "type": "string",
        "pattern": "^[!-~]{1,255}$",
        "examples": ["6f1a1f0e-6c0f-4e43-9d2a-2f0f5a3c7f11"],
    },
}

HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "X-Request-Id": (
        "The request's id: the client's own, or a fresh one",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    ),
    "Cache-Control": ("Answers are not to be stored", {"type": "string", "const": "no-store"}),
    "WWW-Authenticate": ("The challenge (RFC 6750)", {"type": "string"}),
    "Retry-After": ("Seconds to wait (RFC 9110)", {"type": "string", "pattern": "^[0-9]+$"}),
    "Location": ("Where what was added can be read", {"type": "string", "format": "uri-reference"}),
    "Idempotency-Replayed": (
        "The answer is that of an earlier request with this Idempotency-Key",
        {"type": "string", "const": "true"},
    ),
    "Link": ("Related resources (RFC 8288), on a page the next one", {"type": "string"}),
    "Deprecation": (
        "Since when the operation is deprecated (RFC 9745)",
        {"type": "string", "pattern": "^@[0-9]+$"},
    ),
    "Sunset": ("When the operation is to be removed (RFC 8594)", {"type": "string"}),
}
