"""What holds for all tests: neither a busy machine nor a run in the background is a failure."""

import os
import signal

from hypothesis import HealthCheck, settings

from tests.support.waiting import PATIENCE

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell makes what runs in its background ignore these; programs inherit that, but no handler.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

os.environ.setdefault("PYTEST_TIMEOUT", f"{600 * PATIENCE}")  # read by pytest-timeout
