"""Animals and orders on Redis or Valkey: one server, behind Sentinel, or a Cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace
from redis.crc import key_slot

from petstore.contract import Backend, SettingsError, StorageError, UnavailableError
from petstore_redis import address, opening, scripts
from petstore_redis.masters import Masters
from petstore_redis.repository import RedisRepository

__all__ = ["RedisRepository", "RedisSettings", "backend"]


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the servers are, and how the store lies on them."""

    url: Annotated[str, Meta(min_length=1, description=f"a URL: {address.FORMS}")]
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9._-]{1,99}\Z",
            description="up to 99 letters, digits, '.', '_' and '-': with what keys begin",
        ),
    ] = "ps"
    partitions: Annotated[
        int, Meta(ge=1, le=1024, description="a number from 1 to 1024, fixed when a store is made")
    ] = 1
    wait_replicas: Annotated[
        int, Meta(ge=0, le=100, description="how many replicas must have a write: 0 to 100")
    ] = 0
    timeout_seconds: Annotated[
        float, Meta(ge=0.05, le=60, description="a number of seconds from 0.05 to 60")
    ] = 1


@asynccontextmanager
async def open_redis(
    settings: RedisSettings, *, guard: bool = True
) -> AsyncIterator[RedisRepository]:
    """Find the masters, look at them, make or upgrade the store.

    guard -- False for tests on servers that know no INFO

    Raises `SettingsError` for what the deployer must cure, `UnavailableError` for a server that
    cannot be reached.
    """
    known = scripts.Scripts(guard=guard)
    async with _masters(settings, settings.wait_replicas) as (masters, keys, name):
        try:
            await masters.start()
            if guard:
                await opening.check_servers(masters)
            await opening.begin(masters, known, keys)
        except UnavailableError:
            raise
        except StorageError as error:  # at the start, all else is for the deployer to cure
            raise SettingsError(*error.args) from None
        repository = RedisRepository(masters, known, keys, name)
        try:
            yield repository
        finally:
            repository.close()


@asynccontextmanager
async def scratch_redis(settings: RedisSettings) -> AsyncIterator[RedisSettings]:
    """Yield settings with a prefix of their own, and remove its keys in the end."""
    scratch = replace(settings, prefix=f"{settings.prefix}.scratch-{token_hex(8)}")
    try:
        yield scratch
    finally:
        async with _masters(scratch, 0) as (masters, keys, _):
            await masters.start()
            for partition, of_partition in enumerate(keys):
                await masters.write(partition, "UNLINK", *of_partition.values())


@asynccontextmanager
async def _masters(
    settings: RedisSettings, replicas: int
) -> AsyncIterator[tuple[Masters, list[dict[str, str]], str]]:
    """Yield the masters, the keys of each partition, and what messages call the storage."""
    target = address.parse(settings.url)
    keys = [scripts.keys(settings.prefix, number) for number in range(settings.partitions)]
    slots = [key_slot(of_partition["meta"].encode()) for of_partition in keys]
    masters = Masters(target, slots, settings.timeout_seconds, replicas)
    try:
        yield masters, keys, target.name
    finally:
        await masters.close()


backend = Backend(
    contract=1,
    settings=RedisSettings,
    open=open_redis,
    scratch=scratch_redis,
    shared=True,
    durable=True,
)
