"""The finished OpenAPI 3.1 document.

Litestar derives the operations from the controllers' annotations and docstrings, msgspec the
schemas from the structs. This module adds what neither can know: header fields, examples, the
query parameters that `petstore.paging` reads, and the errors that each operation names.

A route handler says what it needs in its ``opt``: ``errors`` (statuses beside those that every
operation has), ``collection`` (it takes the query parameters of a page), ``created`` (its answer
has a ``Location``, and it can be repeated with an ``Idempotency-Key``), ``deprecation`` and
``experimental``.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from litestar import Controller, Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig

from petstore import openapi_texts as texts
from petstore import paging
from petstore.contract import Order, OrderStatus, Pet, PetStatus
from petstore.deprecation import Deprecation
from petstore.errors import Code, Error

_VERSION: Final = "1.0.0"
"""The version of the interface that the document describes, not that of any distribution."""

_VERSION_PREFIX: Final = "/v1"
_ALWAYS: Final = (401, 429, 500, 503)
_LIMITS: Final = ("RateLimit-Policy", "RateLimit")
_JSON: Final = "application/json"

# The letter of a collection's cursors -> what is in it, its statuses, and one of them.
_COLLECTIONS: Final[dict[str, tuple[str, type[StrEnum], str]]] = {
    "p": ("animals", PetStatus, PetStatus.AVAILABLE),
    "o": ("orders", OrderStatus, OrderStatus.PLACED),
}


def encode(groups: Sequence[type[Controller]], root: str) -> bytes:
    """Return the document of these controllers, as JSON.

    root -- the public prefix in front of ``/v1``, or nothing
    """
    config = OpenAPIConfig(title="Pet store service", version=_VERSION, use_handler_docstrings=True)
    described = Litestar(route_handlers=list(groups), openapi_config=config, logging_config=None)
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
            "title": config.title,
            "version": config.version,
            "description": texts.GUIDE.replace("CODES", _codes()),
            "contact": {"name": "The operator of this service"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root + _VERSION_PREFIX, "description": "This service"}],
        "tags": [{"name": name, "description": text} for name, text in texts.TAGS.items()],
        "security": [{"apiKey": []}],
        "paths": {
            _path(path): {
                method: _operation(operation, handlers[operation["operationId"]], root)
                for method, operation in item.items()
            }
            for path, item in sorted(skeleton.items())
        },
        "components": {
            "securitySchemes": {"apiKey": texts.KEY},
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in texts.HEADERS.items()
            },
            "schemas": _schemas([Pet, Order, Error, *_bodies(handlers.values())]),
        },
    }
    return msgspec.json.encode(document)


def _codes() -> str:
    """Return the table of the error codes, as Markdown."""
    rows = [f"| `{row.code}` | {row.status} | {texts.MEANINGS[row.status]} |" for row in Code]
    return "\n".join(["| code | status | when |", "|---|---|---|", *rows])


def _bodies(handlers: Iterable[HTTPRouteHandler]) -> list[type]:
    fields = [handler.parsed_data_field for handler in handlers]
    return [field.annotation for field in fields if field]


def _path(path: str) -> str:
    """Return a route's path as the document names it: without /v1, parameters in camel case."""
    return _camel(path.removeprefix(_VERSION_PREFIX))


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _operation(operation: dict[str, Any], handler: HTTPRouteHandler, root: str) -> dict[str, Any]:
    opt = handler.opt
    name = operation["operationId"]
    deprecation: Deprecation | None = opt.get("deprecation")
    messages = texts.MESSAGES | texts.OWN_MESSAGES.get(name, {})
    errors = sorted({*_ALWAYS, *opt.get("errors", ())})
    schema = operation["responses"][str(handler.status_code)]["content"][_JSON]["schema"]
    example = texts.ANSWERS.get(name) or texts.EXAMPLES[_name(schema)]
    own = ["Link"] if "collection" in opt else []
    own += ["Location", "Idempotency-Replayed"] if "created" in opt else []
    announced = ["Deprecation", "Sunset", "Link"] if deprecation else []
    finished = {
        "operationId": name,
        "summary": operation["summary"],
        "description": operation["description"],
        "tags": operation["tags"],
        "parameters": [
            *(_path_parameter(parameter) for parameter in operation.get("parameters", ())),
            *(_page_parameters(opt["collection"]) if "collection" in opt else ()),
            *([texts.IDEMPOTENCY_KEY] if "created" in opt else ()),
        ],
        "responses": {
            str(handler.status_code): {
                "description": texts.MEANINGS[handler.status_code],
                "headers": _headers([*own, *_LIMITS, *announced]),
                "content": {_JSON: {"schema": schema, "example": example}},
            },
            **{str(status): _error(status, messages[status], announced) for status in errors},
        },
    }
    if body := operation.get("requestBody"):
        sent = body["content"][_JSON]
        sent |= _examples(texts.REQUESTS.get(name) or {"": texts.EXAMPLES[_name(sent["schema"])]})
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


def _error(status: int, messages: dict[str, str], announced: list[str]) -> dict[str, Any]:
    extra = {401: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}.get(status, [])
    limits = _LIMITS if status != 401 else ()
    code = next(row.code for row in Code if row.status == status)
    bodies = {
        name: {"code": code, "message": message, "status": status}
        for name, message in messages.items()
    }
    return {
        "description": texts.MEANINGS[status],
        "headers": _headers([*extra, *limits, *announced]),
        "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}, **_examples(bodies)}},
    }


def _examples(values: dict[str, Any]) -> dict[str, Any]:
    """Return what a media type says about its examples: one needs no name."""
    if len(values) == 1:
        return {"example": next(iter(values.values()))}
    return {"examples": {name: {"value": value} for name, value in values.items()}}


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
    items, statuses, status = _COLLECTIONS[kind]
    status_schema = {"$ref": f"#/components/schemas/{statuses.__name__}"}
    return [
        _query("limit", f"How many {items} a page holds at most.", limit, paging.DEFAULT_LIMIT),
        _query("status", f"Only {items} of this status.", status_schema, status),
        _query(
            "cursor", "Opaque, from the `next` link of a page.", cursor, paging.cursor(kind, 20)
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
        if name in texts.EXAMPLES:
            schema["examples"] = [texts.EXAMPLES[name]]
    return schemas
