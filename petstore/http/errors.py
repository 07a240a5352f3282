"""One table of errors: which exception becomes which code, status and message.

Every error body of the service is encoded here.
"""

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Final, Literal, Self

import msgspec

from petstore.contract import (
    ChangeNeededError,
    ConflictError,
    NotFoundError,
    RefusedError,
    SettingsError,
    StorageError,
    TokenReusedError,
    UnavailableError,
    WrongStoreError,
)

RETRY_AFTER_SECONDS: Final = 1
"""The value of ``Retry-After`` in a 503."""

# Messages that the OpenAPI document shows, too.
KEY_MISSING: Final = "API key missing: send Authorization: Bearer <API_KEY>."
KEY_INVALID: Final = "Invalid API key."
NOT_JSON: Final = "Content-Type: expected application/json."
OVER_RATE_LIMIT: Final = "Too many requests with this API key. Wait as long as Retry-After says."
OVER_SLOTS: Final = "Too many requests in flight."
PET_NOT_AVAILABLE: Final = "The pet is not available."
ORDER_NOT_PLACED: Final = "The order is no longer placed."
SERVICE_STOPPING: Final = "The service is stopping."


class ErrorCode(StrEnum):
    """The closed set of error codes."""

    status: HTTPStatus  # a code always comes with the same one

    def __new__(cls, code: str, status: HTTPStatus) -> Self:
        """Return a code with its status."""
        self = str.__new__(cls, code)
        self._value_, self.status = code, status
        return self

    INVALID_REQUEST = "invalid_request", HTTPStatus.BAD_REQUEST
    UNAUTHORIZED = "unauthorized", HTTPStatus.UNAUTHORIZED
    NOT_FOUND = "not_found", HTTPStatus.NOT_FOUND
    METHOD_NOT_ALLOWED = "method_not_allowed", HTTPStatus.METHOD_NOT_ALLOWED
    CONFLICT = "conflict", HTTPStatus.CONFLICT
    PAYLOAD_TOO_LARGE = "payload_too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    RATE_LIMITED = "rate_limited", HTTPStatus.TOO_MANY_REQUESTS
    INTERNAL_ERROR = "internal_error", HTTPStatus.INTERNAL_SERVER_ERROR
    UNAVAILABLE = "unavailable", HTTPStatus.SERVICE_UNAVAILABLE


CODES: Final[dict[int, ErrorCode]] = {code.status: code for code in ErrorCode}
"""The codes by their HTTP statuses."""


Refusal = Literal["no_key", "invalid_key", "rate_limited", "overloaded"]
"""Why a guard or a limit refuses a request, for the metrics. (Members of an enum hash slowly.)"""


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
    headers -- headers of this response, names in lower case; those of a 503 have ``Retry-After``
        (RFC 9110, sections 15.6.4 and 10.2.3)
    refusal -- why, if a guard or a limit refuses the request
    reason -- what the log says of it; the message, unless that has what the client has sent
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        headers: dict[str, str] | None = None,
        refusal: Refusal | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = code.status
        self.message = message
        self.headers = headers or {}
        if self.status == 503:
            self.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
        self.refusal = refusal
        self.reason = message if reason is None else reason


def invalid(message: str, reason: str | None = None) -> ApiError:
    """Return a 400: which part of the request is wrong, and what was expected of it.

    reason -- the same for the log, if the message has what the client has sent
    """
    return ApiError(ErrorCode.INVALID_REQUEST, message, reason=reason)


def not_found(what: str) -> ApiError:
    """Return a 404: what was not found, as the beginning of a sentence."""
    return ApiError(ErrorCode.NOT_FOUND, f"{what} not found.")


def unavailable(message: str) -> ApiError:
    """Return a 503: what is unavailable at present, as a sentence."""
    return ApiError(ErrorCode.UNAVAILABLE, message)


def overloaded(message: str) -> ApiError:
    """Return a 503 for a request beyond a limit: what there is too much of, as a sentence."""
    return ApiError(ErrorCode.UNAVAILABLE, message, refusal="overloaded")


INTERNAL: Final = (
    ErrorCode.INTERNAL_ERROR,
    "Internal server error. The log has the cause under this X-Request-Id.",
)
"""An error that reveals nothing."""

TABLE: Final[dict[type[StorageError], tuple[ErrorCode, str]]] = {
    NotFoundError: (ErrorCode.NOT_FOUND, "Pet or order not found."),
    ConflictError: (
        ErrorCode.CONFLICT,
        "The request conflicts with the state of the pet or the order.",
    ),
    TokenReusedError: (
        ErrorCode.CONFLICT,
        "Idempotency-Key: already used with a different body; use a new key.",
    ),
    RefusedError: (ErrorCode.CONFLICT, "The storage refused this request."),
    UnavailableError: (ErrorCode.UNAVAILABLE, "The storage is unavailable. Try again."),
    WrongStoreError: (ErrorCode.UNAVAILABLE, "The storage is unavailable."),
    ChangeNeededError: INTERNAL,
    SettingsError: INTERNAL,
    StorageError: INTERNAL,
}
"""The errors of the storage contract. A controller that knows more raises a more specific one."""


def to_api_error(error: Exception) -> ApiError:
    """Return the error response for any exception that a request raises.

    An exception that is not in the table becomes a 500; the caller logs it.
    """
    if isinstance(error, ApiError):
        return error
    rows = (TABLE[class_] for class_ in type(error).__mro__ if class_ in TABLE)
    response = ApiError(*next(rows, INTERNAL))
    if response.status >= 500:
        response.reason = name_of(error)
    return response


def name_of(error: Exception) -> str:
    """Return what an exception is, and what it comes from; its message may have anything."""
    cause = error.__cause__ or error.__context__
    name = type(error).__name__
    return f"{name} ({type(cause).__name__})" if cause else name


def encode(error: ApiError) -> bytes:
    """Return the JSON body of an error response."""
    return msgspec.json.encode(Error(error.code, error.message, int(error.status)))
