"""What the OpenAPI document says that no code can tell: descriptions, meanings and examples."""

from typing import Any, Final

GUIDE: Final = """The animals of a pet store: list them page by page, add one, order one.

## Keys

Every operation needs an API key, which the operator of the service gives you. Send it as a bearer
token. Here `$SERVER` is the address of the service, `/v1` included, and `$KEY` is your key:

```sh
curl "$SERVER/pets" -H "Authorization: Bearer $KEY"
```

Without a valid key the answer is 401, whatever else is in the request.

## Pages

A list is a plain array in ascending `id`, of 20 items unless `limit` says otherwise. A page that
has a successor carries its address in a `Link` header. Follow it as it is, relative to the page's
own, until a page has none:

```http
Link: </v1/pets?limit=50&status=available&cursor=p00000000000032>; rel="next"
```

What exists during the whole walk is on exactly one page.

## Errors

Every error has the same body. Decide by `code`; `message` is for people and may change.

```json
{"code": "not_found", "message": "This animal does not exist.", "status": 404}
```

CODES

Every answer carries an `X-Request-Id`: your own, if you sent one, or a fresh one. Quote it when
you report a problem.

## Retries

Send an `Idempotency-Key` of your own with a `POST`, such as a UUID. When the answer did not
arrive, repeat the request with the same key as often as you need: it takes effect once.

```sh
curl "$SERVER/store/orders" -H "Authorization: Bearer $KEY" \\
  -H "Content-Type: application/json" -H "Idempotency-Key: order-4711" -d '{"petId": 1}'
```

For 24 hours the first answer comes again, with `Idempotency-Replayed: true`. The same key with
another body is 409. `GET` and `PATCH` are safe to repeat as they are.

## Rate limits

Where the operator limits how often you may ask, each answer to a valid key says what is left:

```http
RateLimit-Policy: "client";q=100;w=1
RateLimit: "client";r=99;t=1
```

You may send `q` requests in `w` seconds; `r` of them are left, and in `t` seconds there are more.
One too many is 429. After 429 and after 503, wait for the seconds that `Retry-After` says.

## Deprecation

An operation that is to be removed says so on each of its answers, long before: since when, until
when, and what replaces it.

```http
Deprecation: @1764892800
Sunset: Thu, 05 Dec 2030 00:00:00 GMT
Link: </v1/pets>; rel="successor-version"
```
"""
"""The guide. Instead of CODES it shows the table of the error codes."""

KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key; here without the word Bearer.",
}

TAGS: Final = {
    "Pets": "The animals: list them, add one, read one.",
    "Store": "Orders of animals. Experimental: operations of this group may still change.",
}

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "NewPet": {"name": "Rex", "categoryId": 7, "status": "available"},
    "Pet": {"id": 1, "name": "Rex", "categoryId": 7, "status": "available"},
    "NewOrder": {"petId": 1},
    "OrderUpdate": {"status": "completed"},
    "Order": {"id": 1, "petId": 1, "status": "placed", "placedAt": "2026-11-21T09:30:00.123456Z"},
}
"""What a schema describes."""

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
"""The bodies of operations for which the example of the schema is not enough."""

ANSWERS: Final[dict[str, Any]] = {
    "listPets": [EXAMPLES["Pet"], {"id": 2, "name": "Ida", "categoryId": 3}],
    "listOrders": [EXAMPLES["Order"]],
    "updateOrder": EXAMPLES["Order"] | EXAMPLES["OrderUpdate"],
}
"""The answers of operations for which the example of the schema does not fit."""

_ANIMAL: Final = {"unknown": "This animal does not exist."}
_ORDER: Final = {"unknown": "This order does not exist."}
_KEY_TAKEN: Final = {
    "Idempotency-Key": "Idempotency-Key: used before with another body; take a new one."
}

MESSAGES: Final[dict[int, dict[str, str]]] = {
    401: {
        "missing": "An API key is missing: send Authorization: Bearer <API_KEY>.",
        "invalid": "The API key is not valid.",
    },
    413: {"size": "body: expected at most 65536 bytes."},
    415: {"media type": "Content-Type: expected application/json."},
    429: {
        "rate": "Too many requests with this API key. Wait for the seconds that Retry-After says."
    },
    500: {"fault": "The service failed. Its log has the cause under this X-Request-Id."},
    503: {
        "storage": "The storage cannot be reached. Try again.",
        "overload": "Too many requests are under way.",
        "stop": "The service is stopping.",
    },
}
"""The messages of each status, by what went wrong."""

OWN_MESSAGES: Final[dict[str, dict[int, dict[str, str]]]] = {
    "listPets": {
        400: {
            "limit": "limit: expected a whole number from 1 to 100.",
            "status": "status: expected one of available, pending, sold.",
            "cursor": "cursor: expected one from the next link of a page, unchanged.",
        }
    },
    "createPet": {
        400: {
            "missing": "body: Object missing required field `name`.",
            "type": "body: Expected `int`, got `str` - at `$.categoryId`.",
            "status": "body: Expected one of `available`, `pending`, `sold` - at `$.status`.",
        },
        409: _KEY_TAKEN,
    },
    "getPet": {404: _ANIMAL},
    "listOrders": {
        400: {
            "limit": "limit: expected a whole number from 1 to 100.",
            "status": "status: expected one of placed, completed, cancelled.",
            "cursor": "cursor: expected one from the next link of a page, unchanged.",
        }
    },
    "placeOrder": {
        400: {
            "missing": "body: Object missing required field `petId`.",
            "type": "body: Expected `int`, got `str` - at `$.petId`.",
        },
        404: _ANIMAL,
        409: {"animal": "This animal is not available.", **_KEY_TAKEN},
    },
    "getOrder": {404: _ORDER},
    "updateOrder": {
        400: {
            "missing": "body: Object missing required field `status`.",
            "status": "body: Expected one of `cancelled`, `completed`, `placed` - at `$.status`.",
        },
        404: _ORDER,
        409: {"order": "This order is no longer placed."},
    },
}
"""The messages that depend on the operation."""

MEANINGS: Final = {
    200: "What was asked for",
    201: "Added",
    400: "The body or the query string is wrong; the message names the field",
    401: "The API key is missing or invalid",
    404: "It does not exist",
    405: "The path does not take this method; `Allow` says which it takes",
    409: "What is there does not permit it; or the Idempotency-Key came with another body before",
    413: "The body is too large",
    415: "The body is not declared as application/json",
    429: "Too many requests; wait for the seconds that `Retry-After` says",
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
    "RateLimit-Policy": (
        "The quota `q`, and its window of `w` seconds (draft-ietf-httpapi-ratelimit-headers)",
        {"type": "string", "examples": ['"client";q=100;w=1']},
    ),
    "RateLimit": (
        "`r` requests are left, and in `t` seconds there are more (the same draft)",
        {"type": "string", "examples": ['"client";r=99;t=1']},
    ),
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
