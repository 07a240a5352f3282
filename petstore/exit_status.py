"""The exit statuses of the petstore command, besides 0; most are those of sysexits.h."""

from typing import Final

DIFFERENT: Final = 1
"""`petstore verify` has found differences."""

CONFIGURATION: Final = 2
"""A setting or an option is wrong."""

INVALID_DATA: Final = 65
"""A line of a file is malformed, or the storage refuses it (EX_DATAERR)."""

UNAVAILABLE: Final = 69
"""The storage cannot be reached, or a worker cannot start (EX_UNAVAILABLE)."""

NOT_WRITTEN: Final = 74
"""The output cannot be written, or its reader is gone (EX_IOERR)."""

INTERRUPTED: Final = 130
"""Ctrl-C: 128 and the number of SIGINT, as shells have it."""
