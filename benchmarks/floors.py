"""What databases take without a service: their own load generators, and SQLite in this process.

`benchmarks.backends` lets them take turns with services, at get, create and order. A plain order
changes a random pet on a condition and inserts a row, in one transaction or one script. The pet's
status goes to and fro, so that each order finds one that it can change.
"""

import random
import re
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from benchmarks.load import CONNECTIONS
from benchmarks.subjects import BUILD, Subject
from benchmarks.turns import Floor, Measure

SELECT = "SELECT id, name, category_id, status FROM pets WHERE id = {}"
INSERT = "INSERT INTO pets (name, category_id, status) VALUES ('pet01234', 7, 'available')"
ID = "\\set id{} random(1, 10000)\n"
RESERVE = """UPDATE pets SET status = CASE status WHEN 'available' THEN 'pending'
    ELSE 'available' END WHERE id = {0} AND status IS NOT NULL"""
PLACE = "INSERT INTO orders (pet_id, status, placed_at) VALUES ({0}, 'placed', CURRENT_TIMESTAMP)"
ORDER = f"BEGIN; {RESERVE}; {PLACE} RETURNING id; COMMIT"
PLAIN = {
    "get": ID.format("") + SELECT.format(":id"),
    "create": f"{INSERT} RETURNING id",
    "order": ID.format("") + ORDER.format(":id"),
}
SCRIPT = """local pet = redis.call('GET', KEYS[1])
if not pet then return false end
redis.call('SET', KEYS[1], pet)
local id = redis.call('INCR', 'orders')
redis.call('SET', 'order:' .. id, pet)
return id"""
FILLED = (
    "CREATE TABLE pets (id {}, name text NOT NULL, category_id bigint NOT NULL, status text)",
    "CREATE INDEX pets_by_status ON pets (status, id) WHERE status IS NOT NULL",
    """CREATE TABLE orders (id {}, pet_id bigint NOT NULL REFERENCES pets (id),
    status text NOT NULL, placed_at timestamptz NOT NULL)""",
    """INSERT INTO pets (name, category_id, status)
    WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 9999)
    SELECT 'pet' || substr('0000' || n, length('0000' || n) - 4), n % 10,
    CASE n % 3 WHEN 0 THEN 'available' WHEN 1 THEN 'pending' ELSE 'sold' END FROM r ORDER BY n""",
)
"""Statements that make a plain table of the pets that subjects start with."""


def floor(name: str, title: str, measure: Measure) -> Floor:
    """Return a floor."""
    return Floor(Subject(name, title, [], only=tuple(PLAIN)), measure)


def functions(count: int) -> dict[str, str]:
    """Return petstore's statements for so many items at once, as scripts of pgbench."""
    ids = ", ".join(f":id{n}" for n in range(count))
    columns = ("7", "bigint"), ("'pet01234'", "bytea"), ("'available'", "text")
    arrays = (f"ARRAY[{', '.join([value] * count)}]::{kind}[]" for value, kind in columns)
    call = "SELECT * FROM petstore.{}({})".format
    set_ids = "".join(map(ID.format, range(count)))
    free = "".join(
        f"\\set id{n} FIRST + (:n * 8 + :client_id) * {count} + {n}\n" for n in range(count)
    )
    kinds = "bytea", "bytea", "bigint", "bigint"
    nothing = ", ".join(f"ARRAY[{', '.join(['NULL'] * count)}]::{kind}[]" for kind in kinds)
    moments = f"ARRAY[{', '.join(['now()'] * count)}]"
    order = call("place_orders", f"ARRAY[{ids}]::bigint[], {moments}, {nothing}, 0")
    return {
        "get": set_ids + call("get_pets", f"ARRAY[{ids}]::bigint[]"),
        "create": call("create_pets", ", ".join(arrays)),
        # It fails if it refuses an order.
        "order": "\\set n :n + 1\n" + free + order.replace("*", "1 / (outcome = 'done')::int", 1),
    }


def figures(count: int, seconds: float, cpu: float) -> dict[str, float]:
    """Return the figures of one turn."""
    return {"rate": count / seconds, "cpu": cpu / count * 1e6, "requests": count}


def client(*command: str) -> tuple[str, float]:
    """Run a load generator on the second core; return its output and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    taskset = ("taskset", "-c", "1", *command)
    output = subprocess.run(taskset, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pgbench(
    seconds: int,
    url: str,
    scripts: dict[str, str],
    items: int = 1,
    first: Callable[[], int] = lambda: 0,
) -> Measure:
    """Return what measures scripts of so many items, on 8 connections, petstore's default.

    first -- returns what stands for FIRST in a script: the first pet that nobody has ordered
    """

    def measure(operation: str) -> dict[str, float]:
        script = BUILD / "pgbench.sql"
        script.write_text(scripts[operation].replace("FIRST", str(first())) + ";")
        command = f"pgbench -n -M prepared -c 8 -D n=-1 -T {seconds} -f {script} {url}"
        output, cpu = client(*command.split())
        count, rate = re.findall(r"(?:processed: |tps = )([\d.]+)", output)
        return figures(items * int(count), int(count) / float(rate), cpu)

    return measure


def redis_benchmark(port: int) -> Measure:
    """Return what measures gets, sets of 60 bytes, a script; as many connections as wrk has."""
    key, count = "pet:__rand_int__", 50_000
    commands = {
        "get": ("get", key),
        "create": ("set", key, "x" * 60),
        "order": ("eval", SCRIPT, "1", key),
    }

    def measure(operation: str) -> dict[str, float]:
        load = f"redis-benchmark -p {port} -c {CONNECTIONS} -n {count} -r 10000 -q".split()
        output, cpu = client(*load, *commands[operation])
        return figures(
            count, count / float(re.findall(r"([\d.]+) requests per s", output)[-1]), cpu
        )

    measure("create")  # so that gets find something
    return measure


def sqlite(path: Path, seconds: int) -> Measure:
    """Return what measures statements in this process, one after the other, each synced."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "FULL")
    for statement in FILLED:
        connection.execute(statement.format("INTEGER PRIMARY KEY AUTOINCREMENT"))

    statements = {
        "get": SELECT.format(":id"),
        "create": INSERT,
        "order": ORDER.format(":id"),
    }

    def measure(operation: str) -> dict[str, float]:
        statement = statements[operation]
        begin, cpu, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() < begin + seconds:
            for _ in range(10):
                connection.execute(statement, {"id": random.randint(1, 10_000)}).fetchall()
            count += 10
        return figures(count, time.monotonic() - begin, time.process_time() - cpu)

    return measure
