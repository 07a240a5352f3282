"""Show how cost grows: with pets, connections, workers, keys, records, services, and bad inputs.

Run: .venv/bin/python -m benchmarks.growth [QUESTION ...] [--most N] [--seconds N] [--keep]

Needs wrk. Each point is kept as soon as it is measured, in build/bench/growth.jsonl, and a later
run on the same commit skips it. The end prints a table and draws a picture for each question; with
--keep they are also put where docs/size.md and its test find them.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Final

from benchmarks import curves, dear, moving, sizing
from benchmarks import measures as m
from benchmarks.curves import Case, Figures, Point
from benchmarks.figures import about
from benchmarks.load import PET
from benchmarks.stores import DAY, DURABLE, filled, location, long_named, put, records
from benchmarks.subjects import BUILD
from benchmarks.turns import others_seconds

MILLION: Final = 1_000_000


def sizes(most: int, *wanted: int) -> list[int]:
    """Return these sizes; those that are too large become the largest that is allowed."""
    return sorted({min(most, size) for size in wanted})


def pets(most: int, seconds: int) -> Iterator[Case]:
    """Show how costs and memory grow with the number of pets."""

    def measure(backend: str, count: int) -> Figures:
        with filled(backend, count) as (where, found):
            begin = time.monotonic()
            with where.service() as running:
                m.first_response(running)
                figures: Figures = {"start s": time.monotonic() - begin}
                if backend == "memory":
                    found["bytes a pet"] = m.grow(running, count)
                figures |= found | {"MiB idle": m.mib(running)}
                figures |= m.costs([running], where, m.reads(count), seconds)
                figures["get p50, p99"] = m.paced(running, m.get(count), 1000)
                for name, text in m.writes(running, where, count):
                    figures[name] = m.cost([running], where, text, seconds)
                figures["MiB after"] = m.mib(running)
                figures["stop s"] = m.stop(running)
            if backend != "memory":
                with where.service(WORKERS="2") as running:
                    m.first_response(running)
                    figures["replace s"] = m.replace(running)
        return figures

    for backend in ("sqlite", "postgres", "memory", "redis"):
        many = backend in ("sqlite", "postgres")  # they fill quickly, and on disk
        large = (3 * MILLION, 30 * MILLION) if many else (MILLION,)
        for count in sizes(most, 1000, 100_000, *large):
            yield backend, count, partial(measure, backend, count)


def connections(most: int, seconds: int) -> Iterator[Case]:
    """Show how a get grows with the number of connections."""

    def measure(count: int) -> Figures:
        with location("memory") as where, where.service() as running:
            m.first_response(running)
            m.grow(running, 10_000)
            get = m.get(10_000)
            return {
                "get": m.cost([running], where, m.script(get), seconds + 1, count),
                "get p50, p99": m.paced(running, get, 2000, count),
                "peak MiB": m.peak_bytes(running.process.pid) / m.MIB,
            }

    for count in sizes(most, 10, 1000, 10_000):
        yield "memory", count, partial(measure, count)


def workers(most: int, seconds: int) -> Iterator[Case]:
    """Show what more workers, which share a core and 48 clients, add to a request."""
    count = min(most, 100_000)

    def measure(backend: str, number: int) -> Figures:
        with filled(backend, count) as (where, _), where.service(WORKERS=str(number)) as running:
            m.first_response(running)
            used = m.costs([running], where, m.some(count), seconds)
            return used | {"MiB": m.mib(running)}

    for backend in DURABLE:
        for number in (1, 2, 4):
            yield backend, number, partial(measure, backend, number)


def tokens(most: int, seconds: int) -> Iterator[Case]:
    """Show how a create with a key grows with the records of tokens."""

    def measure(backend: str, count: int, *, expired: bool) -> Figures:
        with location(backend) as where:
            end = time.time() + (15 + count // 10_000 if expired else DAY)  # not while imported
            each, _ = put(where, records(count, int(end)))
            time.sleep(max(0, end + 1 - time.time()) if expired else 0)
            before, begin = where.stored(), time.monotonic()
            with where.service() as running:
                m.first_response(running)
                figures: Figures = {"start s": time.monotonic() - begin, "bytes a record": each}
                figures["create with key"] = m.cost([running], where, m.with_key(), seconds)
                return figures | {"MiB before, after": [before / m.MIB, where.stored() / m.MIB]}

    for backend in DURABLE:
        top = min(most, 300_000 if backend == "redis" else MILLION)
        for count in sizes(top, 1000, 86_400, top):
            yield backend, count, partial(measure, backend, count, expired=False)
        yield f"{backend}, expired", top, partial(measure, backend, top, expired=True)


def keys(most: int, seconds: int) -> Iterator[Case]:
    """Show how a get grows with the keys of the key file, and a rate limit that none reaches."""

    def measure(count: int) -> Figures:
        with location("memory") as where:
            file = where.directory / "keys"
            all_keys = (b"benchmark-key-%06d" % number for number in range(1, count + 1))
            digests = enumerate(hashlib.sha256(key).hexdigest() for key in all_keys)
            file.write_text("".join(f"client{i}:{digest}\n" for i, digest in digests))
            begin = time.monotonic()
            with where.service(API_KEYS_FILE=str(file), RATE_LIMIT="999999999/s") as running:
                m.first_response(running)
                figures: Figures = {"start s": time.monotonic() - begin}
                m.grow(running, 10_000)
                key = f"('Bearer benchmark-key-%06d'):format(math.random({count}))"
                text = f"""request = function()
                  wrk.headers['Authorization'] = {key}
                  return wrk.format({m.get(10_000)})
                end"""
                figures["get"] = m.cost([running], where, text, seconds)
                return figures | {"MiB": m.mib(running)}

    for count in sizes(most, 1, 100, 10_000):
        yield "memory", count, partial(measure, count)


def services(_: int, seconds: int) -> Iterator[Case]:
    """Show what more services of one store, with 48 clients each, take."""
    for backend in ("redis", "postgres"):
        for count in (1, 2, 4, 8):
            yield backend, count, partial(many, seconds, backend, count)


def topologies(_: int, seconds: int) -> Iterator[Case]:
    """Show more services in other topologies."""
    for kind in ("redis", "cluster-1", "cluster-2", "cluster-4", "postgres", "pgbouncer"):
        for count in (1, 2, 4) if kind.startswith("cluster") else (1, 2, 4, 8):
            yield kind, count, partial(many, seconds, kind, count)


def many(seconds: int, kind: str, count: int) -> Figures:
    """Return what so many services of one store take."""
    with filled(kind, 10_000) as (where, _), ExitStack() as stack:
        running = []
        for number in range(count):  # one after the other, for they share a core
            running.append(stack.enter_context(where.service(number)))
            m.first_response(running[-1])
        before, begin = sum(map(m.scheduled_ms, where.servers)), time.monotonic()
        time.sleep(4)
        idle = sum(map(m.scheduled_ms, where.servers)) - before
        figures: Figures = {"server idle, ms/s": idle / (time.monotonic() - begin)}
        figures |= m.costs(running, where, m.some(10_000), seconds)
        return figures | {"connections": m.established(where)}


def skew(most: int, seconds: int) -> Iterator[Case]:
    """Show what uneven stores, updates, and work beside them add to a request."""
    count, updates = min(most, 100_000), min(10 * most, MILLION)
    alone = ("as it is", "hot pet", "common status", "after updates", "names of 64 KB")

    def measure(backend: str, case: str) -> Figures:
        with filled(backend, count) as (where, _):
            texts = m.some(count)
            if case == "hot pet":
                texts["get"] = m.script("'GET', '/v1/pets/1'")
            elif case == "common status":
                texts["deep page"] = m.script(m.page(count // 2, "&status=available"))
            elif case == "after updates":
                dear.churn(where, count, updates)
            elif case == "names of 64 KB":
                put(where, long_named(count + 1, 1000))
                texts["get"] = m.script(f"'GET', '/v1/pets/' .. {count} + math.random(1000)")
                texts["deep page"] = m.script(f"'GET', '/v1/pets?limit=2&cursor=p{count:014x}'")
            beside = nullcontext() if case in alone else m.beside(where, case)
            with where.service() as running, beside:
                m.first_response(running)
                create = f"'POST', nil, nil, '{PET}'"
                return {
                    **m.costs([running], where, texts, seconds),
                    "get p50, p99": m.paced(running, m.get(count), 1000),
                    "create p50, p99": m.paced(running, create, 500),
                    "MiB": where.stored() / m.MIB,
                }

    for backend in DURABLE:
        for case in (*alone, "an export", "a backup", "a long reader"):
            if (backend, case) != ("redis", "a long reader"):  # it has no snapshots
                yield backend, case, partial(measure, backend, case)


QUESTIONS: Final[dict[str, Callable[[int, int], Iterator[Case]]]] = {
    "pets": pets,
    "dear": dear.dear,
    "connections": connections,
    "moving": moving.moving,
    **{one.__name__: one for one in (services, topologies, workers, tokens, keys, skew)},
}
TITLES: Final = {
    name: str(question.__doc__).strip().rstrip(".").removeprefix("Show ").capitalize()
    for name, question in QUESTIONS.items()
}


def main() -> None:
    """Measure what has not been measured on this commit, print tables, and draw."""
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    parser.add_argument("questions", nargs="*", help=", ".join(QUESTIONS))
    parser.add_argument("--most", type=int, default=3 * MILLION, help="the most pets of a store")
    parser.add_argument("--seconds", type=int, default=1, help="how long an operation is measured")
    parser.add_argument("--keep", action="store_true", help="for docs/size.md")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    facts = about()
    done = {(p.question, p.series, p.at) for p in curves.read() if p.commit == facts["commit"]}
    for question in options.questions or QUESTIONS:
        for series, at, measure in QUESTIONS[question](options.most, options.seconds):
            if (question, series, at) not in done:
                print(f"{datetime.now(UTC):%H:%M:%S} {question}: {series}, {at}", file=sys.stderr)
                before, begin = others_seconds(), time.monotonic()
                figures = measure()
                others = (others_seconds() - before) / (time.monotonic() - begin)
                about_it = facts["date"], facts["commit"], others
                curves.append(Point(question, series, at, *about_it, figures))
    curves.show(points := curves.read(), TITLES, keep=options.keep)
    print(sizing.needs(points))


if __name__ == "__main__":
    main()
