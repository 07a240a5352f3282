"""Make the requests of standard input with a function of a client."""

import sys
from concurrent.futures import ThreadPoolExecutor


def answer(send):
    """Make requests; `send` gets method, URL, body, headers, and returns status, body, headers."""
    with ThreadPoolExecutor() as pool:
        for line in sys.stdin:
            count, parallel, seconds, method, url, body, *headers = line.rstrip("\n").split("\t")
            pairs = dict(header.split(": ", 1) for header in headers)
            arguments = (method, url, body.encode() or None, pairs, float(seconds))
            calls = [arguments] * int(count)
            mapped = pool.map if parallel else map
            sys.stdout.writelines(mapped(lambda call: fields(send, call), calls))
            sys.stdout.flush()


def fields(send, call):
    """Make a request; return the line for its response, or for what `send` raised."""
    try:
        status, text, received = send(*call)
    except Exception as error:
        return f"0\t{type(error).__name__}\n"
    return "\t".join([f"{status}", text, *map(": ".join, received)]) + "\n"
