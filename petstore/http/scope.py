"""The keys of the ASGI scope that this service relies on beyond the ASGI specification."""

from typing import NotRequired

from litestar.types import HTTPScope

from petstore.http.headers import Header
from petstore.http.limits import InFlight
from petstore.http.state import ServiceState


class RequestScope(HTTPScope):
    """The scope of a request.

    Our own keys:

    request_id -- set by `ServiceMiddleware`; read by it and by the connection, for the response
        header and the log
    rate_limit -- headers that say what the client has left; set by the guard of `limits`, read by
        `ResponseWriter`. Absent where there is no rate limit or the key was invalid
    service -- the state of the service; set by `ServiceMiddleware`, read by handlers
    slot -- whose slot the request holds; set by the guard of `limits`, removed by
        `limits.release` when the response starts

    A key of ASGI:

    extensions -- the server leaves its exchange there, under `response.EXCHANGE`; read by
        `ResponseWriter`

    Litestar's keys, with its meaning:

    auth -- the name of the client; set by the guard of `auth`, read by the guards of `limits`,
        by `idempotency` and for the log
    app, litestar_app -- set by `FastPath` or by Litestar; read by handlers
    route_handler, path_params, path_template -- set by `FastPath` or by Litestar's router; read by
        handlers, `body`, `idempotency`, the log, metrics and traces
    """

    request_id: bytes
    rate_limit: NotRequired[list[Header]]
    service: ServiceState
    slot: NotRequired[InFlight]
