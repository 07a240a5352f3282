"""Compare latencies at a fixed rate: of gets, with few connections and with many, and of orders.

Run: .venv/bin/python -m benchmarks.latency [--rate N] [--orders N] [--seconds N] [--rounds N]

Gets of random pets by subjects of `benchmarks.peers`, at a rate that leaves room, the same for all
(about half of what the slowest serves); then orders by the service on each backend. Time counts
from when a request was due. Only wrk can be scripted to spread a rate over 1,000 connections:
h2load and autocannon send in bursts, hey waits for responses.
"""

import argparse
from functools import partial

from benchmarks.backends import databases
from benchmarks.figures import kept, middle
from benchmarks.load import CONNECTIONS, Load
from benchmarks.subjects import ALL, named, prepare
from benchmarks.turns import Cases, compare, keep

COUNTS = (CONNECTIONS, 1000)
# One does not look up pets; FastAPI tells the same as the other.
NAMES = tuple(one.name for one in ALL if one.name not in ("nginx", "litestar"))


def half_of_slowest() -> int:
    """Return half of the rate at which the slowest in the last run of `benchmarks.peers` served."""
    raw = kept("peers")
    rates = (middle(raw, name, "get", "rate") for name in raw["figures"]) if raw else ()
    return int(min((rate for rate in rates if rate), default=8000) / 200) * 100


def main() -> None:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.latency", description=__doc__)
    parser.add_argument("--rate", type=int, help="of gets; default: half of the slowest peer's")
    parser.add_argument("--orders", type=int, default=1000, help="the rate of orders")
    parser.add_argument("--seconds", type=int, default=2, help="how long the rate is measured")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    load, rate = Load(options.seconds), options.rate or half_of_slowest()
    gets: Cases = {
        str(count): partial(load.at_rate, rate=rate, connections=count) for count in COUNTS
    }
    raw = compare(*prepare(named(NAMES)), gets, options.rounds)
    order = partial(load.at_rate, rate=options.orders, connections=CONNECTIONS, operation="order")
    with databases() as data:
        orders = compare(*prepare(data.services()), {"order": order}, options.rounds)
    keep("latency", raw | {"rate": rate, "order rate": options.orders, "orders": orders})


if __name__ == "__main__":
    main()
