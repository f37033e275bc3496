"""Clients that write the same objects at the same time, in every way, and what became of each write."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from tests.faults.history import Broken, mark_of
from tests.faults.load import AWAY, COLORS, LATER, Clients, Resource, Write
from tests.faults.seen import Key, Object, bare, key_of, version_of

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
REFUSED = (404, 409, 422)


class Writer:
    """One of them."""

    def __init__(self, clients: Clients, number: int, resources: list[Resource], pause: float) -> None:
        self.clients, self.number, self.resources, self.pause = clients, number, resources, pause
        self.draw = random.Random(f"{clients.seed}-write-{number}")
        self._marks = itertools.count()

    async def run(self) -> None:
        ways = [self._create] * 4 + [self._put] * 3 + [self._merge] * 3 + [self._json] * 2 + [self._strategic] * 2
        ways += [self._apply] * 3 + [self._delete] * 4 + [self._nothing, self._collection]
        while not self.clients.stopping:
            resource = self.draw.choice(self.resources)
            await self.draw.choice(ways)(resource, resource.key(self.draw))
            await asyncio.sleep(self.draw.uniform(0, 2 * self.pause))

    def mark(self) -> str:
        return f"w{self.number}-{next(self._marks)}"

    def made(self, resource: Resource, key: Key, mark: str) -> Object:
        text = "x" * (60_000 if key[1] == resource.names[1] else self.draw.randint(0, 200))
        return resource.make(key, color=self.draw.choice(COLORS), mark=mark, text=text)

    async def send(
        self,
        method: str,
        resource: Resource,
        key: Key,
        body: Any,
        mark: str,
        *,
        kind: str = "",
        where: str = "",
        **query: Any,
    ) -> Object | None:
        """Notes what became of it. The object, if it was acknowledged."""
        path = where or resource.path(*key)
        known, headers = resource.acknowledged, {"Content-Type": kind} if kind else {}
        write = Write(method, resource, key, mark, None)
        self.clients.writes.append(write)
        name = f"{method} {kind.partition('/')[2]}".strip()
        try:
            status, answer = await self.clients.ask(method, path, body, draw=self.draw, headers=headers, query=query)
        except aiohttp.ClientConnectorError:
            write.version = 0
            return None
        except AWAY:
            return None
        if status in (200, 201):
            obj: Object = msgspec.json.decode(answer)
            if obj["kind"] == "Status" or obj["kind"].endswith("List"):
                raise Broken(f"{name} of {path}: {obj}")
            write.version, write.answer = version_of(obj), bare(obj)
            if write.version <= known and mark:
                raise Broken(f"{name} of {path} has the version {write.version} after {known}")
            resource.acknowledged = max(resource.acknowledged, write.version)
            return obj
        if status in REFUSED or status == 429:
            write.version = 0
        elif status not in LATER:
            raise Broken(f"{name} of {path}: {status} {answer[:500]!r}")
        return None

    async def current(self, resource: Resource, key: Key) -> Object | None:
        """By a read that must see every write that was acknowledged before it."""
        status, body = await self.clients.get(resource.path(*key), draw=self.draw)
        if status not in (200, 404):
            raise Broken(f"GET of {key}: {status} {body[:300]!r}")
        return msgspec.json.decode(body) if status == 200 else None

    async def _create(self, resource: Resource, key: Key) -> None:
        mark = self.mark()
        await self.send("POST", resource, key, self.made(resource, key, mark), mark, where=resource.path(key[0]))

    async def _put(self, resource: Resource, key: Key) -> None:
        obj, mark = await self.current(resource, key), self.mark()
        if obj is not None:
            await asyncio.sleep(self.draw.choice([0, 0, 0.1]))  # somebody else may be first
            made = self.made(resource, key, mark)["metadata"]
            obj["metadata"] |= {"labels": made["labels"], "annotations": made["annotations"]}
            await self.send("PUT", resource, key, obj, mark)

    def _change(self, resource: Resource, key: Key, mark: str) -> Object:
        made = self.made(resource, key, mark)["metadata"]
        return {"metadata": {"labels": made["labels"], "annotations": made["annotations"]}}

    async def _merge(self, resource: Resource, key: Key) -> None:
        mark = self.mark()
        change = self._change(resource, key, mark)
        if self.draw.random() < 0.3 and (obj := await self.current(resource, key)) is not None:
            change["metadata"]["resourceVersion"] = obj["metadata"]["resourceVersion"]
        await self.send("PATCH", resource, key, change, mark, kind=MERGE)

    async def _strategic(self, resource: Resource, key: Key) -> None:
        mark = self.mark()
        await self.send("PATCH", resource, key, self._change(resource, key, mark), mark, kind=STRATEGIC)

    async def _json(self, resource: Resource, key: Key) -> None:
        mark = self.mark()
        change: list[Object] = [{"op": "add", "path": "/metadata/annotations/mark", "value": mark}]
        change.append({"op": "replace", "path": "/metadata/labels/color", "value": self.draw.choice(COLORS)})
        if self.draw.random() < 0.3:
            change.insert(0, {"op": "test", "path": "/metadata/labels/color", "value": "red"})
        await self.send("PATCH", resource, key, change, mark, kind=JSON_PATCH)

    async def _apply(self, resource: Resource, key: Key) -> None:
        mark, query = self.mark(), {"fieldManager": self.draw.choice(["one", "other"])}
        if self.draw.random() < 0.6:
            query["force"] = "true"
        made = self.made(resource, key, mark)
        made |= {"apiVersion": "resource.sluice.dev/v1", "kind": resource.kind}
        await self.send("PATCH", resource, key, made, mark, kind=APPLY, **query)

    async def _delete(self, resource: Resource, key: Key) -> None:
        conditions: Object = {}
        if self.draw.random() < 0.3 and (obj := await self.current(resource, key)) is not None:
            field = self.draw.choice(["resourceVersion", "uid"])
            conditions[field] = obj["metadata"][field]
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        await self.send("DELETE", resource, key, body, "")

    async def _nothing(self, resource: Resource, key: Key) -> None:
        """A patch that changes nothing."""
        await self.send("PATCH", resource, key, {}, "", kind=MERGE)

    async def _collection(self, resource: Resource, key: Key) -> None:
        """Three of its own at once."""
        kinds = [f"p{self.number}{number:03d}" for number in range(3)]
        for name in kinds:
            mark = self.mark()
            made = self.made(resource, (key[0], name), mark)
            made["metadata"]["labels"]["burst"] = str(self.number)
            await self.send("POST", resource, (key[0], name), made, mark, where=resource.path(key[0]))
        query = {"labelSelector": f"burst={self.number}"}
        try:
            status, body = await self.clients.ask("DELETE", resource.path(key[0]), draw=self.draw, query=query)
        except AWAY:
            return
        if status == 200:
            for obj in msgspec.json.decode(body)["items"]:
                if await self.current(resource, key_of(obj)) is not None:
                    raise Broken(f"{key_of(obj)} is there, and was deleted")
        elif status not in LATER:
            raise Broken(f"DELETE of a collection: {status} {body[:300]!r}")


def check_writes(writes: Sequence[Write], resources: Sequence[Resource]) -> None:
    """Each that was acknowledged is in the history as it was answered, each that was refused is not, and none is there twice."""
    marks = {resource.plural: resource.history.marks() for resource in resources}
    for write in writes:
        history, name = (
            write.resource.history,
            f"{write.method} {write.resource.plural} {write.key} {write.mark} {write.version}",
        )
        times = marks[write.resource.plural][write.mark] if write.mark else 0
        if times > 1 or (write.mark and write.version is not None and times != (write.version > 0)):
            raise Broken(f"{name} happened {times} times")
        if not write.answer or write.version is None:
            continue
        obj = history.at(write.key, write.version)
        if obj is None and not write.mark:  # a deletion
            obj = history.at(write.key, write.version - 1)
            obj = obj and {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(write.version)}}
        if obj != write.answer or (write.mark and mark_of(write.answer) != write.mark):
            raise Broken(f"{name} was answered {write.answer}, and told as {obj}")
