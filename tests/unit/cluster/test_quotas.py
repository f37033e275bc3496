"""The ResourceQuotas of a cluster: from the copy, or from the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.cluster.by_namespace import ByNamespace
from apiserver.cluster.client import Client, ClusterError
from apiserver.cluster.errors import Refused
from apiserver.cluster.quotas import Quotas
from apiserver.cluster.reflector import Reflector
from tests.unit.cluster.plane import Feed, Plane, answer, hang, status, until

COLLECTION = "/api/v1/resourcequotas"
PATH = "/api/v1/namespaces/ns/resourcequotas"
QUOTA = {"metadata": {"name": "q", "namespace": "ns", "resourceVersion": "3"}, "status": {"used": {"pods": "1"}}}


@pytest.fixture
def quotas(client: Client) -> Quotas:
    return Quotas(client, Reflector(client, COLLECTION, collection=ByNamespace))


def _named(name: str, version: str, namespace: str = "ns") -> Any:
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": version}}


async def test_those_of_a_namespace_are_found_in_the_copy_after_each_change(plane: Plane, client: Client) -> None:
    copy = Reflector(client, COLLECTION, collection=ByNamespace)
    quotas = Quotas(client, copy)
    feed, other = Feed(), _named("q", "5", "nsx")
    plane.on(COLLECTION, answer({"metadata": {"resourceVersion": "5"}, "items": [QUOTA, other]}), feed, hang)
    assert (quotas.ready.is_set(), quotas.within("ns")) == (False, ())
    running = asyncio.create_task(copy.run())
    await quotas.ready.wait()
    assert [quotas.within(namespace) for namespace in ("ns", "nsx", "other")] == [(QUOTA,), (other,), ()]
    feed.event("ADDED", _named("r", "6"))
    await until(lambda: len(quotas.within("ns")) == 2)
    for name in ("q", "r"):
        feed.event("DELETED", _named(name, "7"))
    await until(lambda: not quotas.within("ns"))
    assert quotas.within("nsx") == (other,)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_server_is_asked_about_a_namespace_one_quota_or_a_pod(plane: Plane, quotas: Quotas) -> None:
    pod = {"metadata": {"name": "p"}}
    plane.on(PATH, answer({"items": [QUOTA]}))
    plane.on(f"{PATH}/q", answer(QUOTA))
    plane.on("/api/v1/namespaces/ns/pods/p", answer(pod))
    assert await quotas.list("ns") == [QUOTA]
    assert [await quotas.get("ns", name) for name in ("q", "missing")] == [QUOTA, None]
    assert [await quotas.pod("ns", name) for name in ("p", "missing")] == [pod, None]
    seen = len(plane.seen)
    assert (await quotas.list("no/namespace"), await quotas.pod("ns", "no/../pod")) == ((), None)
    assert len(plane.seen) == seen


async def test_a_status_is_written_as_it_is_given(plane: Plane, quotas: Quotas) -> None:
    plane.on(f"{PATH}/q/status", answer({**QUOTA, "spec": {}}))
    assert await quotas.update_status(QUOTA) == {**QUOTA, "spec": {}}
    [seen] = plane.asked(f"{PATH}/q/status")
    assert (seen.method, seen.body) == ("PUT", QUOTA)


async def test_a_refusal_keeps_what_the_server_said(plane: Plane, quotas: Quotas) -> None:
    plane.on(f"{PATH}/q/status", status(409, "somebody was first"))
    plane.on(PATH, answer(b"no JSON", 502))
    with pytest.raises(Refused) as caught:
        await quotas.update_status(QUOTA)
    assert (caught.value.code, caught.value.status["message"]) == (409, "somebody was first")
    with pytest.raises(Refused) as caught:
        await quotas.list("ns")
    assert (caught.value.code, caught.value.status) == (502, {})
    plane.on(PATH, answer({"items": "none"}))
    with pytest.raises(ClusterError, match="no list"):
        await quotas.list("ns")
    plane.on(f"{PATH}/q", status(403, "no"))
    plane.on("/api/v1/namespaces/ns/pods/p", status(403, "no"))
    for question in (quotas.get("ns", "q"), quotas.pod("ns", "p")):
        with pytest.raises(Refused, match="no"):
            await question
