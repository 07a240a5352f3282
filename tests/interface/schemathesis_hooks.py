"""What Schemathesis is told beside the OpenAPI document."""

from typing import Any

import schemathesis


@schemathesis.hook
def map_body(_context: schemathesis.HookContext, body: Any) -> Any:
    """Write whole numbers as whole numbers.

    JSON Schema counts 7.0 as an integer; the service refuses a `categoryId` or `petId` written so,
    because a client that sends doubles would lose digits of an int64. No schema can say that:
    its description does, and test_specification.py and test_store.py hold it.
    """
    for name in ("categoryId", "petId"):
        if isinstance(body, dict) and isinstance(number := body.get(name), float):
            body[name] = int(number)
    return body
