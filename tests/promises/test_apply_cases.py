"""The cases of apply and field management on the built-in kinds, as requests to a server.

Each case was replayed on a real kube-apiserver 1.36.3 and holds there. Unit tests repeat the cases that need no server.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.objects import canonical, decoding, defaults
from apiserver.schema.resource import Object
from apiserver.storage.store import Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision
from tests.fixtures.composed import Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server, shared_server

__all__ = ["shared_server"]

GROUP, NOW = "resource.k8s.io", "2026-01-02T03:04:05Z"
CASES = yaml.load(
    (pathlib.Path(__file__).resolve().parent.parent / "cases" / "apply.yaml").read_text(), Loader=yaml.CSafeLoader
)
KINDS = {resource.kind: resource for resource in at(NEWEST, resources.RESOURCES)}
MEDIA = {
    "create": "application/json",
    "update": "application/json",
    "apply": "application/apply-patch+yaml",
    "json-patch": "application/json-patch+json",
    "merge-patch": "application/merge-patch+json",
    "strategic-merge-patch": "application/strategic-merge-patch+json",
}
SYSTEM = ("uid", "resourceVersion", "creationTimestamp", "generation")
RESULTS = [{"request": "r", "driver": "d", "pool": "p", "device": device} for device in ("x", "y")]
BASE: Object = {
    "ResourceClaim": {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": RESULTS}}},
    }
}
"""Members that a claim needs to be stored and that a case leaves out."""


class Replay:
    """One object of a server, whom cases know by the group of upstream."""

    def __init__(self, server: Composed, kind: str, obj: Object) -> None:
        self._server, self._kind, metadata = server, KINDS[kind], obj["metadata"]
        self._name, self._namespace = metadata["name"], metadata.get("namespace", "ns") * self._kind.namespaced
        within = f"namespaces/{self._namespace}/" if self._namespace else ""
        self._collection = f"{server.v1}/{within}{self._kind.plural}"
        self._store = server.stores[f"{server.group}/{self._kind.plural}"]

    def as_stored(self, obj: Object) -> Any:
        return json.loads(canonical.encode(self._kind.shape, self._decoded(obj)))

    def _decoded(self, obj: Object) -> Object:
        made = decoding.decode(
            self._kind.shape, {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
        ).object
        defaults.apply(self._kind.shape, made, now=NOW)
        return made

    async def put_in_store(self, obj: Object) -> None:
        """As it is, without managedFields."""
        made = self._decoded(obj)
        made["metadata"] |= {"creationTimestamp": NOW}
        made["metadata"].setdefault("uid", "u")
        if self._namespace:
            made["metadata"]["namespace"] = self._namespace
        value = canonical.encode(self._kind.shape, made)
        key = keys.key(self._namespace, self._name)
        await self._store.commit(Write(key, value, Revision(0), made["metadata"]["uid"]), dry_run=False)

    async def ask(self, op: str, sent: Any, *, subresource: str = "", **query: str) -> Answer:
        method = {"create": "POST", "update": "PUT"}.get(op, "PATCH")
        path = (
            self._collection if op == "create" else "/".join(filter(None, (self._collection, self._name, subresource)))
        )
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        body = json.dumps(sent).replace(f'"{GROUP}/', f'"{self._server.group}/').encode()
        return await self._server.ask(method, f"{path}?{asked}", body, kind=MEDIA[op])

    async def read(self) -> Any:
        """The object, None if it is missing."""
        answer = await self._server.ask("GET", f"{self._collection}/{self._name}")
        return self.said(answer) if answer.status == 200 else None

    def said(self, answer: Answer) -> Any:
        return json.loads(answer.text.replace(self._server.group, GROUP))

    async def leave(self) -> None:
        for left in list(self._store.view().scan()):
            uid = json.loads(left.body)["metadata"]["uid"]
            await self._store.commit(Write(left.key, None, left.revision, uid), dry_run=False)


async def replayed(server: Composed, case: Mapping[str, Any]) -> None:
    replay = Replay(server, case["kind"], case["expect"].get("object") or case["steps"][0]["object"])
    try:
        if "initial" in case:
            await replay.put_in_store(case["initial"]["object"])
        for step in case["steps"]:
            await take(replay, step)
        check(await replay.read(), case["expect"])
    finally:
        await replay.leave()


async def take(replay: Replay, step: Mapping[str, Any]) -> None:
    before = await replay.read()
    query = {"fieldManager": step["manager"]} | ({"force": "true"} if step.get("force") else {})
    answer = await replay.ask(step["op"], step["object"], subresource=step.get("subresource", ""), **query)
    said, after = replay.said(answer), await replay.read()
    if "code" in step:
        assert (answer.status, said.get("reason")) == (step["code"], step.get("reason")), answer.text
        assert said["message"] == step["message"]
        assert sorted(said.get("details", {}).get("causes", []), key=str) == sorted(causes(step), key=str)
    else:
        assert answer.status == (201 if before is None else 200), answer.text
        assert said == after
    assert (before == after) is (step.get("noop", False) or "code" in step)


def causes(step: Mapping[str, Any]) -> list[Object]:
    return [
        {"reason": cause["type"], "message": cause["message"], "field": cause["field"]}
        for cause in step.get("causes", [])
    ]


def check(found: Any, expected: Mapping[str, Any]) -> None:
    managed = found["metadata"].pop("managedFields", [])
    for name in SYSTEM:
        found["metadata"].pop(name, None)
    wanted = {**expected["object"], "metadata": {**expected["object"]["metadata"]}}
    for name in SYSTEM:
        wanted["metadata"].pop(name, None)
    assert found == wanted
    assert sorted(map(entry, managed), key=str) == sorted(map(expected_entry, expected["managed"]), key=str)


def entry(managed: Mapping[str, Any]) -> Object:
    """An entry without its time, whose members stand in upstream's order."""
    assert managed["fieldsType"] == "FieldsV1"
    kept = {name: managed.get(name) for name in ("manager", "operation", "apiVersion", "subresource")}
    return {**kept, "has_time": "time" in managed, "fields": json.dumps(managed["fieldsV1"])}


def expected_entry(managed: Mapping[str, Any]) -> Object:
    kept = {name: managed.get(name) or None for name in ("manager", "operation", "apiVersion", "subresource")}
    return {**kept, "has_time": managed["has_time"], "fields": json.dumps(managed["fields"])}


async def test_the_cases_of_field_management_hold_over_http(shared_server: Server) -> None:
    failed: dict[str, str] = {}
    async with composed(shared_server) as server:
        for case in CASES["kinds"]:
            try:
                await replayed(server, case)
            except AssertionError as e:
                failed[case["name"]] = str(e)
    assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())


STRATEGIC = [case for case in CASES["strategic"] if "kind" in case]


@pytest.mark.parametrize("case", STRATEGIC, ids=lambda case: case["name"])
async def test_the_cases_of_strategic_merge_patch_hold_over_http(
    shared_server: Server, case: Mapping[str, Any]
) -> None:
    base = BASE.get(case["kind"], {})
    original, result = (merged(base, obj) for obj in (case["original"], case["expect"]["result"]))
    async with composed(shared_server) as server:
        replay = Replay(server, case["kind"], original)
        await replay.put_in_store(original)
        subresource = "status" if "status" in case["patch"] else ""
        answer = await replay.ask("strategic-merge-patch", case["patch"], subresource=subresource)
        found, wanted = await replay.read(), replay.as_stored(result)
    assert (answer.status, replay.said(answer)) == (200, found), answer.text
    for name in ("spec", "status"):
        if name in case["patch"]:
            assert found[name] == wanted[name]
    assert found["metadata"].get("ownerReferences") == wanted["metadata"].get("ownerReferences")


def merged(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{name: merged(base.get(name), value) for name, value in over.items()}}
