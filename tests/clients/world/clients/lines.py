"""Make the requests of standard input with a function of a client."""

import sys


def answer(send):
    """Make requests; `send` gets method, URL, body, headers, and returns status, body, headers."""
    for line in sys.stdin:
        count, method, url, body, *headers = line.rstrip("\n").split("\t")
        pairs = dict(header.split(": ", 1) for header in headers)
        for _ in range(int(count)):
            status, text, received = send(method, url, body.encode() or None, pairs)
            fields = (f"\t{name}: {value}" for name, value in received)
            sys.stdout.write(f"{status}\t{text}{''.join(fields)}\n")
        sys.stdout.flush()
