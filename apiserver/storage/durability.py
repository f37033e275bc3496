"""Let replicas confirm writes before they are acknowledged (`--store-durability`).

A primary answers before its replicas have a write, so a failover can lose what it answered. WAIT, sent behind writes on the same
connection, returns how many replicas have them. It knows only what its own connection wrote.

    primary   acknowledge what the primary has on disk
    replica   one replica too: nothing acknowledged is lost with the primary
    all       every replica that the sentinels or the cluster know: nothing acknowledged is lost in any failover, and writes stop while one
              is missing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from apiserver.config import store_address
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack

PRIMARY, REPLICA, ALL = "primary", "replica", "all"

CONFIRM_SECONDS = 1.0
"""Replicas get this long to confirm a write. They need a round trip, and a write of their own disk with `appendfsync always`."""
IN_STEP_SECONDS = 2
"""A replica tells its offset every second. One that has been silent for longer than this is not in step (as in `functions.lua`)."""

REPLICATION = pack("INFO", "replication")


def of(options: StoreOptions) -> str:
    """Return the durability that applies: sentinels and clusters know replicas, so a store that has them waits for one unless told
    otherwise.
    """
    address = store_address.parse(options.url)
    return options.durability or (REPLICA if address.sentinels or address.cluster else PRIMARY)


def needed(options: StoreOptions) -> Callable[[], int]:
    """Return a function that tells how many replicas must confirm a write now."""
    durability = of(options)
    if durability == ALL:
        return lambda: max(1, options.replicas())
    number = int(durability == REPLICA)
    return lambda: number


def wait(replicas: int) -> bytes:
    """Pack the question how many replicas have what this connection wrote. Its answer takes at most CONFIRM_SECONDS."""
    return pack("WAIT", replicas, int(CONFIRM_SECONDS * 1000))


def in_step(info: Mapping[str, str]) -> int:
    """Return how many replicas are in step, from the lines of INFO replication."""
    found = 0
    for name, line in info.items():
        if name.startswith("slave") and name[5:].isdecimal():
            told = dict(part.partition("=")[::2] for part in line.split(","))
            silent = told.get("lag", "")
            found += told.get("state") == "online" and silent.isdecimal() and int(silent) <= IN_STEP_SECONDS
    return found


def parse(info: bytes) -> dict[str, str]:
    """Return the lines of INFO."""
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


async def refusals(connection: Connection, options: StoreOptions) -> list[str]:
    """Return why writes cannot be confirmed over this connection: the store's user may lack the right to WAIT."""
    if of(options) == PRIMARY:
        return []
    try:
        await connection.call(pack("WAIT", 0, 0))
    except (Rejected, Failed) as error:
        return [f"--store-durability={of(options)} needs WAIT, which the store refuses: {error}"]
    return []
