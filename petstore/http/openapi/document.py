"""The finished OpenAPI 3.1 document.

Litestar derives the operations from the controllers' annotations and docstrings, msgspec the
schemas from the structs. This module adds what neither can know: headers, examples, the query
parameters that `petstore.http.pagination` parses, and the errors of each operation.

A handler states in its ``opt``: ``errors`` (statuses beside those of every operation),
``collection`` (it has the query parameters of that collection's pages), ``creates`` (its response
has a ``Location``, and it accepts an ``Idempotency-Key``), ``deprecation`` and ``experimental``.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Litestar, Router
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig

from petstore.contract import Order, OrderStatus, Pet, PetStatus
from petstore.http.deprecation import Deprecation
from petstore.http.errors import STATUS, Error
from petstore.http.openapi import texts
from petstore.http.pagination import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Collection,
    cursor_pattern,
    encode_cursor,
)

_VERSION: Final = "1.0.0"
"""The version of the interface that the document describes, not that of any distribution."""

_ALWAYS: Final = (401, 429, 500, 503)
_LIMITS: Final = ("RateLimit-Policy", "RateLimit")
_JSON: Final = "application/json"


class _Page(msgspec.Struct):
    """What the document says about a collection: its list component, items and statuses."""

    component: str
    item: str
    plural: str
    statuses: type[StrEnum]
    example: str


_PAGES: Final = {  # by the letter of the collection's cursors
    "p": _Page("Pets", "Pet", "pets", PetStatus, PetStatus.AVAILABLE),
    "o": _Page("Orders", "Order", "orders", OrderStatus, OrderStatus.PLACED),
}


def encode_document(router: Router, root_path: str) -> bytes:
    """Return the document of a router's operations, as JSON.

    root_path -- the public prefix in front of the router's path, or the empty string
    """
    config = OpenAPIConfig(title="Pet store service", version=_VERSION, use_handler_docstrings=True)
    described = Litestar(route_handlers=[router], openapi_config=config, logging_config=None)
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
        "servers": [{"url": root_path + router.path, "description": "This service"}],
        "tags": [{"name": name, "description": text} for name, text in texts.TAGS.items()],
        "security": [{"apiKey": []}],
        "paths": {
            _camel(path.removeprefix(router.path)): {
                method: _operation(operation, handlers[operation["operationId"]], root_path)
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
    rows = [
        f"| `{code}` | {status} | {texts.MEANINGS[status]} |" for code, status in STATUS.items()
    ]
    return "\n".join(["| code | status | when |", "|---|---|---|", *rows])


def _bodies(handlers: Iterable[HTTPRouteHandler]) -> list[type]:
    fields = [handler.parsed_data_field for handler in handlers]
    return [field.annotation for field in fields if field]


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _operation(
    operation: dict[str, Any], handler: HTTPRouteHandler, root_path: str
) -> dict[str, Any]:
    opt = handler.opt
    name = operation["operationId"]
    deprecation: Deprecation | None = opt.get("deprecation")
    collection: Collection[Any] | None = opt.get("collection")
    messages = texts.MESSAGES | texts.OPERATION_MESSAGES.get(name, {})
    errors = sorted({*_ALWAYS, *opt.get("errors", ())})
    success = HTTPStatus(handler.status_code)
    schema = operation["responses"][str(success)]["content"][_JSON]["schema"]
    if collection:
        schema = {"$ref": f"#/components/schemas/{_PAGES[collection.letter].component}"}
    example = texts.RESPONSES.get(name) or texts.EXAMPLES[_name(schema)]
    own = ["Link"] if collection else []
    own += ["Location", "Idempotency-Replayed"] if "creates" in opt else []
    announced = ["Deprecation", "Sunset", "Link"] if deprecation else []
    finished = {
        "operationId": name,
        "summary": operation["summary"],
        "description": operation["description"],
        "tags": operation["tags"],
        "parameters": [
            *(_path_parameter(parameter) for parameter in operation.get("parameters", ())),
            *(_page_parameters(collection.letter) if collection else ()),
            *([texts.IDEMPOTENCY_KEY] if "creates" in opt else ()),
        ],
        "responses": {
            str(success): {
                "description": success.phrase,
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
        finished["x-sunset"] = deprecation.headers(root_path)["sunset"]
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
    code = next(code for code, of_code in STATUS.items() if of_code == status)
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
    """Return the examples of a media type; a single one needs no name."""
    if len(values) == 1:
        return {"example": next(iter(values.values()))}
    return {"examples": {name: {"value": value} for name, value in values.items()}}


def _path_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": _camel(parameter["name"]),
        "in": "path",
        "required": True,
        "description": "Written `[1-9][0-9]*`; anything else is 404.",
        "schema": {"type": "integer", "format": "int64", "minimum": 1},
        "example": 1,
    }


def _page_parameters(letter: str) -> list[dict[str, Any]]:
    page = _PAGES[letter]
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    status = {"$ref": f"#/components/schemas/{page.statuses.__name__}"}
    cursor = {"type": "string", "pattern": cursor_pattern(letter)}
    text = "Opaque; taken from the `next` link of a page."
    return [
        _query("limit", f"The maximum number of {page.plural} on a page.", limit, DEFAULT_LIMIT),
        _query("status", f"Only {page.plural} with this status.", status, page.example),
        _query("cursor", text, cursor, encode_cursor(letter, 20)),
    ]


def _query(name: str, text: str, schema: dict[str, Any], example: object) -> dict[str, Any]:
    # The example is the schema's: Swagger UI would send a parameter's own along with "Execute".
    schema = schema | {"examples": [example]}
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _schemas(types: Sequence[type]) -> dict[str, Any]:
    """Return the schemas of the structs and lists, in the form that client generators read best."""
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components(types, ref_template=template)
    for name, schema in schemas.items():
        if "enum" in schema:
            schema["type"] = "string"
        for field in schema.get("properties", {}).values():
            if field.get("maximum") == 2**63 - 1:  # JavaScript would round it to another number
                del field["minimum"], field["maximum"]
        if category := schema.get("properties", {}).get("categoryId"):
            category["description"] += texts.BEYOND_JAVASCRIPT
        if name in texts.EXAMPLES:
            schema["examples"] = [texts.EXAMPLES[name]]
    for page in _PAGES.values():
        schemas[page.component] = {
            "title": page.component,
            "description": f"A page of {page.plural}.",
            "type": "array",
            "items": {"$ref": template.format(name=page.item)},
        }
    return schemas
