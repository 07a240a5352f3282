"""The finished OpenAPI 3.1 document.

The operations are those of `petstore.http.routes`, with what their handlers declare; msgspec makes
the schemas from the structs. This module adds what neither can know: headers, examples, the query
parameters that `petstore.http.pagination` parses, and the errors of each operation.

What a handler states of these in its ``opt`` is in `petstore.http.routes.Texts`.
"""

import inspect
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from petstore.contract import Order, Pet
from petstore.http.errors import CODES, Error, ErrorCode
from petstore.http.headers import JSON
from petstore.http.openapi import texts
from petstore.http.pagination import DEFAULT_LIMIT, MAX_LIMIT, Collection, encode_cursor
from petstore.http.routes import API_PREFIX, Operation

_LIMITS: Final = ("RateLimit-Policy", "RateLimit")
_ALWAYS: Final = (401, 429, 500, 503)  # the errors that every operation has
_ITEMS: Final = (Pet, Order)
_UNDERSCORE: Final = re.compile("_([a-z])")


def encode_document(operations: Iterable[Operation], root_path: str) -> bytes:
    """Return the document of those operations that are part of the interface, as JSON.

    root_path -- the public prefix in front of their paths, or the empty string
    """
    operations = [found for found in operations if found.path.startswith(API_PREFIX)]
    schemas = _schemas([*_ITEMS, Error, *(op.body for op in operations if op.body)])
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(_camel(operation.path.removeprefix(API_PREFIX)), {})
        for method in operation.handler.http_methods:
            item[method.lower()] = _operation(operation, schemas)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Pet store service",
            "version": "1.0.0",  # of the interface, not of any distribution
            "description": _guide(),
            "contact": {"name": "The operator of this service"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root_path + API_PREFIX, "description": "This service"}],
        "tags": [{"name": name, "description": text} for name, text in texts.TAGS.items()],
        "security": [{"apiKey": []}],
        "paths": {path: dict(sorted(item.items())) for path, item in sorted(paths.items())},
        "components": {
            "securitySchemes": {"apiKey": texts.KEY},
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in texts.HEADERS.items()
            },
            "schemas": schemas,
        },
    }
    return msgspec.json.encode(document)


def _guide() -> str:
    """Return the guide, with the table of the error codes."""
    text = (Path(__file__).parent / "guide.md").read_text()
    rows = [f"| `{code}` | {code.status} | {texts.MEANINGS[code.status]} |" for code in ErrorCode]
    return text.replace("CODES", "\n".join(["| code | status | when |", "|---|---|---|", *rows]))


def _camel(name: str) -> str:
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    name, handler, stated = operation.id, operation.handler, operation.texts
    collection, deprecation = stated.collection, stated.deprecation
    messages = texts.MESSAGES | texts.OPERATION_MESSAGES.get(name, {})
    if collection:
        messages[400] = collection.messages
    success = HTTPStatus(operation.status)
    item = get_args(operation.content)[0] if collection else operation.content
    component = f"{item.__name__}s" if collection else item.__name__
    example = texts.RESPONSES.get(name) or texts.EXAMPLES[component]
    own = ["Link"] if collection else []
    own += ["Location", "Idempotency-Replayed"] if stated.creates else []
    announced = ["Deprecation", "Sunset", "Link"] if deprecation else []
    accepted = {415: ["Accept-Patch" if "PATCH" in handler.http_methods else "Accept"]}
    description = handler.description or inspect.getdoc(handler.fn)
    finished: dict[str, Any] = {
        "operationId": name,
        "summary": handler.summary,
        **({"description": description} if description else {}),  # not with PYTHONOPTIMIZE=2
        "tags": handler.resolve_tags(),
        "parameters": [
            *([_path_parameter(operation.parameter)] if operation.parameter else ()),
            *(_page_parameters(collection, item.__name__, schemas) if collection else ()),
            *([texts.IDEMPOTENCY_KEY] if stated.creates else ()),
        ],
        "responses": {
            str(success): {
                "description": success.phrase,
                "headers": _headers([*own, *_LIMITS, *announced]),
                "content": {JSON: _schema(component) | {"example": example}},
            },
            **{
                str(status): _error(
                    status, messages[status], [*accepted.get(status, ()), *announced]
                )
                for status in sorted({*_ALWAYS, *stated.errors})
            },
        },
    }
    if operation.body is not None:
        sent = operation.body.__name__
        examples = _examples(texts.REQUESTS.get(name) or {"": texts.EXAMPLES[sent]})
        finished["requestBody"] = {"content": {JSON: _schema(sent) | examples}, "required": True}
    if handler.deprecated:
        finished["deprecated"] = True
    if deprecation:
        finished["x-sunset"] = deprecation.sunset_text
    if stated.experimental:
        finished["x-stability"] = "experimental"
    return finished


def _schema(component: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{component}"}}


def _headers(names: Iterable[str]) -> dict[str, Any]:
    names = ["X-Request-Id", "Cache-Control", *names]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _error(status: int, messages: dict[str, str], announced: list[str]) -> dict[str, Any]:
    extra = {401: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}.get(status, [])
    limits = _LIMITS if status != 401 else ()
    error = {"code": CODES[status], "status": status}
    bodies = {name: error | {"message": message} for name, message in messages.items()}
    return {
        "description": texts.MEANINGS[status],
        "headers": _headers([*extra, *limits, *announced]),
        "content": {JSON: _schema("Error") | _examples(bodies)},
    }


def _examples(values: dict[str, Any]) -> dict[str, Any]:
    """Return the examples of a media type; a single one needs no name."""
    if len(values) == 1:
        return {"example": next(iter(values.values()))}
    return {"examples": {name: {"value": value} for name, value in values.items()}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": _camel(name),
        "in": "path",
        "required": True,
        "description": "Decimal digits, the first not 0; anything else is 404.",
        "schema": {"type": "integer", "format": "int64", "minimum": 1},
        "example": 1,
    }


def _page_parameters(
    collection: Collection[Any], item: str, schemas: dict[str, Any]
) -> list[dict[str, Any]]:
    items, fields = f"{item.lower()}s", schemas[item]["properties"]
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    cursor = {"type": "string", "pattern": collection.cursor_pattern}
    text = "Opaque; taken from the `next` link of a page."
    return [
        _query("limit", f"The maximum number of {items} on a page.", limit, DEFAULT_LIMIT),
        *(
            _query(
                name, f"Only {items} with this {name}.", fields[name], texts.EXAMPLES[item][name]
            )
            for name in collection.filters
        ),
        _query("cursor", text, cursor, encode_cursor(collection.letter, 20)),
    ]


def _query(name: str, text: str, schema: dict[str, Any], example: object) -> dict[str, Any]:
    # The example is the schema's: consoles would send a parameter's own with every request.
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
        if name in texts.STATUS_MEANINGS:
            schema["description"] = texts.STATUS_MEANINGS[name]
        if name in texts.EXAMPLES:
            schema["examples"] = [texts.EXAMPLES[name]]
    for item in _ITEMS:
        items = f"{item.__name__}s"
        schemas[items] = {
            "title": items,
            "description": f"A page of {items.lower()}.",
            "type": "array",
            "items": {"$ref": template.format(name=item.__name__)},
        }
    return schemas
