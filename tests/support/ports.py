"""TCP ports for programs that cannot choose a free one themselves."""

import random
import socket
from contextlib import closing, suppress


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens.

    It is below the ephemeral ones, so that no connection takes it before the program does, and
    above those of the tests' Redis servers.
    """
    while True:
        port = random.SystemRandom().randrange(31000, 32768)
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port
