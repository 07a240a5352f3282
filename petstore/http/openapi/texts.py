"""The texts of the OpenAPI document that are not generated: descriptions, messages, examples."""

from typing import Any, Final

GUIDE: Final = """The pets of a pet store: list them page by page, add one, order one.

## Keys

Every operation needs an API key, which the operator of the service gives you. Send it as a bearer
token. Below, `$SERVER` is the address of the service, including `/v1`, and `$KEY` is your key:

```sh
curl "$SERVER/pets" -H "Authorization: Bearer $KEY"
```

Without a valid key, every operation responds with 401, whatever else is in the request. A path or
method that no operation has is 404 or 405, with or without a key; `OPTIONS` needs none.

## Pages

A list is a plain array in ascending `id`. A page has at most 20 items unless you set `limit`. If
there is a next page, the response has a `Link` header. Follow the link unchanged, relative to the
URL of the page, until a page has none:

```http
Link: </v1/pets?limit=50&status=available&cursor=p00000000000032>; rel="next"
```

An item that exists during the whole walk is on exactly one page. One that is added meanwhile may be
missing, even if you keep polling the end of a list: it may appear after an item with a higher `id`.

## Errors

Every error has the same body. Base decisions on `code`; `message` is for people and may change.

```json
{"code": "not_found", "message": "Pet not found.", "status": 404}
```

CODES

Every response has an `X-Request-Id`: your own, if you sent one, or a new one. Quote it when you
report a problem.

## Retries

Send an `Idempotency-Key` with a `POST`: any unique text, such as a UUID. If you get no response,
repeat the request with the same key as often as you need: it takes effect only once.

```sh
curl "$SERVER/store/orders" -H "Authorization: Bearer $KEY" \\
  -H "Content-Type: application/json" -H "Idempotency-Key: order-4711" -d '{"petId": 1}'
```

For 24 hours a repeated request gets the first response again, with `Idempotency-Replayed: true`.
The same key with a different body is 409. `GET` and `PATCH` are safe to repeat as they are.

## Rate limits

If the operator limits your request rate, each response to a valid key says what is left:

```http
RateLimit-Policy: "client";q=100;w=1
RateLimit: "client";r=99;t=1
```

You may send `q` requests in `w` seconds; `r` of them are left, and in `t` seconds there will be
more. A request beyond that is 429. After 429 and 503, wait for the number of seconds in
`Retry-After`.

## Deprecation

An operation that will be removed announces it in each of its responses, long before: since when it
is deprecated, when it will be removed, and what replaces it.

```http
Deprecation: @1764892800
Sunset: Thu, 05 Dec 2030 00:00:00 GMT
Link: </v1/pets>; rel="successor-version"
```
"""
"""The guide. CODES stands for the table of the error codes."""

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
    "NewOrder": {"petId": 1},
    "OrderUpdate": {"status": "completed"},
    "Order": {"id": 1, "petId": 1, "status": "placed", "placedAt": "2026-11-21T09:30:00.123456Z"},
}
"""An example of each schema."""

REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "createPet": {
        "with a status": EXAMPLES["NewPet"],
        "without a status": {"name": "Ida", "categoryId": 3},
    },
    "updateOrder": {
        "complete it": EXAMPLES["OrderUpdate"],
        "cancel it": {"status": "cancelled"},
    },
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
_KEY_REUSED: Final = {
    "Idempotency-Key": "Idempotency-Key: already used with a different body; use a new key."
}

MESSAGES: Final[dict[int, dict[str, str]]] = {
    401: {
        "missing": "API key missing: send Authorization: Bearer <API_KEY>.",
        "invalid": "Invalid API key.",
    },
    413: {"size": "body: expected at most 65536 bytes."},
    415: {"media type": "Content-Type: expected application/json."},
    429: {"rate": "Too many requests with this API key. Wait as long as Retry-After says."},
    500: {"bug": "Internal server error. The log has the cause under this X-Request-Id."},
    503: {
        "storage": "The storage is unavailable. Try again.",
        "overload": "Too many requests in flight.",
        "stop": "The service is stopping.",
    },
}
"""The messages of each status, by cause."""

OPERATION_MESSAGES: Final[dict[str, dict[int, dict[str, str]]]] = {
    "listPets": {
        400: {
            "limit": "limit: expected an integer from 1 to 100.",
            "status": "status: expected one of available, pending, sold.",
            "cursor": "cursor: expected the cursor of a next link, unchanged.",
        }
    },
    "createPet": {
        400: {
            "missing": "body: Object missing required field `name`.",
            "type": "body: Expected `int`, got `str` - at `$.categoryId`.",
            "repeated": "body: expected each member once, but `name` is repeated.",
            "status": "body: Expected one of `available`, `pending`, `sold` - at `$.status`.",
        },
        409: _KEY_REUSED,
    },
    "getPet": {404: _NO_PET},
    "listOrders": {
        400: {
            "limit": "limit: expected an integer from 1 to 100.",
            "status": "status: expected one of placed, completed, cancelled.",
            "cursor": "cursor: expected the cursor of a next link, unchanged.",
        }
    },
    "placeOrder": {
        400: {
            "missing": "body: Object missing required field `petId`.",
            "type": "body: Expected `int`, got `str` - at `$.petId`.",
        },
        404: _NO_PET,
        409: {"pet": "The pet is not available.", **_KEY_REUSED},
    },
    "getOrder": {404: _NO_ORDER},
    "updateOrder": {
        400: {
            "missing": "body: Object missing required field `status`.",
            "status": "body: Expected one of `cancelled`, `completed`, `placed` - at `$.status`.",
        },
        404: _NO_ORDER,
        409: {"order": "The order is no longer placed."},
    },
}
"""The messages that depend on the operation."""

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

BEYOND_JAVASCRIPT: Final = (
    " Any int64 is returned exactly, but JavaScript's numbers are exact only from -(2^53 - 1) to"
    " 2^53 - 1: JSON.parse rounds a category beyond."
)
"""What is added to the description of `categoryId`."""

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Any unique text, such as a UUID: however often the request is repeated with"
    " it, it takes effect once. A key is remembered for 24 hours, per client and operation.",
    "schema": {
        "type": "string",
        "pattern": "^[!-~]{1,255}$",
        "examples": ["6f1a1f0e-6c0f-4e43-9d2a-2f0f5a3c7f11"],
    },
}

HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "X-Request-Id": (
        "The id of the request: the client's own, or a new one",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
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
