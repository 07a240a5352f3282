"""The requests that wrk sends to a server, and the figures of one turn."""

import json
import subprocess
import time
from collections import Counter
from tempfile import NamedTemporaryFile
from urllib.request import Request, urlopen

from benchmarks.smoke import PETS
from benchmarks.subjects import BUILD, KEY, Running

CONNECTIONS = 48

DONE = """
done = function(summary, latency)
  local e = summary.errors
  print(string.format('DONE %d %d %d %d %d %d %d', summary.requests, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
"""
RANDOM = """
local requests = {{}}
init = function()
  for i = 1, {n} do requests[i] = wrk.format('GET', {path}) end
end
request = function() return requests[math.random({n})] end
"""
RATE = """
local ffi = require('ffi')
ffi.cdef('typedef struct {{ long s, ns; }} timespec; int clock_gettime(int, timespec *);')
local clock, begin, slots, sent, threads = ffi.new('timespec'), nil, 0, {{}}, {{}}
took = {{}}
local function now()
  ffi.C.clock_gettime(1, clock)
  return tonumber(clock.s) * 1e6 + tonumber(clock.ns) / 1e3
end
local function due(slot) return begin + slot * 1e6 / {rate} end
setup = function(thread) table.insert(threads, thread) end
delay = function()  -- a connection is idle: it takes the next slot, be it late or early
  begin = begin or now() + 1e5
  slots = slots + 1
  return math.max(0, (due(slots) - now()) / 1e3)
end
request = function()
  table.insert(sent, now())
  local n = {number} + #sent
  wrk.headers['Content-Type'], wrk.headers['X-Request-Id'] = 'application/json', #sent
  return wrk.format({request})
end
response = function(status, headers)
  local slot = tonumber(headers['x-request-id'] or headers['X-Request-Id'])
  local from = sent[slot] - due(slot) < 2e3 and sent[slot] or due(slot)
  took[slot] = now() - from
end
done = function(summary)
  local took, sorted, e = threads[1]:get('took'), {{}}, summary.errors
  for slot = {first}, {last} do table.insert(sorted, took[slot] or math.huge) end
  table.sort(sorted)
  local function percentile(p) return sorted[math.ceil(#sorted * p)] end
  print('DONE', e.status + e.connect + e.read + e.write + e.timeout,
    percentile(.5), percentile(.99), percentile(.999))
end
"""
"""Each connection that is idle takes the next slot of one schedule, so that requests are sent at a
fixed rate as long as there is an idle one. The request id says which slot a response belongs to.

Time counts from when a request was due, so that those that had to wait for a connection count in
full. If it was sent less than 2 ms late, it counts from then: wrk's timers tick by the millisecond.
"""

NUMBERED = """
local count, ids = FIRST, {}
for id in io.lines('IDS') do table.insert(ids, id) end
wrk.headers['Content-Type'] = 'application/json'
request = function()
  count = count + 1
  if count == #ids then wrk.thread:stop() end
  local n = ids[count] or count
  wrk.headers['Idempotency-Key'] = KEY
  return wrk.format(REQUEST)
end
"""


def random_paths(path: str) -> str:
    """Return a wrk script that picks requests at random; `path` is a Lua expression of `i`."""
    return RANDOM.format(n=PETS, path=path)


PET = '{"name":"pet01234","categoryId":7,"status":"available"}'
ORDER = """'POST', '/v1/store/orders', nil, '{"petId":' .. n .. '}'"""
COMPLETE = """'PATCH', '/v1/store/orders/' .. n, nil, '{"status":"completed"}'"""
GET = f"'GET', '/v1/pets/' .. math.random({PETS})"
GOOD = {
    "get": random_paths("'/v1/pets/' .. i"),
    "list 20": random_paths("'/v1/pets?cursor=p' .. string.format('%014x', i)"),
    "filtered list": random_paths("'/v1/pets?status=sold&cursor=p' .. string.format('%014x', i)"),
    "create": "wrk.method = 'POST'; wrk.headers['Content-Type'] = 'application/json'; "
    f"wrk.body = '{PET}'",
}
WRITES = {
    "create with key": f"'POST', nil, nil, '{PET}'",
    "order": ORDER,
    "order with key": ORDER,
    "complete": COMPLETE,
}
"""The arguments of wrk.format, where `n` is a number that no request has had before: the id of one
of the pets that turns of creates have made, or of an order. So they take turns in this order."""
LISTS = {ORDER: "/v1/pets?status=available", COMPLETE: "/v1/store/orders?status=placed"}
MOST = 60_000  # how many ids are listed for each second: more than any storage takes orders


def wrk(server: Running, text: str, connections: int, seconds: int) -> list[float]:
    """Run wrk with a script on the second core; return its figures."""
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    command += ["--timeout", "60"]  # a slow server has latencies, not errors
    command += ["-H", f"Authorization: Bearer {KEY}", f"{server.url}/v1/pets"]
    with NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(text)
        script.flush()
        command += ["-s", script.name]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(word) for word in run.stdout.rpartition("DONE")[2].split()]


def listed(server: Running, path: str, most: int) -> list[str]:
    """Return the first ids of a list."""
    ids = list[str]()
    while len(ids) < most:
        cursor = f"{'o' if 'orders' in path else 'p'}{int(ids[-1]) if ids else 0:014x}"
        url = f"{server.url}{path}&limit=100&cursor={cursor}"
        with urlopen(Request(url, headers={"Authorization": f"Bearer {KEY}"})) as response:  # noqa: S310
            page = json.load(response)
        if not page:
            break
        ids += [str(item["id"]) for item in page]
    return ids


class Load:
    """wrk on the second core, for some seconds."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._numbers: dict[tuple[str, str], int] = {}
        self._created = Counter[str]()

    def __call__(self, server: Running, operation: str, seconds: int = 0) -> dict[str, float]:
        """Return the figures of one turn at saturation: all connections always wait for a response.

        Raises `RuntimeError` for unexpected responses.
        """
        script = self._number(server, operation) if operation in WRITES else GOOD[operation]
        # Creates take longer than orders, so that there are enough pets for them.
        seconds = seconds or self.seconds + operation.startswith("create")
        cpu = server.cpu_seconds()
        figures = wrk(server, script + DONE, CONNECTIONS, seconds)
        cpu = server.cpu_seconds() - cpu
        completed, microseconds, refused, broken, *latencies = figures
        if broken or refused:
            raise RuntimeError(f"{server.subject.title}, {operation}: {figures}")
        if operation.startswith("create"):
            self._created[server.url] += int(completed)
        if operation in WRITES:
            self._numbers[server.url, WRITES[operation]] += int(completed) + CONNECTIONS + 1
        return {
            "rate": completed / microseconds * 1e6,
            "cpu": cpu / completed * 1e6,
            "requests": completed,
            **percentiles(latencies),
        }

    def _number(self, server: Running, operation: str) -> str:
        """Return a script whose requests have ids that are listed, or else new numbers."""
        request, first, ids = WRITES[operation], self._last(server, operation), list[str]()
        if request in LISTS:
            first, ids = 0, listed(server, LISTS[request], MOST * self.seconds)
        path = BUILD / "ids.txt"
        path.write_text("\n".join(ids))
        key = f"'{time.time_ns()}-' .. n" if operation.endswith("key") else "nil"
        script = NUMBERED.replace("FIRST", str(first)).replace("IDS", str(path))
        return script.replace("KEY", key).replace("REQUEST", request)

    def _last(self, server: Running, operation: str) -> int:
        """Return the last number of earlier turns."""
        request = WRITES[operation]
        before = 0 if request == COMPLETE else PETS + CONNECTIONS  # some, made by the first check
        return self._numbers.setdefault((server.url, request), before)

    def at_rate(
        self, server: Running, rate: int, connections: int, operation: str = "get"
    ) -> dict[str, float]:
        """Return the latencies of gets or orders that are sent at a fixed rate.

        The first and the last half second are not counted; a request of the time between that has
        no response at the end took infinitely long. Raises `RuntimeError` for unexpected responses.
        """
        slots = {"first": rate // 2, "last": rate // 2 + rate * self.seconds - 1}
        number, request = 0, GET
        if operation in WRITES:
            number, request = self._last(server, operation), WRITES[operation]
            self._numbers[server.url, request] += rate * (self.seconds + 1) + connections
            while PETS + self._created[server.url] < self._numbers[server.url, request]:
                self(server, "create")
        script = RATE.format(rate=rate, number=number, request=request, **slots)
        broken, *latencies = wrk(server, script, connections, self.seconds + 1)
        if broken:
            raise RuntimeError(f"{server.subject.title}, {rate} a second: {broken:.0f} errors")
        return percentiles(latencies)


def percentiles(microseconds: list[float]) -> dict[str, float]:
    """Return three latencies in milliseconds."""
    return dict(zip(("p50", "p99", "p999"), (us / 1000 for us in microseconds), strict=True))
