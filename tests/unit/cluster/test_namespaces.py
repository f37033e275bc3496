"""Existing namespaces: from the copy, or from the server."""

from __future__ import annotations

import asyncio

import pytest

from apiserver.cluster.client import Client, ClusterError
from apiserver.cluster.namespaces import Namespaces
from tests.unit.cluster.plane import Feed, Plane, answer, hang, status, until

PATH = "/api/v1/namespaces"
DEFAULT = {"metadata": {"name": "default", "resourceVersion": "3"}, "status": {"phase": "Active"}}


async def test_a_namespace_is_found_in_the_copy_once_it_is_filled(plane: Plane, client: Client) -> None:
    feed, namespaces = Feed(), Namespaces(client)
    plane.on(PATH, answer({"metadata": {"resourceVersion": "5"}, "items": [DEFAULT]}), feed, hang)
    assert namespaces.lookup("default") is None
    running = asyncio.create_task(namespaces.run())
    await namespaces.ready.wait()
    assert namespaces.lookup("default") == DEFAULT
    feed.event(
        "MODIFIED",
        {**DEFAULT, "status": {"phase": "Terminating"}, "metadata": {**DEFAULT["metadata"], "resourceVersion": "6"}},
    )
    await until(lambda: (namespaces.lookup("default") or {})["status"] == {"phase": "Terminating"})
    assert plane.asked(f"{PATH}/default") == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_labels_are_those_of_the_copy(plane: Plane, client: Client) -> None:
    feed, namespaces = Feed(), Namespaces(client)
    labelled = {**DEFAULT, "metadata": {"name": "labelled", "labels": {"a": "b"}}}
    plane.on(PATH, answer({"metadata": {"resourceVersion": "5"}, "items": [DEFAULT, labelled]}), feed, hang)
    assert namespaces.labels("default") is None
    running = asyncio.create_task(namespaces.run())
    await namespaces.ready.wait()
    assert [namespaces.labels(name) for name in ("default", "labelled", "missing")] == [{}, {"a": "b"}, None]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_server_is_asked_about_one_namespace(plane: Plane, client: Client) -> None:
    plane.on(f"{PATH}/default", answer(DEFAULT))
    namespaces = Namespaces(client)
    assert await namespaces.ask("default") == DEFAULT
    assert await namespaces.ask("missing") is None
    assert [(seen.method, seen.path) for seen in plane.seen] == [("GET", f"{PATH}/default"), ("GET", f"{PATH}/missing")]


async def test_the_newest_labels_are_those_that_the_server_has(plane: Plane, client: Client) -> None:
    labelled = {**DEFAULT, "metadata": {"name": "labelled", "labels": {"a": "b"}}}
    plane.on(f"{PATH}/default", answer(DEFAULT))
    plane.on(f"{PATH}/labelled", answer(labelled))
    namespaces = Namespaces(client)
    assert [await namespaces.newest_labels(name) for name in ("default", "labelled", "missing")] == [
        {},
        {"a": "b"},
        None,
    ]


async def test_server_without_an_answer_is_an_error(plane: Plane, client: Client) -> None:
    plane.on(f"{PATH}/default", status(403, "no"))
    with pytest.raises(ClusterError, match="no"):
        await Namespaces(client).ask("default")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb", "a?b", "Ü", "kube-system/configmaps", "a" * 64])
async def test_a_name_that_no_namespace_can_have_is_never_asked_for(plane: Plane, client: Client, name: str) -> None:
    assert await Namespaces(client).ask(name) is None
    assert plane.seen == []
