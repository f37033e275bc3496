"""A server that follows another release takes it in the running process, and no client loses a request or a watch."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from apiserver import apigroups, delegation, metrics, server
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.apimachinery.request import MASTERS
from apiserver.cluster.front import Front
from apiserver.config import config
from apiserver.serving import dynamiccertificates, pki
from apiserver.storage.store import Stores
from tests.fixtures.valkey import Server, eventually, install, own_server, patient, shared_server
from tests.fixtures.varying_kind import GROUP

__all__ = ["own_server", "shared_server"]

LAMPS, LANTERNS = f"/apis/{GROUP}/v1/lamps", f"/apis/{GROUP}/v1/lanterns"
PACKAGE = "--kinds=tests.fixtures.varying_kind"


class ChosenFront(Front):
    """The release of kube-apiserver, as the test says it."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None))

    def become(self, release: Release) -> None:
        self._take(release)


@dataclass
class Running:
    front: ChosenFront
    client: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        async with self.client.request(method, path, json=body) as answer:
            raw = await answer.read()
            assert answer.status == status, (method, path, raw)
            return json.loads(raw) if raw[:1] == b"{" else raw.decode()

    async def minor(self) -> str:
        return str((await self.ask("GET", "/version"))["minor"])

    async def serves(self, minor: str) -> None:
        async with asyncio.timeout(60):
            while await self.minor() != minor:  # noqa: ASYNC110 - nothing here says when
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(
    store: Server, folder: Path, *, before: Release | None = V1_36, initialised: bool = True
) -> AsyncIterator[Running]:
    settings = config.parse(["dev", PACKAGE, "--secure-port=0", f"--data-dir={folder}"], {})
    quick = replace(settings.shutdown, delay_seconds=0.0, watch_seconds=0.2)
    settings = replace(settings, shutdown=quick)
    names = apigroups.storage_names(settings.serving, alone=settings.alone)
    await install(store, *(name for name in names if initialised or not name.endswith("/lanterns")))
    now = dt.datetime.now(dt.UTC)
    kit = pki.kit(folder / "certs", hosts=["127.0.0.1"], user="admin", groups=[MASTERS], now=now)
    front, stop = ChosenFront(), server.Stop()

    async def known() -> None:
        await front.ready.wait()

    if before is not None:
        front.become(before)
    opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ready(port: int, _stores: Stores) -> None:
        opened.set_result(port)

    running = asyncio.create_task(
        server.serve(
            settings,
            apigroups.kinds(settings.serving, alone=settings.alone),
            patient(store.url),
            dynamiccertificates.Certificates(kit.files),
            definitions=apigroups.definitions(settings),
            delegates=replace(delegation.alone(settings), front=front, ready=known),
            stop=stop,
            ready=ready,
            environ={},
        )
    )
    if before is None:
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(server.FRONT_SECONDS + 0.5, front.become, V1_36)
    await asyncio.wait((running, opened), return_when=asyncio.FIRST_COMPLETED)
    port = opened.result()
    context = ssl.create_default_context(cadata=kit.ca_pem.decode())
    context.load_cert_chain(folder / "certs" / "client.crt", folder / "certs" / "client.key")
    connector = aiohttp.TCPConnector(ssl=context)
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as client:
            yield Running(front, client)
    finally:
        stop.signal()
        await running


def lamp(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Lamp", "metadata": {"name": name}, "spec": spec}


async def test_new_release_is_served_without_a_failed_request_or_a_relist(own_server: Server, tmp_path: Path) -> None:
    """Clients write and watch all the time while the release goes up and back down."""
    async with serving(own_server, tmp_path) as running:
        first = await running.ask("GET", LAMPS)
        seen: list[str] = []
        ends = 0
        written = 0
        done = asyncio.Event()

        async def watch() -> None:
            nonlocal ends
            version = first["metadata"]["resourceVersion"]
            while True:
                async with running.client.get(LAMPS, params={"watch": "1", "resourceVersion": version}) as answer:
                    assert answer.status == 200
                    async for line in answer.content:
                        event = json.loads(line)
                        assert event["type"] == "ADDED", event
                        seen.append(event["object"]["metadata"]["name"])
                        version = event["object"]["metadata"]["resourceVersion"]
                        if seen[-1] == "last":
                            return
                ends += 1

        async def write() -> None:
            nonlocal written
            while not done.is_set():
                await running.ask("POST", LAMPS, lamp(f"l{written}", place="hall"), 201)
                written += 1
                await running.ask("GET", f"{LAMPS}/l{written - 1}")

        watching, writing = asyncio.create_task(watch()), asyncio.create_task(write())
        await running.ask("GET", LANTERNS, status=404)
        running.front.become(V1_37)
        await running.serves("37")
        await running.ask("GET", LANTERNS)
        await eventually(lambda: ends >= 1)
        running.front.become(V1_36)
        await running.serves("36")
        await running.ask("GET", LANTERNS, status=404)
        await eventually(lambda: ends >= 2)
        done.set()
        await writing
        await running.ask("POST", LAMPS, lamp("last"), 201)
        await asyncio.wait_for(watching, 60)
        assert seen == [*(f"l{number}" for number in range(written)), "last"]
        assert ends == 2


async def test_metrics_show_the_served_release_and_its_kinds_only(shared_server: Server, tmp_path: Path) -> None:
    async with serving(shared_server, tmp_path) as running:
        lanterns = metrics.resource_label(f"{GROUP}/lanterns")

        def shown() -> set[str]:
            return {labels[0] for labels, _ in metrics.STORAGE_OBJECTS.children()}

        assert 'version_info{binary="1.37",component="kube",emulation="1.36",min_compat="1.35"} 1.0' in (
            await running.ask("GET", "/metrics")
        )
        running.front.become(V1_37)
        await running.serves("37")
        assert lanterns in shown()
        text = await running.ask("GET", "/metrics")
        assert 'emulation="1.37"' in text
        assert 'emulation="1.36"' not in text
        running.front.become(V1_36)
        await running.serves("36")
        await eventually(lambda: lanterns not in shown())
        assert metrics.resource_label(f"{GROUP}/lamps") in shown()


async def test_present_release_goes_on_while_the_new_one_lacks_a_store(
    own_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sluice store init` of an earlier Sluice made no store for the new kind."""
    monkeypatch.setattr("apiserver.generations.PATIENCE_SECONDS", 0.05)
    waits = "a new generation cannot serve yet: the present one goes on"
    async with serving(own_server, tmp_path, initialised=False) as running:
        running.front.become(V1_37)
        await eventually(lambda: waits in caplog.messages)
        assert await running.minor() == "36"
        await running.ask("POST", LAMPS, lamp("a"), 201)
        assert (await running.ask("GET", "/readyz")) == "ok"
        running.front.become(V1_36)
        await running.ask("POST", LAMPS, lamp("b"), 201)
        await install(own_server, f"{GROUP}/lanterns")
        running.front.become(V1_37)
        await running.serves("37")
        assert len((await running.ask("GET", LAMPS))["items"]) == 2


async def test_server_becomes_ready_with_the_release_that_is_learnt_late(shared_server: Server, tmp_path: Path) -> None:
    async with serving(shared_server, tmp_path, before=None) as running:
        assert await running.minor() == "36"
