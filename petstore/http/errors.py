"""One table of errors: which exception becomes which code, status and message.

Every error body of the service is encoded here.
"""

from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from litestar.exceptions import HTTPException

from petstore.contract import (
    ConflictError,
    NotFoundError,
    RefusedError,
    SettingsError,
    StorageError,
    TokenReusedError,
    UnavailableError,
)

RETRY_AFTER_SECONDS: Final = 1
"""The value of ``Retry-After`` in a 503."""


class ErrorCode(StrEnum):
    """The closed set of error codes."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    RATE_LIMITED = "rate_limited"
    INTERNAL_ERROR = "internal_error"
    UNAVAILABLE = "unavailable"


STATUS: Final = {
    ErrorCode.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    ErrorCode.UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
    ErrorCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    ErrorCode.CONFLICT: HTTPStatus.CONFLICT,
    ErrorCode.PAYLOAD_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ErrorCode.RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorCode.INTERNAL_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The HTTP status of each code; a code always comes with the same status."""

_CODES: Final[dict[int, ErrorCode]] = {status: code for code, status in STATUS.items()}


class Error(msgspec.Struct, frozen=True):
    """The body of every error response."""

    code: Annotated[
        ErrorCode, msgspec.Meta(description="Machine-readable: base decisions on this.")
    ]
    message: Annotated[str, msgspec.Meta(description="What is wrong and what was expected.")]
    status: Annotated[int, msgspec.Meta(description="The HTTP status code.")]


class ApiError(Exception):
    """An exception that already says which error response the client gets.

    code -- determines the status
    message -- what is wrong and what was expected, for the client's developer
    headers -- headers of this response, names in lower case
    """

    def __init__(
        self, code: ErrorCode, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUS[code]
        self.message = message
        self.headers = headers or {}


def invalid(message: str) -> ApiError:
    """Return a 400 (RFC 9110, section 15.5.1).

    message -- the part of the request and what was expected of it: "limit: expected an integer
        from 1 to 100."
    """
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def not_found(what: str) -> ApiError:
    """Return a 404 (RFC 9110, section 15.5.5).

    what -- what was not found, as a sentence begins: "Pet"
    """
    return ApiError(ErrorCode.NOT_FOUND, f"{what} not found.")


def method_not_allowed(allow: str) -> ApiError:
    """Return a 405 with ``Allow`` (RFC 9110, section 15.5.6).

    allow -- the methods that the path supports, separated by commas
    """
    message = f"Method not allowed: this path supports {allow}."
    return ApiError(ErrorCode.METHOD_NOT_ALLOWED, message, {"allow": allow})


def conflict(message: str) -> ApiError:
    """Return a 409 (RFC 9110, section 15.5.10).

    message -- what conflicts, as a sentence: "The pet is not available."
    """
    return ApiError(ErrorCode.CONFLICT, message)


def unavailable(message: str) -> ApiError:
    """Return a 503 with ``Retry-After`` (RFC 9110, sections 15.6.4 and 10.2.3).

    message -- what is unavailable at present, as a sentence
    """
    return ApiError(ErrorCode.UNAVAILABLE, message, {"retry-after": str(RETRY_AFTER_SECONDS)})


def internal() -> ApiError:
    """Return a 500 (RFC 9110, section 15.6.1) that reveals nothing; the log has the cause."""
    return ApiError(
        ErrorCode.INTERNAL_ERROR,
        "Internal server error. The log has the cause under this X-Request-Id.",
    )


TABLE: Final[dict[type[StorageError], Callable[[], ApiError]]] = {
    NotFoundError: lambda: not_found("Pet or order"),
    ConflictError: lambda: conflict(
        "The request conflicts with the state of the pet or the order."
    ),
    TokenReusedError: lambda: conflict(
        "Idempotency-Key: already used with a different body; use a new key."
    ),
    RefusedError: lambda: conflict("The storage refused this request."),
    UnavailableError: lambda: unavailable("The storage is unavailable. Try again."),
    SettingsError: internal,
    StorageError: internal,
}
"""The errors of the storage contract. A controller that knows more raises a more specific one."""


def to_api_error(error: Exception) -> ApiError:
    """Return the error response for any exception that a request raises.

    An exception that is not in the table becomes a 500; the caller logs it.
    """
    if isinstance(error, ApiError):
        return error
    for class_ in type(error).__mro__:
        if (row := TABLE.get(class_)) is not None:
            return row()
    if isinstance(error, HTTPException) and error.status_code < 500:  # one of Litestar's
        code = _CODES.get(error.status_code, ErrorCode.INVALID_REQUEST)
        return ApiError(code, f"{error.detail}.", error.headers)
    return internal()


def encode(error: ApiError) -> bytes:
    """Return the JSON body of an error response."""
    return msgspec.json.encode(Error(error.code, error.message, int(error.status)))
