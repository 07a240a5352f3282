"""Plugins for services that run on a repository which the test has made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from petstore_memory import MemorySettings
from petstore_memory import backend as memory

from petstore.config.discovery import Plugin
from petstore.contract import Expected, Repository


def plugin_of(repository: Repository) -> Plugin:
    """Return a plugin whose backend yields this repository."""

    @asynccontextmanager
    async def open_(_: MemorySettings, __: Expected) -> AsyncIterator[Repository]:
        yield repository

    return Plugin("test", "petstore-test", "0", msgspec.structs.replace(memory, open=open_))
