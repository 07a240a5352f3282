"""The reference page: the OpenAPI document as HTML, which needs no JavaScript to be read."""

import json
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

PARTS = Path(__file__).parent / "page"
"""The folder of the template, and of what the page loads."""


def render_page(document: bytes) -> str:
    """Return the page that describes an encoded OpenAPI document.

    ``$SERVER`` stands for the base URL, which only the browser knows.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - slow to import
    from markdown_it import MarkdownIt  # noqa: PLC0415 - slow to import
    from markupsafe import Markup  # noqa: PLC0415 - slow to import

    def encoded(value: Any, indent: int | None = None) -> Markup:
        """Return JSON between tags, where quotes need no escapes: a twentieth of the page."""
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        return Markup(escape(text, quote=False))  # noqa: S704 - it is escaped

    decoded = json.loads(document)
    api = _resolved(decoded, decoded)
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    guide = markdown.parse(api["info"]["description"])
    topics = {}
    for token, inside in pairwise(guide):
        if token.type == "heading_open":
            name = inside.content.lower().replace(" ", "-")
            token.attrSet("id", name)
            topics[name] = inside.content
    environment = Environment(
        loader=FileSystemLoader(PARTS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "json": partial(encoded, indent=2),
        "line": encoded,
        "text": markdown.render,
        "words": markdown.renderInline,
    }
    page = environment.get_template("reference.html").render(
        api=api,
        guide=markdown.renderer.render(guide, markdown.options, {}),
        topics=topics,
        operations=[
            _operation(path, method, operation)
            for path, item in api["paths"].items()
            for method, operation in item.items()
        ],
    )
    return page.replace("$SERVER", '<span class="server">$SERVER</span>')


def _resolved(part: Any, document: dict[str, Any]) -> Any:
    """Return a part of a document with what its references refer to."""
    if isinstance(part, list):
        return [_resolved(item, document) for item in part]
    if not isinstance(part, dict):
        return part
    own = {name: _resolved(value, document) for name, value in part.items() if name != "$ref"}
    if "$ref" not in part:
        return own
    target: Any = document
    for name in part["$ref"].removeprefix("#/").split("/"):
        target = target[name]
    referred: dict[str, Any] = _resolved(target, document)
    return referred | own


def _operation(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with what the template needs: its success, and a sample request."""
    sample, query = path, {}
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            sample = sample.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
        elif parameter["in"] == "query" and parameter["name"] != "cursor":
            query[parameter["name"]] = parameter["schema"]["examples"][0]
    responses = {status: _content(response) for status, response in operation["responses"].items()}
    status = next(iter(responses))
    body = operation.get("requestBody")
    return operation | {
        "method": method.upper(),
        "path": path,
        "sample": f"{sample}?{urlencode(query)}" if query else sample,
        "body": _content(body) if body else None,
        "idempotent": any(found["name"] == "Idempotency-Key" for found in operation["parameters"]),
        "status": status,
        "success": responses.pop(status),
        "errors": responses,
    }


def _content(message: dict[str, Any]) -> dict[str, Any]:
    """Return a body or response with its examples, and the schema of it or its items."""
    (content,) = message["content"].values()
    named = content.get("examples", {"": {"value": content.get("example")}})
    examples = [example["value"] for example in named.values()]
    item = content["schema"].get("items", content["schema"])
    return message | {"item": item, "examples": examples}
