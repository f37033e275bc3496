"""A server that was killed comes back while all its watchers do."""

from __future__ import annotations

import asyncio
import pathlib
import signal

from tests.fixtures import storm as storms
from tests.fixtures.server import DevServer

OBJECTS, WATCHERS = 10_000, 500


async def test_storm_of_returning_watchers_delays_no_start_and_all_resume(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    after = await storms.fill(folder / "store", OBJECTS)
    server = DevServer(folder, "--no-samples")
    await asyncio.to_thread(server.start)
    try:
        calm = storms.cpu_seconds(server)
        storm = storms.Storm(server, WATCHERS, after)
        await storm.until(lambda: len(storm.watching) == WATCHERS)
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        await asyncio.to_thread(server.start)
        stormy, refused = storms.cpu_seconds(server), storm.refused
        await storm.until(lambda: len(storm.watching) == WATCHERS)
        reply = await asyncio.to_thread(
            server.request, "DELETE", f"{storms.PATH}/slice-00000", {"kind": "DeleteOptions", "apiVersion": "v1"}
        )
        assert reply.status == 200, reply.text
        await storm.until(lambda: len(storm.told) == WATCHERS)
        await storm.end()
    finally:
        await asyncio.to_thread(server.stop)
    assert all(b'"type":"DELETED"' in line and b'"slice-00000"' in line for line in storm.told.values())
    assert stormy < 2 * calm + 1, f"ready after {stormy} s of CPU, without the storm after {calm} s"
    assert refused < WATCHERS, f"{refused} refusals before it was ready"
