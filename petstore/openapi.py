"""The finished OpenAPI 3.1 document.

Litestar derives the operations from the controllers' annotations and docstrings, msgspec the
schemas from the structs. This module adds what neither can know: header fields, examples, the
query parameters that `petstore.paging` reads, and the errors that each operation names.

A route handler says what it needs in its ``opt``: ``errors`` (statuses beside those that every
operation has), ``collection`` (it takes the query parameters of a page), ``created`` (its answer
has a ``Location``), ``deprecation`` and ``experimental``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from litestar import Controller, Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig

from petstore import paging
from petstore.contract import NewPet, Pet
from petstore.deprecation import Deprecation
from petstore.errors import Code, Error

_VERSION_PREFIX: Final = "/v1"
_ALWAYS: Final = (401, 500, 503)
_JSON: Final = "application/json"

_DESCRIPTION: Final = """The animals of a pet store.

**Keys.** Every operation needs an API key: `Authorization: Bearer <API_KEY>`.

**Pages.** A list is a plain array. A page that has a successor carries a `Link` header with
`rel="next"`: follow it as it is until a page has none.

**Errors.** Every error is an `Error`; decide by its `code`. After 503, wait for the seconds that
`Retry-After` says.

**Requests.** Every answer carries an `X-Request-Id`: your own, if you sent one, or a fresh one.
Quote it when you report a problem.

**Deprecation.** An operation that is to be removed says so in `Deprecation` and `Sunset` headers.
"""

_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key; here without the word Bearer.",
}

_TAGS: Final = {
    "Pets": "The animals: list them, add one, read one.",
    "Store": "Orders of animals. Experimental: operations of this group may still change.",
}

_EXAMPLES: Final = {
    "NewPet": {"name": "Rex", "categoryId": 7, "status": "available"},
    "Pet": {"id": 1, "name": "Rex", "categoryId": 7, "status": "available"},
}

_ERROR_EXAMPLES: Final = {
    400: "limit: expected a whole number from 1 to 100.",
    401: "The API key is not valid.",
    404: "This animal does not exist.",
    413: "body: expected at most 65536 bytes.",
    415: "Content-Type: expected application/json.",
    500: "The service failed. Its log has the cause under this X-Request-Id.",
    503: "The storage cannot be reached. Try again.",
}

_MEANINGS: Final = {
    200: "What was asked for",
    201: "Added",
    400: "The body or the query string is wrong; the message names the field",
    401: "The API key is missing or invalid",
    404: "It does not exist",
    413: "The body is too large",
    415: "The body is not declared as application/json",
    500: "A fault of the service",
    503: "The storage cannot be reached, or the service is overloaded or stopping",
}

_HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "X-Request-Id": (
        "The request's id: the client's own, or a fresh one",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    ),
    "Cache-Control": ("Answers are not to be stored", {"type": "string", "const": "no-store"}),
    "WWW-Authenticate": ("The challenge (RFC 6750)", {"type": "string"}),
    "Retry-After": ("Seconds to wait (RFC 9110)", {"type": "string", "pattern": "^[0-9]+$"}),
    "Location": ("Where what was added can be read", {"type": "string", "format": "uri-reference"}),
    "Link": ("Related resources (RFC 8288), on a page the next one", {"type": "string"}),
    "Deprecation": (
        "Since when the operation is deprecated (RFC 9745)",
        {"type": "string", "pattern": "^@[0-9]+$"},
    ),
    "Sunset": ("When the operation is to be removed (RFC 8594)", {"type": "string"}),
}


def encode(groups: Sequence[type[Controller]], root: str) -> bytes:
    """Return the document of these controllers, as JSON.

    root -- the public prefix in front of ``/v1``, or nothing
    """
    described = Litestar(
        route_handlers=list(groups),
        openapi_config=OpenAPIConfig(
            title="Pet store service", version="1.0.0", use_handler_docstrings=True
        ),
        logging_config=None,
    )
    skeleton = described.openapi_schema.to_schema()["paths"]
    handlers = {
        handler.operation_id: handler
        for route in described.routes
        for handler in getattr(route, "route_handlers", ())
        if isinstance(handler, HTTPRouteHandler)
    }
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Pet store service",
            "version": "1.0.0",
            "description": _DESCRIPTION,
            "contact": {"name": "The operator of this service"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root + _VERSION_PREFIX, "description": "This service"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{"apiKey": []}],
        "paths": {
            _path(path): {
                method: _operation(operation, handlers[operation["operationId"]], root)
                for method, operation in item.items()
            }
            for path, item in skeleton.items()
        },
        "components": {
            "securitySchemes": {"apiKey": _KEY},
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in _HEADERS.items()
            },
            "schemas": _schemas((Pet, NewPet, Error)),
        },
    }
    return msgspec.json.encode(document)


def _path(path: str) -> str:
    """Return a route's path as the document names it: without /v1, parameters in camel case."""
    return _camel(path.removeprefix(_VERSION_PREFIX))


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _operation(operation: dict[str, Any], handler: HTTPRouteHandler, root: str) -> dict[str, Any]:
    opt = handler.opt
    deprecation: Deprecation | None = opt.get("deprecation")
    errors = sorted({*_ALWAYS, *opt.get("errors", ())})
    success = operation["responses"][str(handler.status_code)]
    schema = success["content"][_JSON]["schema"]
    item = _name(schema.get("items", schema))
    example = _EXAMPLES.get(item)
    content = {"schema": schema}
    if example is not None:
        content["example"] = [example] if "items" in schema else example
    own = ["Link"] if "collection" in opt else ["Location"] if "created" in opt else []
    announced = ["Deprecation", "Sunset", "Link"] if deprecation else []
    finished = {
        "operationId": operation["operationId"],
        "summary": operation["summary"],
        "description": operation["description"],
        "tags": operation["tags"],
        "parameters": [
            *(_path_parameter(parameter) for parameter in operation.get("parameters", ())),
            *(_page_parameters(opt["collection"]) if "collection" in opt else ()),
        ],
        "responses": {
            str(handler.status_code): {
                "description": _MEANINGS[handler.status_code],
                "headers": _headers([*own, *announced]),
                "content": {_JSON: content},
            },
            **{str(status): _error(status, announced) for status in errors},
        },
    }
    if body := operation.get("requestBody"):
        sent = body["content"][_JSON]
        sent["example"] = _EXAMPLES[_name(sent["schema"])]
        finished["requestBody"] = body
    if deprecation:
        finished["deprecated"] = True
        finished["x-sunset"] = deprecation.fields(root)["sunset"]
    if opt.get("experimental"):
        finished["x-stability"] = "experimental"
    return finished


def _name(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _headers(names: Iterable[str]) -> dict[str, Any]:
    names = ["X-Request-Id", "Cache-Control", *names]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _error(status: int, announced: list[str]) -> dict[str, Any]:
    extra = {401: ["WWW-Authenticate"], 503: ["Retry-After"]}.get(status, [])
    code = next(row.code for row in Code if row.status == status)
    example = {"code": code, "message": _ERROR_EXAMPLES[status], "status": status}
    return {
        "description": _MEANINGS[status],
        "headers": _headers([*extra, *announced]),
        "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}, "example": example}},
    }


def _path_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": _camel(parameter["name"]),
        "in": "path",
        "required": True,
        "description": "Written `[1-9][0-9]*`; anything else names nothing and is 404.",
        "schema": {"type": "integer", "format": "int64", "minimum": 1},
        "example": 1,
    }


def _page_parameters(kind: str) -> list[dict[str, Any]]:
    limit = {
        "type": "integer",
        "minimum": 1,
        "maximum": paging.MAX_LIMIT,
        "default": paging.DEFAULT_LIMIT,
    }
    cursor = {"type": "string", "pattern": paging.cursor_pattern(kind)}
    return [
        _query("limit", "How many animals a page holds at most.", limit, paging.DEFAULT_LIMIT),
        _query(
            "status",
            "Only animals of this status.",
            {"$ref": "#/components/schemas/PetStatus"},
            "available",
        ),
        _query(
            "cursor",
            "Opaque, from the `next` link of a page.",
            cursor,
            paging.cursor(kind, 20),
        ),
    ]


def _query(name: str, text: str, schema: dict[str, Any], example: object) -> dict[str, Any]:
    # The example is the schema's: Swagger UI would send a parameter's own along with "Execute".
    schema = schema | {"examples": [example]}
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _schemas(types: Sequence[type]) -> dict[str, Any]:
    """Return the schemas of the structs, in the form that client generators read best."""
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name, schema in schemas.items():
        if "enum" in schema:
            schema["type"] = "string"
        for field in schema.get("properties", {}).values():
            if field.get("maximum") == 2**63 - 1:  # JavaScript would round it to what is no int64
                del field["minimum"], field["maximum"]
        if name in _EXAMPLES:
            schema["examples"] = [_EXAMPLES[name]]
    return schemas
