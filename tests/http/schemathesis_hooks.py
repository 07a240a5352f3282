"""What Schemathesis needs to know beside the OpenAPI document."""

from typing import Any

import schemathesis


@schemathesis.hook
def map_body(_context: schemathesis.HookContext, body: Any) -> Any:
    """Write integers without a fraction.

    To JSON Schema, 7.0 is an integer. The service refuses a `categoryId` or `petId` written that
    way, because a client that sends doubles would lose digits of an int64. A schema cannot express
    that; the descriptions do, and test_specification.py and test_orders.py test it.
    """
    for name in ("categoryId", "petId"):
        number = body.get(name) if isinstance(body, dict) else None
        if isinstance(number, float) and number.is_integer():  # 2.5 stays what must be refused
            body[name] = int(number)
    return body
