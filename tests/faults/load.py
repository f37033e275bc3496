"""Clients of a pair of replicas that read in every form, watch, and write against each other, and remember the answers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from tests.faults.history import Broken, History
from tests.faults.pair import AS_ADMIN, GROUP, Authorities, Replica
from tests.faults.seen import (
    Form,
    Key,
    Listed,
    Object,
    Partial,
    PartialProtobuf,
    Protobuf,
    Seen,
    Selection,
    Table,
    Told,
)

V1 = f"/apis/{GROUP}/v1"
COLORS, NODES, NAMESPACES = ("red", "green", "blue"), ("n1", "n2", "n3"), ("a", "b")
AWAY = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)
"""Errors that a client gets from a replica that is down."""
LATER = (429, 503, 504)


class Resource:
    """One of those that are written."""

    def __init__(self, plural: str, *, namespaced: bool, count: int) -> None:
        self.plural, self.kind = plural, {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice"}[plural]
        self.namespaced = namespaced
        self.names = [f"o{number:04d}" for number in range(count)]
        self.acknowledged = 0
        """The newest version of a write that succeeded."""
        self.history = History(0, ())

    def path(self, namespace: str = "", name: str = "") -> str:
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{V1}{within}/{self.plural}" + (f"/{name}" if name else "")

    def key(self, draw: random.Random) -> Key:
        """Every other one is one of a few."""
        name = draw.choice(self.names[:8] if draw.random() < 0.5 else self.names)
        return draw.choice(NAMESPACES) if self.namespaced else "", name

    def node(self, name: str) -> str:
        """That of an object which has one."""
        return "" if self.namespaced else NODES[int(name[1:]) % len(NODES)]

    def make(self, key: Key, *, color: str, mark: str, text: str = "") -> Object:
        metadata = {"name": key[1], "labels": {"color": color}, "annotations": {"mark": mark, "text": text}}
        if self.namespaced:
            requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
            return {"metadata": metadata | {"namespace": key[0]}, "spec": {"devices": {"requests": requests}}}
        node = self.node(key[1])
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{number}"} for number in range(4)]
        return {
            "metadata": metadata,
            "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices},
        }


@dataclass
class Write:
    """The outcome of a write: the version that it was acknowledged with; 0 when it was refused, None when it is unknown. `mark` is on the
    object that it made; a deletion, and a write that changes nothing, has none."""

    method: str
    resource: Resource
    key: Key
    mark: str
    version: int | None
    answer: Object | None = None


class Clients:
    """Clients of both replicas. A client without an answer asks the other replica."""

    def __init__(self, authorities: Authorities, replicas: list[Replica], seed: int) -> None:
        self.replicas = replicas
        self.seed = seed
        self.writes: list[Write] = []
        self.left_alone: list[str] = []
        """Requests without an answer and watches that did not end: the name of the replica, and why."""
        self.stopping = False
        self.counts: Counter[str] = Counter()
        """Counts of checks."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=120)
        self._sessions = {
            name: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context, limit=0),
                timeout=timeout,
                headers=headers,
                read_bufsize=1 << 18,
            )
            for name, context, headers in (
                ("direct", authorities.admin(), {}),
                ("relayed", authorities.proxy(), AS_ADMIN),
            )
        }

        for session in self._sessions.values():
            # Else a PUT or a DELETE without an answer is sent again, and its second answer says nothing about the first.
            session._retry_connection = False

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def url(self, replica: Replica, path: str) -> str:
        return f"https://127.0.0.1:{replica.port}{path}"

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        draw: random.Random,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        by: str = "direct",
    ) -> tuple[int, bytes]:
        """One attempt at one replica. Raises of AWAY."""
        data = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        replica = draw.choice(self.replicas)
        try:
            async with self._sessions[by].request(
                method, self.url(replica, path), data=data, headers=sent, params=query
            ) as reply:
                return reply.status, await reply.read()
        except aiohttp.ClientConnectorError:
            raise
        except AWAY as error:
            self.left_alone.append(f"{replica.name}: {method} {path}: {error!r}")
            raise

    async def get(self, path: str, *, draw: random.Random, **options: Any) -> tuple[int, bytes]:
        """The answer of the first replica that gives one."""
        while True:
            with contextlib.suppress(*AWAY):
                status, body = await self.ask("GET", path, draw=draw, **options)
                if status not in LATER:
                    return status, body
            await asyncio.sleep(0.05)  # a client's back-off

    # Lists

    async def listed(
        self, resource: Resource, form: Form, chosen: Selection, draw: random.Random, **query: Any
    ) -> Listed:
        """All chunks of one."""
        path, limit = resource.path(chosen.namespace), query.get("limit")
        headers = {"Accept": form.accept, "Accept-Encoding": draw.choice(["gzip", "identity"])}
        items: list[Seen] = []
        asked = {**chosen.query, **query}
        first = 0
        while True:
            status, body = await self.get(path, draw=draw, headers=headers, query=asked)
            if status != 200:
                raise Broken(f"list of {path} with {asked}: {status} {body[:300]!r}")
            part = form.listed(body)
            first = first or part.version
            if part.version != first:
                raise Broken(f"list of {path} with {asked}: a chunk of {part.version} behind one of {first}")
            items += part.items
            if not part.following:
                return Listed(first, "", items)
            if limit is None or len(part.items) != limit:
                raise Broken(f"list of {path} with {asked}: a chunk of {len(part.items)}")
            asked = {**chosen.query, "limit": limit, "continue": part.following}

    async def list_for_ever(self, number: int, resources: list[Resource], chunk: int) -> None:
        """In all forms, of all sorts of versions."""
        draw = random.Random(f"{self.seed}-list-{number}")
        while not self.stopping:
            resource, form = draw.choice(resources), draw.choice(FORMS)
            chosen = draw.choice(SELECTIONS[resource.plural])
            known, query = resource.acknowledged, dict[str, Any]()
            kind = draw.choice(["newest", "newest", "memory", "at least", "exact", "walk", "walk"])
            past = draw.choice([known, *(version for version, _ in resource.history.log[-100:])])
            if kind == "memory":
                query["resourceVersion"] = "0"
            elif kind == "at least":
                query |= {"resourceVersion": str(known), "resourceVersionMatch": "NotOlderThan"}
            elif kind == "exact":
                query |= {"resourceVersion": str(past), "resourceVersionMatch": "Exact"}
            elif kind == "walk":
                query["limit"] = chunk
            listed = await self.listed(resource, form, chosen, draw, **query)
            if kind in ("newest", "at least", "walk") and listed.version < known:
                raise Broken(f"list {kind} of {resource.plural} at {listed.version} after {known}")
            if kind == "exact" and listed.version != past:
                raise Broken(f"list of {resource.plural} at {listed.version}, for {past}")
            await self.check(resource, form, chosen, listed)
            await asyncio.sleep(draw.uniform(0, 0.2))  # a client uses the list for a while

    async def check(self, resource: Resource, form: Form, chosen: Selection, listed: Listed) -> None:
        """Against the history, once that has come as far."""
        while resource.history.position < listed.version:
            if self.stopping:
                return  # nothing may come any more
            await asyncio.sleep(0.01)
        resource.history.check_list(form, chosen, listed)
        self.counts["lists"] += 1

    # Watches

    async def stream(
        self, resource: Resource, form: Form, chosen: Selection, draw: random.Random, *, by: str, **query: Any
    ) -> AsyncGenerator[tuple[bytes, Told], None]:
        """Events of one watch up to its end, however it ends."""
        replica = draw.choice(self.replicas)
        asked = {**chosen.query, "watch": "1", "allowWatchBookmarks": "true", **query}
        url, headers = self.url(replica, resource.path(chosen.namespace)), {"Accept": form.watched}
        rest = b""
        try:
            async with self._sessions[by].get(url, params=asked, headers=headers) as reply:
                if reply.status in LATER:
                    return
                if reply.status != 200:
                    raise Broken(f"watch {asked}: {reply.status} {await reply.text()}")
                while rest := await (next_frame(reply.content) if form.framed else reply.content.readline()):
                    if not form.framed and not rest.endswith(b"\n"):
                        break
                    yield rest, form.told(rest)
                if rest:
                    self.left_alone.append(f"{replica.name}: a watch: ended within {rest[-20:]!r}")
        except aiohttp.ClientConnectorError:
            pass  # nobody listens
        except AWAY as error:
            self.left_alone.append(f"{replica.name}: a watch: {error!r}")

    async def follow(self, resource: Resource) -> None:
        """The history itself: everything, in JSON, wherever it can be had."""
        draw, form = random.Random(f"{self.seed}-{resource.plural}"), FORMS[0]
        while True:
            query = {"resourceVersion": resource.history.position, "timeoutSeconds": draw.randint(5, 30)}
            stream = self.stream(resource, form, Selection(), draw, by="direct", **query)
            async with contextlib.aclosing(stream) as events:
                async for frame, _ in events:
                    event = msgspec.json.decode(frame)
                    resource.history.add(event["type"], event["object"])
            await asyncio.sleep(0.02)  # a client's back-off


async def next_frame(content: aiohttp.StreamReader) -> bytes:
    """The next frame of a protobuf watch; nothing at the end."""
    try:
        length = await content.readexactly(4)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""
    return await content.readexactly(int.from_bytes(length, "big"))


class Watcher:
    """A watcher that resumes at the last version that it received; a `listing` one lists anew, by initial events."""

    def __init__(
        self,
        clients: Clients,
        number: int,
        resource: Resource,
        form: Form,
        chosen: Selection,
        *,
        by: str,
        listing: bool,
        slow: bool,
    ) -> None:
        self.clients, self.resource, self.form, self.chosen = clients, resource, form, chosen
        self.name = f"watch {number} of {resource.plural} {type(form).__name__} {chosen} {by}"
        self._draw = random.Random(f"{clients.seed}-watch-{number}")
        self._by, self._listing, self._slow = by, listing, slow
        self.position = self.begin = 0
        self.told: list[Told] = []

    async def run(self) -> None:
        while True:
            if self._listing or not self.position:
                await (self._initial() if self._listing else self._list())
            else:
                await self._segment({"resourceVersion": self.position})
            await asyncio.sleep(0.02)  # a client's back-off

    async def _list(self) -> None:
        listed = await self.clients.listed(self.resource, self.form, self.chosen, self._draw)
        self.begin = self.position = listed.version

    async def _initial(self) -> None:
        self.check(whole=False)
        self.position, self.told, known = 0, [], self.resource.acknowledged
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        await self._segment(query, known)

    async def _segment(self, query: Mapping[str, Any], known: int = 0) -> None:
        initial: list[Seen] = []
        begun = not self._listing
        query = {**query, "timeoutSeconds": self._draw.randint(3, 15)}
        stream = self.clients.stream(self.resource, self.form, self.chosen, self._draw, by=self._by, **query)
        async with contextlib.aclosing(stream) as events:
            async for _, event in events:
                if begun:
                    if event.type == "MARKER":
                        raise Broken(f"{self.name}: a second marker")
                    self.told.append(event)
                    self.position = event.seen.version
                elif event.type == "MARKER":
                    begun, self.begin, self.position = True, event.seen.version, event.seen.version
                    if self.begin < known:
                        raise Broken(f"{self.name}: the state at {self.begin} after {known}")
                    listed = Listed(self.begin, "", initial)
                    await self.clients.check(self.resource, self.form, self.chosen, listed)
                elif event.type == "ADDED":
                    initial.append(event.seen)
                else:
                    raise Broken(f"{self.name}: {event} among the initial events")
                if self._slow and self._draw.random() < 0.05:
                    await asyncio.sleep(self._draw.uniform(0, 2))  # a client that is busy

    def check(self, *, whole: bool) -> None:
        """Compare the events since the watch began."""
        if self.position:
            known = [event for event in self.told if event.seen.version <= self.resource.history.position]
            self.resource.history.check_watch(self.form, self.chosen, self.begin, known, whole=whole)
            self.clients.counts["events"] += len(known)

    def last(self) -> int:
        """The version of the last event that it has to receive."""
        *_, last = self.resource.history.events(self.form, self.chosen, 0)
        return last.seen.version


SELECTIONS: Mapping[str, list[Selection]] = {
    "resourceclaims": [
        Selection(),
        Selection(namespace="a"),
        Selection(namespace="b", color="red"),
        Selection(color="blue"),
        Selection(namespace="a", name="o0003"),
    ],
    "resourceslices": [
        Selection(),
        Selection(node="n1"),
        Selection(node="n2", color="green"),
        Selection(color="red"),
        Selection(name="o0004"),
    ],
}
FORMS: tuple[Form, ...] = (Form(), Partial(), Table(), Protobuf(), PartialProtobuf())


def watchers(clients: Clients, resources: list[Resource], count: int) -> list[Watcher]:
    """Every form, selection and way of going on."""
    made = []
    for number in range(count):
        resource = resources[number % len(resources)]
        chosen = SELECTIONS[resource.plural][number // 2 % 5]
        form = FORMS[(number // 2 + number // 10) % 5]
        by = ("direct", "relayed")[number // 3 % 2]
        made.append(
            Watcher(clients, number, resource, form, chosen, by=by, listing=number % 5 == 4, slow=number % 7 == 3)
        )
    return made
