"""Wait for a store that is starting, and explain what keeps it from answering: `sluice store … --wait`."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from apiserver.config import store_address
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected, pack
from apiserver.storage.primaries.parts import parts

PAUSE_SECONDS = 1.0
_FINAL = ("invalid username-password", "Authentication required", "NOPERM", "permissions", "certificate verify failed")
"""Refusals that do not go away with time, in redis-py's words: it strips some first words."""


async def wait(options: StoreOptions, *, seconds: float, tell: Callable[[str], None]) -> None:
    """Wait until the store answers. Report each reason once while it lasts. Raises Rejected with the last reason at the end."""
    loop = asyncio.get_running_loop()
    until, told = loop.time() + seconds, ""
    while True:
        try:
            return await _answers(options)
        except Rejected as refused:
            said = str(refused)
        if any(word in said for word in _FINAL):
            raise Rejected(said)
        reason = "; ".join(filter(None, (said, await _probable(options))))
        if loop.time() + PAUSE_SECONDS > until:
            raise Rejected(f"the store did not answer within {seconds:g} s: {reason}")
        if reason != told:
            tell(f"waiting: {reason}")
            told = reason
        await asyncio.sleep(PAUSE_SECONDS)


async def _answers(options: StoreOptions) -> None:
    for part in await parts(options, ()):
        with part.named():
            connection = await Connection.open(part.options, "sluice-wait")
        try:
            async with asyncio.timeout(options.reply_seconds):
                await connection.call(pack("PING"))
        except TimeoutError:
            raise Rejected(f"no answer from the store within {options.reply_seconds:g} s") from None
        finally:
            await connection.close()


async def _probable(options: StoreOptions) -> str:
    """Return the probable cause, from a DNS look-up of the store's host."""
    found = store_address.parse(options.url)
    address = urlsplit(found.url or found.of_sentinel((found.sentinels or found.cluster)[0]))
    if address.scheme == "unix":
        return ""
    host = address.hostname or "localhost"
    if _is_ip(host):
        return ""
    try:
        async with asyncio.timeout(options.connect_seconds):
            await asyncio.get_running_loop().getaddrinfo(host, address.port or 6379)
    except TimeoutError:
        return _no_dns(host)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return _no_dns(host)
        return (
            f"DNS has no address for {host}: that of a headless Service comes when its pod is ready, and a pod that stays Pending "
            "often waits for its volume, which needs a default StorageClass (kubectl get pods,pvc)"
        )
    return f"DNS knows {host}: its pod may be starting, or a NetworkPolicy may be in between"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _no_dns(host: str) -> str:
    return f"DNS does not answer for {host}: the cluster needs a DNS, and this process must reach it"
