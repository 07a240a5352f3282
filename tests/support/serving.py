"""Servers of the standard library, which tests run in a thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Let a server serve until the block is left."""
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
