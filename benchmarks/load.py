"""The requests that wrk sends to a server, and the figures of one turn."""

import subprocess

from benchmarks.contestants import BUILD, KEY, Running
from benchmarks.smoke import PETS

CONNECTIONS = 48

DONE = """
done = function(summary, latency)
  local e = summary.errors
  print(string.format('DONE %d %d %d %d %d %d', summary.requests, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""
RANDOM = """
local requests = {{}}
init = function()
  for i = 1, {n} do requests[i] = wrk.format('GET', {path}) end
end
request = function() return requests[math.random({n})] end
"""


def random_paths(path: str) -> str:
    """Return a wrk script that picks requests at random; `path` is a Lua expression of `i`."""
    return RANDOM.format(n=PETS, path=path)


GOOD = {
    "get": random_paths("'/v1/pets/' .. i"),
    "list 20": random_paths("'/v1/pets?cursor=p' .. string.format('%014x', i)"),
    "filtered list": random_paths("'/v1/pets?status=sold&cursor=p' .. string.format('%014x', i)"),
    "create": "wrk.method = 'POST'; wrk.headers['Content-Type'] = 'application/json'; "
    'wrk.body = \'{"name":"pet01234","categoryId":7,"status":"available"}\'',
}
REFUSED = {
    "400 (limit=0)": random_paths("'/v1/pets?limit=0'"),
    "401 (wrong key)": "wrk.headers['Authorization'] = 'Bearer wrong'"
    + random_paths("'/v1/pets/' .. i"),
    "404 (no such pet)": random_paths("'/v1/pets/' .. (90000000 + i)"),
}


class Load:
    """wrk on the second core."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __call__(self, server: Running, operation: str, seconds: int = 0) -> dict[str, float]:
        """Return the figures of one turn. Raises `RuntimeError` for unexpected responses."""
        script = BUILD / "load.lua"
        script.write_text((GOOD | REFUSED)[operation] + DONE)
        command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{CONNECTIONS}", "-s", str(script)]
        command += [f"-d{seconds or self.seconds}s", "-H", f"Authorization: Bearer {KEY}"]
        cpu = server.cpu_seconds()
        run = subprocess.run(
            [*command, f"{server.url}/v1/pets"], capture_output=True, text=True, check=True
        )
        cpu = server.cpu_seconds() - cpu
        counted = run.stdout.rpartition("DONE ")[2].split()
        completed, microseconds, refused, broken, p50, p99 = (int(word) for word in counted)
        if broken or refused != (completed if operation in REFUSED else 0):
            raise RuntimeError(f"{server.contestant.title}, {operation}: {run.stdout}")
        return {
            "rate": completed / microseconds * 1e6,
            "cpu": cpu / completed * 1e6,
            "p50": p50 / 1000,
            "p99": p99 / 1000,
        }
