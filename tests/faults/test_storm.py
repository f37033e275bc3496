"""A server that was killed comes back while all its watchers do."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import signal
import ssl
from collections.abc import Callable

from apiserver.storage import administration
from apiserver.storage.embedded import Embedded
from apiserver.storage.store import Write, open_stores
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.server import DevServer
from tests.fixtures.valkey import patient

RESOURCE = "resource.sluice.dev/resourceslices"
PATH = "/apis/resource.sluice.dev/v1/resourceslices"
PLURALS = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
KINDS = [f"resource.sluice.dev/{plural}" for plural in PLURALS]
OBJECTS, WATCHERS = 10_000, 500
TICKS = os.sysconf("SC_CLK_TCK")


def slice_value(name: str) -> bytes:
    devices = b",".join(b'{"name":"gpu-%d","attributes":{"model":{"string":"X%d"}}}' % (at, at) for at in range(24))
    return (
        b'{"metadata":{"name":"%b","uid":"%b","creationTimestamp":"2026-06-01T12:00:00Z"},"spec":{"driver":"gpu.example.com",'
        b'"pool":{"name":"n","generation":1,"resourceSliceCount":1},"nodeName":"n","devices":[%b]}}'
    ) % (name.encode(), name.encode(), devices)


async def fill(folder: pathlib.Path) -> Revision:
    """A store with many slices; the version of the last."""
    embedded = Embedded(folder)
    options = patient(await embedded.start())
    try:
        await administration.init(patient(embedded.admin_url), KINDS)
        embedded.mark_initialised(KINDS)
        stores = await open_stores(options, {RESOURCE: lambda _: ({}, ("", ""))})
        await stores.ready()
        store = stores[RESOURCE]
        names = [f"slice-{number:05d}" for number in range(OBJECTS)]
        for at in range(0, OBJECTS, 500):
            writes = [Write(Key(name), slice_value(name), Revision(0), name) for name in names[at : at + 500]]
            await asyncio.gather(*(store.commit(write, dry_run=False) for write in writes))
        applied = store.applied
        await stores.close()
        return applied
    finally:
        await embedded.stop()


def cpu_seconds(server: DevServer) -> float:
    assert server.process is not None
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Storm:
    """Watchers that come back 20 to 50 ms after they were refused or cut off, on the same connection where they can."""

    def __init__(self, server: DevServer, context: ssl.SSLContext, after: Revision) -> None:
        self._server = server
        self._context = context
        self._request = (
            f"GET {PATH}?watch=1&resourceVersion={after}&timeoutSeconds=600 HTTP/1.1\r\nHost: s\r\n\r\n".encode()
        )
        self.watching: set[int] = set()
        self.refused = 0
        self.told: dict[int, bytes] = {}
        self._tasks = [asyncio.ensure_future(self._watch(number)) for number in range(WATCHERS)]

    async def _watch(self, number: int) -> None:
        while True:
            try:
                await self._once(number)
            except (OSError, EOFError, ssl.SSLError):
                pass
            self.watching.discard(number)
            await asyncio.sleep(random.uniform(0.02, 0.05))

    async def _once(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, ssl=self._context)
        try:
            writer.write(self._request)
            while b" 200 " not in (head := await reader.readuntil(b"\r\n\r\n")):
                self.refused += 1
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
                await asyncio.sleep(random.uniform(0.02, 0.05))
                writer.write(self._request)
            self.watching.add(number)
            while line := await reader.readline():
                if b'"type"' in line:
                    self.told[number] = line
        finally:
            writer.transport.abort()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110 - what is waited for is state of 500 tasks
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_a_storm_of_returning_watchers_does_not_delay_a_start_and_every_watch_resumes(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    after = await fill(folder / "store")
    server = DevServer(folder, "--no-samples")
    await asyncio.to_thread(server.start)
    try:
        calm = cpu_seconds(server)
        storm = Storm(server, server.context(), after)
        await storm.until(lambda: len(storm.watching) == WATCHERS)
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        await asyncio.to_thread(server.start)
        stormy, refused = cpu_seconds(server), storm.refused
        await storm.until(lambda: len(storm.watching) == WATCHERS)
        reply = await asyncio.to_thread(
            server.request, "DELETE", f"{PATH}/slice-00000", {"kind": "DeleteOptions", "apiVersion": "v1"}
        )
        assert reply.status == 200, reply.text
        await storm.until(lambda: len(storm.told) == WATCHERS)
        await storm.end()
    finally:
        await asyncio.to_thread(server.stop)
    assert all(b'"type":"DELETED"' in line and b'"slice-00000"' in line for line in storm.told.values())
    assert stormy < 2 * calm + 1, f"ready after {stormy} s of CPU, without the storm after {calm} s"
    assert refused < WATCHERS, f"{refused} refusals before it was ready"
