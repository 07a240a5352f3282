"""What error replies of servers mean."""

import re
from typing import Final

from petstore.contract import StorageError, UnavailableError

DENIED: Final = re.compile(
    "^(NOAUTH|WRONGPASS|NOPERM|DENIED)|AUTH|unauthenticated"
    "|ACL failure in script|user executing the script can't"
)
"""Errors of the login and of permissions."""

TRANSIENT: Final = re.compile(
    r"(?:ERR Error running script .*?: -)?"  # before version 7, errors in scripts are wrapped
    r"(READONLY|NOREPLICAS|MISCONF|OOM|BUSY|LOADING|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK"
    r"|ERR max number of clients)\b"
)
"""Errors that pass, by themselves or once the server is repaired. The command was not executed."""


class UnusableError(UnavailableError):
    """The server can be reached, but not used until its settings, or ours, are changed.

    At the start that is an error of the settings. Later it is an outage: it ends by itself, once a
    password or a permission is what it was.
    """


def storage_error(name: str, error: Exception) -> StorageError:
    """Return what an error reply means, or that a reply cannot be read (`ValueError`).

    `UnavailableError` if it passes by itself or with a repair, `UnusableError` if the login, a
    permission or a command is refused, else `StorageError`.

    name -- the server's name in messages
    """
    if TRANSIENT.match(str(error)):
        return UnavailableError(f"{name}: {error}")
    if DENIED.search(str(error)):
        return UnusableError(
            f"{name}: the user or the password is refused: {error.args[0].rstrip('.')}; check"
            " PETSTORE_REDIS_URL; the user needs +@all on its keys, and +info"
        )
    if "index is out of range" in str(error):
        return UnusableError(f"{name}: {error}; correct the number in PETSTORE_REDIS_URL")
    if "unknown command" in str(error).lower():
        return UnusableError(f"{name}: {error}; it must not be disabled or renamed")
    return StorageError(f"{name}: {error}")


def handshake_error(name: str, error: Exception) -> UnavailableError:
    """Return what an error of a handshake means: none lasts, for the server was usable before."""
    failure = storage_error(name, error)
    return failure if isinstance(failure, UnavailableError) else UnusableError(*failure.args)
