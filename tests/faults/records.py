"""Clients that write, read and watch while faults happen, and record every answer with its time. tests/faults/judge.py compares later."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from tests.faults.load import COLORS, FORMS, NAMESPACES, SELECTIONS, V1, next_frame
from tests.faults.pair import AS_ADMIN, Authorities, Replica
from tests.faults.seen import Form, Key, Listed, Object, Seen, Selection, Told, version_of
from tests.fixtures import protobuf

NEVER = float("inf")
REFUSED = (403, 404, 409, 422, 429, 503)
"""Answers that say: not executed."""
CUT = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError, TimeoutError)
MERGE = "application/merge-patch+json"


@dataclass
class Kind:
    """A resource, its objects, and the newest version of an acknowledged write."""

    plural: str
    kind: str
    namespaced: bool
    names: list[str]
    newest: int = 0

    @property
    def resource(self) -> str:
        return f"resource.sluice.dev/{self.plural}"

    def path(self, key: Key = ("", "")) -> str:
        namespace, name = key
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{V1}{within}/{self.plural}" + (f"/{name}" if name else "")

    def draw_key(self, draw: random.Random) -> Key:
        return draw.choice(NAMESPACES) if self.namespaced else "", draw.choice(self.names)

    def make(self, key: Key, *, color: str, mark: str, text: str = "") -> Object:
        metadata = {"name": key[1], "labels": {"color": color}, "annotations": {"mark": mark, "text": text}}
        if self.namespaced:
            requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
            return {"metadata": metadata | {"namespace": key[0]}, "spec": {"devices": {"requests": requests}}}
        node = f"n{int(key[1][1:]) % 3 + 1}"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
        return {"metadata": metadata, "spec": spec}


def kinds(count: int) -> list[Kind]:
    names = [f"o{number:04d}" for number in range(count)]
    return [
        Kind("resourceclaims", "ResourceClaim", True, names),
        Kind("resourceslices", "ResourceSlice", False, names),
    ]


@dataclass
class Answer:
    """`status` is 0 when no connection came about, and -1 when one ended without an answer."""

    server: str
    sent: float
    done: float
    status: int
    body: bytes = b""


@dataclass
class Operation:
    """A read or write of one object. `expected`: the version that it names as a condition."""

    kind: Kind
    key: Key
    verb: str
    mark: str
    expected: int
    answer: Answer
    version: int = 0
    """That of the object in the answer."""
    obj: Object | None = None

    @property
    def acknowledged(self) -> bool:
        return self.verb != "get" and self.version > 0

    @property
    def refused(self) -> bool:
        """The answer says that nothing was done."""
        return self.verb != "get" and (self.answer.status == 0 or self.answer.status in REFUSED)

    @property
    def doubtful(self) -> bool:
        """Nobody knows whether the write was done, or will be."""
        return self.verb != "get" and not self.acknowledged and not self.refused

    def __str__(self) -> str:
        answer = self.answer
        text = f"{self.verb} {self.kind.plural} {self.key} {self.mark or '-'} expecting {self.expected or '-'}"
        return f"{text}: {answer.status} {self.version or answer.body[:160]!r} by {answer.server} at {answer.sent:.2f}-{answer.done:.2f}"


@dataclass
class Listing:
    """A list that was answered with 200."""

    kind: Kind
    form: Form
    chosen: Selection
    way: str
    known: int
    server: str
    sent: float
    done: float
    listed: Listed


@dataclass
class Expired:
    """A 410, and the version that it was about."""

    kind: Kind
    version: int
    server: str
    sent: float
    done: float
    shown: int
    """The highest version that the server had shown to anybody."""


@dataclass
class Segment:
    """The events of a watcher from a list on, up to a 410 or the end. `told` has the time and the server of each event."""

    begin: int = 0
    initial: list[Seen] | None = None
    server: str = ""
    sent: float = 0
    done: float = 0
    told: list[tuple[Told, str, float]] = field(default_factory=list)


@dataclass
class Records:
    """All that clients got in one round."""

    operations: list[Operation] = field(default_factory=list)
    lists: list[Listing] = field(default_factory=list)
    expired: list[Expired] = field(default_factory=list)
    cut: list[tuple[str, float, str]] = field(default_factory=list)
    """Answers and watches that did not end as HTTP wants it: server, time, what."""
    wrong: list[str] = field(default_factory=list)
    """Answers that are wrong by themselves."""
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    shown: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    """By server and plural: when a higher version than before was shown."""

    def show(self, server: str, kind: Kind, version: int) -> None:
        seen = self.shown.setdefault((server, kind.plural), [])
        if not seen or version > seen[-1][1]:
            seen.append((time.monotonic(), version))


class Clients:
    """Connections to all servers, as an administrator and through a front proxy."""

    def __init__(self, authorities: Authorities, servers: list[Replica], seed: object) -> None:
        self.servers, self.seed = servers, seed
        self.records = Records()
        self.stopping = False
        self.acknowledged: list[float] = []
        """When each write was acknowledged."""
        connectors = [
            aiohttp.TCPConnector(ssl=context, limit=0) for context in (authorities.admin(), authorities.proxy())
        ]
        headers: list[dict[str, str]] = [{}, AS_ADMIN]
        self._sessions = [
            aiohttp.ClientSession(connector=connector, headers=sent, read_bufsize=1 << 18)
            for connector, sent in zip(connectors, headers, strict=True)
        ]
        for session in self._sessions:
            session._retry_connection = False  # else a request without an answer is sent again

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    def session(self, number: int) -> aiohttp.ClientSession:
        return self._sessions[number % 2]

    async def ask(
        self,
        method: str,
        path: str,
        draw: random.Random,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Answer:
        """One attempt at one server."""
        server, sent = draw.choice(self.servers), time.monotonic()
        url, data = f"https://127.0.0.1:{server.port}{path}", None if body is None else msgspec.json.encode(body)
        sends = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        try:
            async with self._sessions[0].request(
                method, url, data=data, headers=sends, params=query, timeout=aiohttp.ClientTimeout(total=30)
            ) as reply:
                answer = Answer(server.name, sent, 0, reply.status, await reply.read())
        except aiohttp.ClientConnectorError:
            answer = Answer(server.name, sent, 0, 0)
        except CUT as error:
            self.records.cut.append((server.name, time.monotonic(), f"{method} {path}: {error!r}"))
            answer = Answer(server.name, sent, 0, -1)
        answer.done = time.monotonic()
        self.records.statuses[method, answer.status] += 1
        if answer.status >= 500 and answer.status not in (503, 504):
            self.records.wrong.append(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer


class Writer:
    """Writes and reads the same objects as other writers, one after the other."""

    def __init__(self, clients: Clients, number: int, resources: list[Kind], pause: float) -> None:
        self.clients, self.number, self.resources, self.pause = clients, number, resources, pause
        self._draw = random.Random(f"{clients.seed}-write-{number}")
        self._count = 0

    async def run(self) -> None:
        draw = self._draw
        verbs = ["create"] * 4 + ["update"] * 5 + ["patch"] * 4 + ["delete"] * 3 + ["get"] * 3
        while not self.clients.stopping:
            kind = draw.choice(self.resources)
            key, verb = kind.draw_key(draw), draw.choice(verbs)
            await self.one(kind, key, verb)
            await asyncio.sleep(draw.uniform(0, 2 * self.pause))

    async def one(self, kind: Kind, key: Key, verb: str) -> Operation | None:
        draw, expected, mark = self._draw, 0, ""
        current: Object | None = None
        if verb in ("update", "delete") and (verb == "update" or draw.random() < 0.5):
            found = await self._send("get", kind, key)
            if found.obj is None:
                return None
            current, expected = found.obj, found.version
            await asyncio.sleep(draw.choice([0, 0, 0.05]))  # somebody else may be first
        if verb in ("create", "update", "patch"):
            self._count += 1
            mark = f"w{self.number}-{self._count}"
        made = kind.make(key, color=draw.choice(COLORS), mark=mark, text="x" * draw.randint(0, 200))
        body: Object | None = None
        if verb == "create":
            body = made
        elif verb == "update":
            assert current is not None
            changes = {name: made["metadata"][name] for name in ("labels", "annotations")}
            body = {**current, "metadata": {**current["metadata"], **changes}}
        elif verb == "patch":
            body = {"metadata": {name: made["metadata"][name] for name in ("labels", "annotations")}}
        elif verb == "delete":
            conditions = {"resourceVersion": str(expected)} if expected else {}
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        return await self._send(verb, kind, key, mark=mark, expected=expected, body=body)

    async def create(self, kind: Kind, key: Key, color: str) -> Operation:
        self._count += 1
        mark = f"w{self.number}-{self._count}"
        return await self._send("create", kind, key, mark=mark, body=kind.make(key, color=color, mark=mark))

    async def _send(
        self, verb: str, kind: Kind, key: Key, *, mark: str = "", expected: int = 0, body: Object | None = None
    ) -> Operation:
        method = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "get": "GET"}[verb]
        path = kind.path((key[0], "")) if verb == "create" else kind.path(key)
        headers = {"Content-Type": MERGE} if verb == "patch" else {}
        answer = await self.clients.ask(method, path, self._draw, body=body, headers=headers)
        operation = Operation(kind, key, verb, mark, expected, answer)
        if answer.status in (200, 201):
            obj: Object = msgspec.json.decode(answer.body)
            operation.version, operation.obj = version_of(obj), obj
            if verb == "get":
                self.clients.records.show(answer.server, kind, operation.version)
            else:
                kind.newest = max(kind.newest, operation.version)
                self.clients.acknowledged.append(answer.done)
        elif answer.status > 0 and answer.status not in (404, 409, 429, 503, 504):
            self.clients.records.wrong.append(str(operation))
        operation.answer.body = operation.answer.body[:200]
        self.clients.records.operations.append(operation)
        return operation


class Lister:
    """Lists in all forms, at all sorts of versions."""

    def __init__(self, clients: Clients, number: int, resources: list[Kind]) -> None:
        self.clients, self.resources = clients, resources
        self._draw = random.Random(f"{clients.seed}-list-{number}")
        self._past: dict[str, list[int]] = {kind.plural: [] for kind in resources}

    async def run(self) -> None:
        while not self.clients.stopping:
            await self._one()
            await asyncio.sleep(self._draw.uniform(0, 0.3))

    async def _one(self) -> None:
        draw = self._draw
        kind, form = draw.choice(self.resources), draw.choice(FORMS)
        chosen, way = (
            draw.choice(SELECTIONS[kind.plural]),
            draw.choice(["newest", "newest", "memory", "least", "exact", "walk"]),
        )
        known, query = kind.newest, dict[str, Any](chosen.query)
        past = draw.choice([known, *self._past[kind.plural][-20:]])
        if not past and way == "exact":
            return
        match way:
            case "memory":
                query["resourceVersion"] = "0"
            case "least":
                query |= {"resourceVersion": str(known), "resourceVersionMatch": "NotOlderThan"}
            case "exact":
                query |= {"resourceVersion": str(past), "resourceVersionMatch": "Exact"}
                known = past
            case "walk":
                query["limit"] = 7
        await self._all(kind, form, chosen, way, known, query)

    async def whole(self, kind: Kind) -> None:
        """List everything, as JSON, at the newest version."""
        await self._all(kind, FORMS[0], Selection(), "newest", kind.newest, {})

    async def _all(
        self, kind: Kind, form: Form, chosen: Selection, way: str, known: int, query: dict[str, Any]
    ) -> None:
        items: list[Seen] = []
        version, sent, server = 0, time.monotonic(), ""
        while True:
            answer = await self.clients.ask(
                "GET", kind.path((chosen.namespace, "")), self._draw, headers={"Accept": form.accept}, query=query
            )
            if answer.status == 410:
                self.clients.records.expired.append(_expired(self.clients, kind, version or known, answer))
            if answer.status not in (200, 410, 429, 503, 504, 0, -1):
                self.clients.records.wrong.append(f"list {way} of {kind.plural}: {answer.status} {answer.body[:300]!r}")
            if answer.status != 200:
                return
            part = form.listed(answer.body)
            if version and part.version != version:
                self.clients.records.wrong.append(f"list of {kind.plural}: a chunk of {part.version} after {version}")
            version, server = part.version, server or answer.server
            items += part.items
            self.clients.records.show(answer.server, kind, version)
            if not part.following:
                break
            query = {**chosen.query, "limit": 7, "continue": part.following}
        self._past[kind.plural].append(version)
        listed = Listed(version, "", items)
        self.clients.records.lists.append(
            Listing(kind, form, chosen, way, known, server, sent, time.monotonic(), listed)
        )


def _expired(clients: Clients, kind: Kind, version: int, answer: Answer) -> Expired:
    shown = clients.records.shown.get((answer.server, kind.plural), [])
    return Expired(kind, version, answer.server, answer.sent, answer.done, shown[-1][1] if shown else 0)


class Watcher:
    """Lists, watches, and resumes at the last version until it gets 410."""

    def __init__(self, clients: Clients, number: int, kind: Kind, form: Form, chosen: Selection) -> None:
        self.clients, self.kind, self.form, self.chosen = clients, kind, form, chosen
        self.name = f"watch {number} of {kind.plural} {type(form).__name__} {chosen}"
        self._draw = random.Random(f"{clients.seed}-watch-{number}")
        self._number = number
        self._slow = number % 7 == 3
        self._listing = number % 5 == 4
        """It lists anew each time, by initial events."""
        self.position = 0
        self.segments: list[Segment] = []

    async def run(self) -> None:
        while True:
            if self._listing:
                await self._stream({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
            elif not self.position:
                await self._list()
            else:
                await self._stream({"resourceVersion": str(self.position)})
            await asyncio.sleep(self._draw.uniform(0.02, 0.1))  # a client's back-off

    async def _list(self) -> None:
        answer = await self.clients.ask(
            "GET",
            self.kind.path((self.chosen.namespace, "")),
            self._draw,
            headers={"Accept": self.form.accept},
            query=dict(self.chosen.query),
        )
        if answer.status == 200:
            listed = self.form.listed(answer.body)
            self.position = listed.version
            self.clients.records.show(answer.server, self.kind, listed.version)
            self.segments.append(Segment(listed.version, listed.items, answer.server, answer.sent, answer.done))
        elif answer.status not in (429, 503, 504, 0, -1):
            self.clients.records.wrong.append(f"list of {self.name}: {answer.status} {answer.body[:300]!r}")

    async def _stream(self, query: dict[str, str]) -> None:
        server, records = self._draw.choice(self.clients.servers), self.clients.records
        asked: dict[str, str] = {**self.chosen.query, "watch": "1", "allowWatchBookmarks": "true", **query}
        asked["timeoutSeconds"] = str(self._draw.randint(3, 15))
        url = f"https://127.0.0.1:{server.port}{self.kind.path((self.chosen.namespace, ''))}"
        sent = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
        try:
            async with self.clients.session(self._number).get(
                url, params=asked, headers={"Accept": self.form.watched}, timeout=timeout
            ) as reply:
                records.statuses["WATCH", reply.status] += 1
                if reply.status == 410:
                    self._expire(server.name, sent)
                elif reply.status == 200:
                    await self._follow(reply.content, server.name, sent)
                elif reply.status not in (429, 503, 504):
                    records.wrong.append(f"{self.name} {query}: {reply.status} {await reply.text()}")
        except aiohttp.ClientConnectorError:
            pass
        except CUT as error:
            records.cut.append((server.name, time.monotonic(), f"{self.name}: {error!r}"))

    def _expire(self, server: str, sent: float) -> None:
        answer = Answer(server, sent, time.monotonic(), 410)
        self.clients.records.expired.append(_expired(self.clients, self.kind, self.position, answer))
        self.position = 0

    async def _follow(self, content: aiohttp.StreamReader, server: str, sent: float) -> None:
        segment: Segment | None = None
        initial: list[Seen] = []
        if not self._listing:
            segment = self.segments[-1]
        while frame := await (next_frame(content) if self.form.framed else content.readline()):
            if not self.form.framed and not frame.endswith(b"\n"):
                self.clients.records.cut.append((server, time.monotonic(), f"{self.name}: ended within an event"))
                return
            if _is_error(self.form, frame):
                if b"Expired" in frame or b"Gone" in frame:
                    self._expire(server, sent)
                    return
                if b"Timeout" not in frame and b"TooManyRequests" not in frame and b"ServiceUnavailable" not in frame:
                    self.clients.records.wrong.append(f"{self.name}: {frame[:300]!r}")
                return
            event = self.form.told(frame)
            now = time.monotonic()
            if segment is not None:
                segment.told.append((event, server, now))
                self.position = event.seen.version
            elif event.type == "MARKER":
                self.position = event.seen.version
                segment = Segment(self.position, initial, server, sent, now)
                self.segments.append(segment)
            elif event.type == "ADDED":
                initial.append(event.seen)
                continue
            else:
                self.clients.records.wrong.append(f"{self.name}: {event} among the initial events")
            self.clients.records.show(server, self.kind, self.position)
            if self._slow and self._draw.random() < 0.03 and not self.clients.stopping:
                await asyncio.sleep(self._draw.uniform(0, 2))  # a client that is busy


def _is_error(form: Form, frame: bytes) -> bool:
    if form.framed:
        return protobuf.inside(frame, 1) == b"ERROR"
    return b'"type":"ERROR"' in frame[:40]


def watchers(clients: Clients, resources: list[Kind], count: int) -> list[Watcher]:
    """Every form and selection."""
    made = []
    for number in range(count):
        kind = resources[number % len(resources)]
        chosen = SELECTIONS[kind.plural][number // 2 % 5]
        made.append(Watcher(clients, number, kind, FORMS[(number // 2 + number // 10) % 5], chosen))
    return made
