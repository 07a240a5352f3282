"""A server with TLS and a URL without, or the reverse: connecting only fails, so this finds out."""

import asyncio
import ssl

from petstore.contract import SettingsError
from petstore_redis.address import ServerAddress, Target, Topology
from petstore_redis.replies import server_name


async def check_transport(target: Target, seconds: float) -> None:
    """Try the servers that could not be used without TLS instead of with it, or the reverse.

    seconds -- how long that may take

    Raises `SettingsError` if one of them can be used so.
    """
    kind = "" if target.topology is Topology.SINGLE else f"+{target.topology.name.lower()}"
    plain, secure = f"redis{kind}://", f"rediss{kind}://"
    addresses = [address for address in target.addresses if address[1]]  # no Unix sockets
    tries = (_succeeds(address, seconds, plainly=bool(target.tls)) for address in addresses)
    for address, succeeds in zip(addresses, await asyncio.gather(*tries), strict=True):
        if succeeds and target.tls:
            raise SettingsError(
                f"{server_name(address)} has no TLS: PETSTORE_REDIS_URL must begin with {plain},"
                f" not with {secure}"
            )
        if succeeds:
            raise SettingsError(
                f"{server_name(address)} expects TLS: PETSTORE_REDIS_URL must begin with {secure},"
                f" not with {plain}"
            )


async def _succeeds(address: ServerAddress, seconds: float, *, plainly: bool) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await (_speaks_plainly(*address) if plainly else _speaks_tls(*address))
    except OSError:  # TimeoutError is one
        return False


async def _speaks_plainly(host: str, port: int) -> bool:
    """Return whether it replies to PING, if only to ask for a password."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"PING\r\n")
        return await reader.read(1) in (b"+", b"-")
    finally:
        writer.transport.abort()


async def _speaks_tls(host: str, port: int) -> bool:
    """Return whether it replies to a TLS handshake, if only with an alert; trust no certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    writer.transport.abort()
    return True
