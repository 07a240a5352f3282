"""One table: what went wrong -> `code` and HTTP status. Every error body is made here."""

from enum import Enum
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.types import Send

from petstore.contract import TokenReusedError, UnavailableError

RETRY_SECONDS: Final = 1
"""What ``Retry-After`` says with a 503."""


class Code(Enum):
    """The closed set of error codes, each with the HTTP status that it always comes with."""

    INVALID_REQUEST = ("invalid_request", HTTPStatus.BAD_REQUEST)
    UNAUTHORIZED = ("unauthorized", HTTPStatus.UNAUTHORIZED)
    NOT_FOUND = ("not_found", HTTPStatus.NOT_FOUND)
    METHOD_NOT_ALLOWED = ("method_not_allowed", HTTPStatus.METHOD_NOT_ALLOWED)
    CONFLICT = ("conflict", HTTPStatus.CONFLICT)
    PAYLOAD_TOO_LARGE = ("payload_too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    UNSUPPORTED_MEDIA_TYPE = ("unsupported_media_type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    RATE_LIMITED = ("rate_limited", HTTPStatus.TOO_MANY_REQUESTS)
    INTERNAL_ERROR = ("internal_error", HTTPStatus.INTERNAL_SERVER_ERROR)
    UNAVAILABLE = ("unavailable", HTTPStatus.SERVICE_UNAVAILABLE)

    def __init__(self, code: str, status: HTTPStatus) -> None:
        self.code = code
        self.status = status


class Error(msgspec.Struct, frozen=True):
    """The body of every error answer."""

    code: Annotated[
        str,
        msgspec.Meta(
            description="Machine-readable: decide by this.",
            extra_json_schema={"enum": [row.code for row in Code]},
        ),
    ]
    message: Annotated[str, msgspec.Meta(description="What is wrong and what was expected.")]
    status: Annotated[int, msgspec.Meta(description="The HTTP status code.")]


class ApiError(Exception):
    """An error answer on its way to the client.

    code -- its row of the table
    message -- what is wrong and what was expected, for the client's developer
    headers -- header fields that belong to this answer, names in lower case
    """

    def __init__(self, code: Code, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.headers = headers or {}


def invalid(message: str) -> ApiError:
    """Return a 400 (RFC 9110, section 15.5.1).

    message -- the part of the request, and what was expected of it: "limit: expected a whole
        number from 1 to 100."
    """
    return ApiError(Code.INVALID_REQUEST, message)


def not_found(what: str) -> ApiError:
    """Return a 404 (RFC 9110, section 15.5.5).

    what -- what does not exist, as a sentence begins: "This animal"
    """
    return ApiError(Code.NOT_FOUND, f"{what} does not exist.")


def conflict(message: str) -> ApiError:
    """Return a 409 (RFC 9110, section 15.5.10).

    message -- what about the resource's state does not permit the request, as a sentence: "This
        animal is not available."
    """
    return ApiError(Code.CONFLICT, message)


def unavailable(message: str) -> ApiError:
    """Return a 503 with ``Retry-After`` (RFC 9110, sections 15.6.4 and 10.2.3).

    message -- what cannot be had at present, as a sentence
    """
    return ApiError(Code.UNAVAILABLE, message, {"retry-after": str(RETRY_SECONDS)})


def internal() -> ApiError:
    """Return a 500 (RFC 9110, section 15.6.1) that gives nothing away.

    The log has the cause under the request id.
    """
    return ApiError(
        Code.INTERNAL_ERROR, "The service failed. Its log has the cause under this X-Request-Id."
    )


def body(error: ApiError) -> bytes:
    """Return the JSON body of an error answer."""
    return msgspec.json.encode(Error(error.code.code, error.message, int(error.code.status)))


async def respond(error: ApiError, send: Send) -> None:
    """Send an error answer."""
    content = body(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        *((name.encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.code.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def to_api_error(error: Exception) -> ApiError:
    """Return the answer that any exception of a request becomes.

    What the table does not know is 500; the caller logs that. A 405 carries ``Allow`` (RFC 9110,
    section 15.5.6), with HEAD wherever there is GET.
    """
    match error:
        case ApiError():
            return error
        case UnavailableError():
            return unavailable("The storage cannot be reached. Try again.")
        case TokenReusedError():
            return conflict("Idempotency-Key: used before with another body; take a new one.")
        case NotFoundException():
            return not_found("This path")
        case MethodNotAllowedException():
            methods = {m.strip() for m in (error.headers or {}).get("allow", "").split(",")}
            allow = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
            return ApiError(
                Code.METHOD_NOT_ALLOWED, f"This path takes {allow} only.", {"allow": allow}
            )
        case HTTPException() if error.status_code < 500:
            return invalid(f"{error.detail}.")
        case _:
            return internal()
