"""TCP ports for programs that cannot choose a free one themselves."""

import random
import socket
from contextlib import suppress


def free_port(ports: range = range(31000, 32768), bus: int = 0) -> int:
    """Return a port of 127.0.0.1 on which nothing listens, and that no other test is given.

    It is below the ephemeral ones, so that no connection takes it before the program does, and
    above those of the tests' Redis servers. The UDP port of the same number stays bound until this
    process ends, so that other processes take another one, even while the program is not running.

    bus -- how far above it another one must be free, too, as for the nodes of a Redis cluster
    """
    while True:
        port = random.SystemRandom().choice(ports)
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with claim, suppress(OSError):
            claim.bind(("127.0.0.1", port))
            for number in {port, port + bus}:
                socket.create_server(("127.0.0.1", number)).close()
            claim.detach()
            return port
