"""The limits of a process that it inherits: what is too low is found at the start, in one line."""

import resource

from petstore.config.errors import ConfigurationError
from petstore.http.limits import shared_counters_bytes
from petstore.store.shared import shared_store_bytes


def check_limits(workers: int) -> None:
    """Check that so many workers can serve a few clients. Raises `ConfigurationError`."""
    # A file, which each worker maps.
    shared = shared_counters_bytes(workers) + shared_store_bytes(workers) if workers > 1 else 0
    for limit, least, what in (
        (resource.RLIMIT_NOFILE, 64 + 2 * workers, "open files (ulimit -n)"),
        (resource.RLIMIT_NPROC, 8 + 4 * workers, "processes and threads (ulimit -u)"),
        (resource.RLIMIT_AS, 400 * 2**20 + shared, "bytes of address space (ulimit -v)"),
        (resource.RLIMIT_FSIZE, 2**20 + shared, "bytes in a file (ulimit -f)"),
    ):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY and most < least:
            raise ConfigurationError(f"the limit is {most:,} {what}; at least {least:,} are needed")
