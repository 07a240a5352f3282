"""Pets and orders on Redis or Valkey: one server, behind Sentinel, or a Cluster."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from secrets import token_hex
from typing import Annotated

import hiredis
from msgspec import Meta, Struct
from msgspec.structs import replace

from petstore.contract import (
    Access,
    Backend,
    ChangeNeededError,
    Expected,
    SettingsError,
    StorageError,
    UnavailableError,
    WrongStoreError,
)
from petstore_redis import address
from petstore_redis.masters import Masters
from petstore_redis.packing import pack
from petstore_redis.replies import UnusableError
from petstore_redis.repository import RedisRepository
from petstore_redis.scripts import keys
from petstore_redis.store import RedisStore

__all__ = ["RedisRepository", "RedisSettings", "backend"]


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the servers are, and how the store is spread over them."""

    url: Annotated[
        str,
        Meta(
            min_length=1,
            description=f"a URL: {address.URL_FORMS}",
            examples=["redis://127.0.0.1:6379/0"],
        ),
    ]
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9._-]{1,99}\Z",
            description="the start of all keys: up to 99 letters, digits, '.', '_' and '-'",
        ),
    ] = "ps"
    partitions: Annotated[
        int,
        Meta(ge=1, le=1024, description="a number from 1 to 1024, fixed when the store is created"),
    ] = 1
    wait_replicas: Annotated[
        int,
        Meta(ge=0, le=100, description="a number from 0 to 100: how many replicas confirm a write"),
    ] = 0
    check: Annotated[
        bool, Meta(description="true or false: whether to check that enough replicas confirm")
    ] = False
    timeout_seconds: Annotated[float, Meta(ge=0.05, le=60, title="how long a call may take")] = 1


@asynccontextmanager
async def open_redis(settings: RedisSettings, expected: Expected) -> AsyncIterator[RedisRepository]:
    """Find the masters, check them, find the store or create it."""
    async with aclosing(_masters(settings, settings.wait_replicas)) as masters:
        store = RedisStore(masters)
        try:
            await masters.start(store.check_connection)
            await store.open(expected)
            if settings.check and settings.wait_replicas and expected.access is not Access.READ:
                await store.check_replicas()
        except UnusableError as error:
            raise SettingsError(*error.args) from None
        except (hiredis.ReplyError, ValueError) as error:  # what was edited by hand
            raise SettingsError(f"{masters.target.name}: {error}; restore a backup") from None
        except (WrongStoreError, ChangeNeededError):
            raise
        except UnavailableError as error:
            hint = "" if "PETSTORE_" in str(error) else " (PETSTORE_REDIS_URL)"
            raise UnavailableError(f"{error}{hint}") from None
        except StorageError as error:  # at start-up, any other is the deployer's to solve
            raise SettingsError(*error.args) from None
        yield RedisRepository(store)


@asynccontextmanager
async def scratch_redis(settings: RedisSettings) -> AsyncIterator[RedisSettings]:
    """Yield settings with a prefix that no store has, and remove its keys at the end."""
    scratch = replace(settings, prefix=f"{settings.prefix}.scratch-{token_hex(8)}")
    try:
        yield scratch
    finally:
        async with aclosing(_masters(scratch, 0)) as masters:
            await masters.start()
            for partition, names in enumerate(masters.keys):
                await masters.send(partition, pack("UNLINK", *names.values()), write=True)


def _masters(settings: RedisSettings, replicas: int) -> Masters:
    target = address.parse(settings.url)
    partition_keys = [keys(settings.prefix, partition) for partition in range(settings.partitions)]
    return Masters(target, partition_keys, settings.timeout_seconds, replicas)


backend = Backend(
    contract=2,
    settings=RedisSettings,
    open=open_redis,
    scratch=scratch_redis,
    shared=True,
    durable=True,
)
