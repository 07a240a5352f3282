"""What databases take without a service: their own load generators, and SQLite in this process.

`benchmarks.backends` lets them take turns with services, at get and create.
"""

import random
import re
import resource
import subprocess
import time
from functools import partial
from pathlib import Path

import apsw

from benchmarks.load import CONNECTIONS
from benchmarks.subjects import BUILD, Subject
from benchmarks.turns import Floor, Measure

SELECT = "SELECT id, name, category_id, status FROM pets WHERE id = {}"
INSERT = "INSERT INTO pets (name, category_id, status) VALUES ('pet01234', 7, 'available')"
ID = "\\set id{} random(1, 10000)\n"
PLAIN = {"get": ID.format("") + SELECT.format(":id"), "create": f"{INSERT} RETURNING id"}
FILLED = (
    "CREATE TABLE pets (id {}, name text NOT NULL, category_id bigint NOT NULL, status text)",
    "CREATE INDEX pets_by_status ON pets (status, id) WHERE status IS NOT NULL",
    """INSERT INTO pets (name, category_id, status)
    WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 9999)
    SELECT 'pet' || substr('0000' || n, length('0000' || n) - 4), n % 10,
    CASE n % 3 WHEN 0 THEN 'available' WHEN 1 THEN 'pending' ELSE 'sold' END FROM r ORDER BY n""",
)
"""Statements that make a plain table of the pets that subjects start with."""


def floor(name: str, title: str, measure: Measure) -> Floor:
    """Return a floor."""
    return Floor(Subject(name, title, [], only=("get", "create")), measure)


def functions(count: int) -> dict[str, str]:
    """Return petstore's statements for so many items at once, as scripts of pgbench."""
    ids = ", ".join(f":id{n}" for n in range(count))
    columns = ("7", "bigint"), ("'pet01234'", "bytea"), ("'available'", "text")
    arrays = (f"ARRAY[{', '.join([value] * count)}]::{kind}[]" for value, kind in columns)
    call = "SELECT * FROM petstore.{}({})".format
    set_ids = "".join(map(ID.format, range(count)))
    return {
        "get": set_ids + call("get_pets", f"ARRAY[{ids}]::bigint[]"),
        "create": call("create_pets", ", ".join(arrays)),
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


def pgbench(seconds: int, url: str, scripts: dict[str, str], items: int = 1) -> Measure:
    """Return what measures scripts of so many items, on 8 connections, petstore's default."""

    def measure(operation: str) -> dict[str, float]:
        script = BUILD / "pgbench.sql"
        script.write_text(scripts[operation] + ";")
        command = f"pgbench -n -M prepared -c 8 -T {seconds} -f {script} {url}"
        output, cpu = client(*command.split())
        count, rate = re.findall(r"(?:processed: |tps = )([\d.]+)", output)
        return figures(items * int(count), int(count) / float(rate), cpu)

    return measure


def redis_benchmark(port: int) -> Measure:
    """Return what measures gets and sets of 60 bytes, on as many connections as wrk has."""
    key, count = "pet:__rand_int__", 50_000

    def measure(operation: str) -> dict[str, float]:
        words = f"get {key}" if operation == "get" else f"set {key} {'x' * 60}"
        load = f"redis-benchmark -p {port} -c {CONNECTIONS} -n {count} -r 10000 -q {words}"
        output, cpu = client(*load.split())
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
    get = partial(connection.execute, SELECT.format("?"))

    def measure(operation: str) -> dict[str, float]:
        begin, cpu, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() < begin + seconds:
            for _ in range(10):
                if operation == "get":
                    get((random.randint(1, 10_000),)).fetchall()
                else:
                    connection.execute(INSERT)
            count += 10
        return figures(count, time.monotonic() - begin, time.process_time() - cpu)

    return measure
