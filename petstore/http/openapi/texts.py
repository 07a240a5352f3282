"""The texts of the OpenAPI document that are not generated: descriptions, messages, examples."""

from typing import Any, Final

from petstore.contract import TokenReusedError, UnavailableError
from petstore.http.errors import (
    INTERNAL,
    KEY_INVALID,
    KEY_MISSING,
    NOT_JSON,
    ORDER_NOT_PLACED,
    OVER_RATE_LIMIT,
    OVER_SLOTS,
    PET_NOT_AVAILABLE,
    SERVICE_STOPPING,
    TABLE,
)
from petstore.http.headers import REQUEST_ID_PATTERN
from petstore.http.idempotency import KEY_PATTERN

KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key; enter it without the word Bearer.",
}

TAGS: Final = {
    "Pets": "Pets: list them, add one, read one.",
    "Store": "Orders of pets. Experimental: operations of this group may still change.",
}

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "NewPet": {"name": "Rex", "categoryId": 7, "status": "available"},
    "Pet": {"id": 1, "name": "Rex", "categoryId": 7, "status": "available"},
    "OrderPlacement": {"petId": 1},
    "OrderUpdate": {"status": "completed"},
    "Order": {"id": 1, "petId": 1, "status": "placed", "placedAt": "2026-11-21T09:30:00.123456Z"},
}
"""An example of each schema."""

REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "createPet": {
        "with a status": EXAMPLES["NewPet"],
        "without a status": {"name": "Ida", "categoryId": 3},
    },
    "updateOrder": {"complete it": EXAMPLES["OrderUpdate"], "cancel it": {"status": "cancelled"}},
}
"""The request bodies of operations for which one example is not enough."""

RESPONSES: Final[dict[str, Any]] = {
    "listPets": [EXAMPLES["Pet"], {"id": 2, "name": "Ida", "categoryId": 3}],
    "listOrders": [EXAMPLES["Order"]],
    "updateOrder": EXAMPLES["Order"] | EXAMPLES["OrderUpdate"],
}
"""The responses of operations for which the example of the schema does not fit."""

_NO_PET: Final = {"unknown": "Pet not found."}
_NO_ORDER: Final = {"unknown": "Order not found."}
_KEY_REUSED: Final = {"Idempotency-Key": TABLE[TokenReusedError][1]}

MESSAGES: Final[dict[int, dict[str, str]]] = {
    401: {"missing": KEY_MISSING, "invalid": KEY_INVALID},
    413: {"size": "body: expected at most 65536 bytes."},
    415: {"media type": NOT_JSON},
    429: {"rate": OVER_RATE_LIMIT},
    500: {"bug": INTERNAL[1]},
    503: {"storage": TABLE[UnavailableError][1], "overload": OVER_SLOTS, "stop": SERVICE_STOPPING},
}
"""The messages of each status, by cause."""

OPERATION_MESSAGES: Final[dict[str, dict[int, dict[str, str]]]] = {
    "createPet": {
        400: {
            "missing": "body.name: required, but missing.",
            "type": "body.categoryId: expected an integer, got a string.",
            "repeated": "body: expected each member once, but `name` is repeated.",
            "status": "body.status: expected one of `available`, `pending`, `sold`.",
        },
        409: _KEY_REUSED,
    },
    "getPet": {404: _NO_PET},
    "placeOrder": {
        400: {
            "missing": "body.petId: required, but missing.",
            "type": "body.petId: expected an integer, got a string.",
        },
        404: _NO_PET,
        409: {"pet": PET_NOT_AVAILABLE, **_KEY_REUSED},
    },
    "getOrder": {404: _NO_ORDER},
    "updateOrder": {
        400: {
            "missing": "body.status: required, but missing.",
            "status": "body.status: expected one of `cancelled`, `completed`, `placed`.",
        },
        404: _NO_ORDER,
        409: {"order": ORDER_NOT_PLACED},
    },
}
"""The messages that depend on the operation. Those of lists are `Collection.messages`."""

MEANINGS: Final = {
    400: "The body or the query string is invalid; the message names the field",
    401: "The API key is missing or invalid",
    404: "Not found: no such pet, order or path",
    405: "Method not allowed; `Allow` lists the methods that the path supports",
    409: "Conflict with the current state of the pet or order, or a reused `Idempotency-Key`",
    413: "The body is too large",
    415: "The body is not declared as `application/json`",
    429: "Too many requests; wait for the number of seconds in `Retry-After`",
    500: "Internal server error",
    503: "The storage cannot be reached, or the service is overloaded or stopping",
}

STATUS_MEANINGS: Final = {
    "PetStatus": "Whether the pet can be ordered. `available`: it can. `pending`: a placed order"
    " reserves it. `sold`: an order of it is completed. With `pending` or `sold`, or without a"
    " status, it cannot be ordered.",
    "OrderStatus": "`placed`: the pet is reserved, that is, `pending`. `completed`: the pet is"
    " `sold`. `cancelled`: the pet is `available` again. Only a placed order can change.",
}
"""What the values of the enumerations of statuses mean."""

BEYOND_JAVASCRIPT: Final = (
    " Any int64 is returned exactly, but JavaScript's numbers are exact only from -(2^53 - 1) to"
    " 2^53 - 1: JSON.parse rounds a category beyond."
)
"""What is added to the description of `categoryId`."""

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Any unique text of 1 to 255 printable ASCII characters without spaces, such as"
    " a UUID: however often the request is repeated with it, it takes effect once. A key is"
    " remembered for 24 hours, per client and operation.",
    "schema": {
        "type": "string",
        "pattern": f"^{KEY_PATTERN}$",
        "examples": ["6f1a1f0e-6c0f-4e43-9d2a-2f0f5a3c7f11"],
    },
}

HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "X-Request-Id": (
        "The request's id: your own (1 to 128 letters, digits, `.`, `_` or `-`), or a new one",
        {"type": "string", "pattern": f"^{REQUEST_ID_PATTERN}$"},
    ),
    "Cache-Control": ("Responses must not be stored", {"type": "string", "const": "no-store"}),
    "WWW-Authenticate": ("The challenge (RFC 6750)", {"type": "string"}),
    "RateLimit-Policy": (
        "The quota `q` and its window of `w` seconds (draft-ietf-httpapi-ratelimit-headers)",
        {"type": "string", "examples": ['"client";q=100;w=1']},
    ),
    "RateLimit": (
        "`r` requests are left, and in `t` seconds there will be more (the same draft)",
        {"type": "string", "examples": ['"client";r=99;t=1']},
    ),
    "Retry-After": ("Seconds to wait (RFC 9110)", {"type": "string", "pattern": "^[0-9]+$"}),
    "Accept": ("What a body must be (RFC 9110)", {"type": "string", "const": "application/json"}),
    "Accept-Patch": (
        "The same of a PATCH (RFC 5789)",
        {"type": "string", "const": "application/json"},
    ),
    "Location": ("The path of the new resource", {"type": "string", "format": "uri-reference"}),
    "Idempotency-Replayed": (
        "This is the response to an earlier request with the same `Idempotency-Key`",
        {"type": "string", "const": "true"},
    ),
    "Link": ("Related resources (RFC 8288): the next page, or a replacement", {"type": "string"}),
    "Deprecation": (
        "When the operation was deprecated (RFC 9745)",
        {"type": "string", "pattern": "^@[0-9]+$"},
    ),
    "Sunset": ("When the operation will be removed (RFC 8594)", {"type": "string"}),
}
