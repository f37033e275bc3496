"""Clients of a soak: writers at a fixed rate, watchers that end and resume, and lists in every form."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from bench import forms
from bench.client import JSON, Connection, Reader, Target, lines
from bench.workloads import SLICES, WRITES, slice_body
from tests.faults.pair import GROUP
from tests.soak.log import Log
from tests.soak.system import Place

WRITERS = 16
DEVICES = 4
SHARES = {"PUT": 6, "MERGE PATCH": 2, "APPLY": 1, "DELETE": 1}
"""The kinds of ten writes to a slice that exists; one that was deleted is created again."""
CUT_OFF = 0.25
"""This share of watches is broken off by the client, the others end by their timeoutSeconds."""
PAUSE_SECONDS = 0.05
LATEST_SECONDS = 120.0
"""A watch that ends later than this after its time has a fault."""
LATER = (429, 503)
MOST_REFUSED = 0.001
"""The share of requests that may get these. A store whose disk stands still for three seconds refuses writes."""
MOST_CUT = 2
"""Requests for each restart that may meet the end of their connection: a server that stops closes idle connections, and HTTP/1.1 cannot
tell a client before it sends."""
CUT = "requests on connections that a restart closed"
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
LISTS = [
    (form, gzip, query)
    for form in forms.FORMS
    for gzip in (False, True)
    for query in ("", "?resourceVersion=0", "?limit=500")
]


@dataclass
class Load:
    """How much of everything there is."""

    writes: float = 200.0
    watchers: int = 500
    of_everything: int = 10
    """Watchers that see all nodes, as a scheduler or a controller does."""
    nodes: int = 400
    slices: int = 4
    """For each node."""
    lists: float = 1.0
    shortest_watch: float = 60.0
    longest_watch: float = 300.0


@dataclass
class Traffic:
    """The state that all clients share."""

    places: Sequence[Place]
    load: Load
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    stopping: bool = False
    acknowledged: int = 0
    """The newest version of a write that succeeded."""

    def refused(self, what: str, status: int) -> None:
        """Count an answer that asks the client to come again. Other answers without success are findings."""
        if status in LATER:
            self.counts[f"answers {status}"] += 1
            self.counts["refused"] += 1
        else:
            self.found(f"{what}: {status}")

    def judge_refusals(self) -> None:
        done = self.counts["writes"] + self.counts["lists"] + self.counts["watches"]
        if self.counts["refused"] > MOST_REFUSED * done:
            self.found(f"{self.counts['refused']} of {done} requests were refused")
        restarts = sum(place.restarts for place in self.places)
        if self.counts[CUT] > MOST_CUT * restarts:
            self.found(f"{self.counts[CUT]} {CUT}, in {restarts} restarts")

    def draw(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}-{name}")

    def found(self, text: str) -> None:
        self.counts["findings"] += 1
        if len(self.findings) < 100:
            self.findings.append(text)

    @property
    def nodes(self) -> list[str]:
        return [f"node-{number:04d}" for number in range(self.load.nodes)]


class Pool:
    """A kept-alive connection of one client to each address."""

    def __init__(self, traffic: Traffic, name: str) -> None:
        self.draw = traffic.draw(name)
        self._traffic = traffic
        self._open: dict[int, Connection] = {}

    async def ask(self, method: str, path: str, body: bytes = b"", *, kind: str = JSON) -> tuple[int, bytes]:
        """One attempt at one address; the status is 0 without an answer. A connection that the server has closed is opened again."""
        place = self.draw.choice(self._traffic.places)
        port = place.target.port
        connection = self._open.pop(port, None)
        if connection is not None and connection.reader.at_eof():
            connection.close()
            connection = None
        kept = connection is not None
        try:
            connection = connection or await Connection(place.target).open()
            answer = await connection.fetch(method, path, body, kind=kind)
        except (OSError, EOFError) as error:
            if connection is not None:
                connection.close()
            if kept and isinstance(error, asyncio.IncompleteReadError | ConnectionError) and not _partial(error):
                self._traffic.counts[CUT] += 1
            else:
                self._traffic.counts["requests without an answer"] += 1
                self._traffic.found(f"{place.name}: {method} {path}: {error!r}")
            return 0, b""
        if connection.last:
            connection.close()
        else:
            self._open[port] = connection
        return answer

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


def _partial(error: Exception) -> bytes:
    """Return what came of an answer before the connection ended."""
    return error.partial if isinstance(error, asyncio.IncompleteReadError) else b""


@contextlib.asynccontextmanager
async def pooled(traffic: Traffic, name: str) -> AsyncIterator[Pool]:
    pool = Pool(traffic, name)
    try:
        yield pool
    finally:
        pool.close()


# Writes


class Slice:
    """One object, and how it was written last."""

    def __init__(self, node: str, number: int, target: Target) -> None:
        self.node, self.name = node, f"{node}.{number}"
        self.collection = target.base + SLICES
        self.exists = False

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}?fieldManager=soak"

    def body(self, stamp: str) -> bytes:
        return slice_body(GROUP, self.name, self.node, stamp, devices=DEVICES)


def slices(traffic: Traffic) -> list[Slice]:
    target = traffic.places[0].target
    return [Slice(node, number, target) for node in traffic.nodes for number in range(traffic.load.slices)]


async def fill(traffic: Traffic, objects: Sequence[Slice]) -> None:
    """Create every slice."""
    waiting = iter(objects)

    async def create(number: int) -> None:
        async with pooled(traffic, f"fill-{number}") as pool:
            for one in waiting:
                await write(traffic, pool, one, "first")

    await asyncio.gather(*map(create, range(WRITERS)))


async def write(traffic: Traffic, pool: Pool, one: Slice, stamp: str) -> None:
    """Change one slice in some way. One whose write had no answer is looked up first."""
    if one.exists:
        how = pool.draw.choices(list(SHARES), list(SHARES.values()))[0]
    else:
        how = "CREATE"
    if how == "CREATE":
        status, answer = await pool.ask("POST", one.collection, one.body(stamp))
    elif how == "DELETE":
        status, answer = await pool.ask("DELETE", one.path)
    else:
        method, kind, query = WRITES[how]
        body = one.body(stamp)
        if how == "MERGE PATCH":
            body = json.dumps({"metadata": {"annotations": {"stamp": stamp}}}).encode()
        status, answer = await pool.ask(method, f"{one.path}&{query}", body, kind=kind)
    if status in (200, 201):
        one.exists = how != "DELETE"
        traffic.counts[how] += 1
        traffic.counts["writes"] += 1
        traffic.acknowledged = max(traffic.acknowledged, version(answer))
        return
    if status:
        traffic.refused(f"{how} {one.name}", status)
    status = 0
    while status not in (200, 404):
        await asyncio.sleep(PAUSE_SECONDS)
        status, _ = await pool.ask("GET", one.path)
    one.exists = status == 200


def version(answer: bytes) -> int:
    """The resourceVersion of an answer. That of a deletion is the version of the object before, or missing."""
    found = _VERSION.search(answer)
    return int(found[1]) if found else 0


async def write_for_ever(traffic: Traffic, objects: Sequence[Slice]) -> None:
    """At the load's rate; a machine that cannot do that does as much as it can."""
    began, tickets = time.perf_counter(), itertools.count()

    async def run(number: int) -> None:
        own = objects[number::WRITERS]
        async with pooled(traffic, f"write-{number}") as pool:
            while not traffic.stopping:
                ticket = next(tickets)
                due = began + ticket / traffic.load.writes
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await write(traffic, pool, pool.draw.choice(own), f"{ticket}")

    await asyncio.gather(*map(run, range(WRITERS)))


# Lists


async def list_for_ever(traffic: Traffic) -> None:
    """In every form. A consistent list must not be older than the last acknowledged write."""
    draw = traffic.draw("lists")
    began = time.perf_counter()
    for number in itertools.count():
        await asyncio.sleep(max(0.0, began + number / traffic.load.lists - time.perf_counter()))
        if traffic.stopping:
            return
        form, gzip, query = draw.choice(LISTS)
        place, known = draw.choice(traffic.places), traffic.acknowledged
        path = place.target.base + SLICES + query
        try:
            reader = await Reader(place.target).open()
            try:
                answer = await reader.get(path, form.accept, gzip=gzip, keep=300)
            finally:
                reader.close()
        except (OSError, EOFError) as error:
            traffic.counts["requests without an answer"] += 1
            traffic.found(f"{place.name}: list {path} as {form.name}: {error!r}")
            continue
        if answer.status != 200:
            traffic.refused(f"list {path} as {form.name}", answer.status)
            continue
        traffic.counts["lists"] += 1
        found = version(answer.start)
        if query != "?resourceVersion=0" and found and found < known:
            traffic.found(f"{place.name}: list {path} at {found} after an acknowledged write at {known}")


# Watches


class Seen:
    """The versions that one watcher has seen since its list."""

    def __init__(self) -> None:
        self.begin = self.position = 0
        self.versions = array("Q")

    def start(self, at: int) -> None:
        self.begin = self.position = at

    def add(self, line: bytes) -> str:
        """Note an event; return what is wrong with it, or nothing. Bookmarks may repeat a version, changes may not."""
        kind, seen = line[9:14], version(line)
        if kind == b"ERROR":
            return repr(line[:300])
        bookmark = kind == b"BOOKM"
        if seen < self.position or (seen == self.position and not bookmark):
            return f"{line[9:17]!r} at {seen} after {self.position}"
        self.position = seen
        if not bookmark:
            self.versions.append(seen)
        return ""

    def compare(self, log: Iterable[int]) -> str:
        """Say how what came differs from the log; nothing if it does not."""
        due, came = {seen for seen in log if seen > self.begin}, set(self.versions)
        if due == came:
            return ""
        return (
            f"from {self.begin}: {len(due - came)} changes are missing {sorted(due - came)[:3]}, "
            f"{len(came - due)} are not in the log {sorted(came - due)[:3]}"
        )


class Watcher:
    """An informer: lists once, then watches from the version that it saw last."""

    def __init__(self, traffic: Traffic, number: int, node: str) -> None:
        self.node = node
        self.seen = Seen()
        self.resumed = 0
        self._traffic = traffic
        self._name = f"watcher {number} of {node or 'everything'}"
        self._draw = traffic.draw(f"watch-{number}")
        selector = f"?fieldSelector=spec.nodeName%3D{node}&" if node else "?"
        self._place = traffic.places[number % len(traffic.places)]
        self._path = self._place.target.base + SLICES + selector

    async def begin_at_a_list(self) -> None:
        async with pooled(self._traffic, self._name) as pool:
            status, answer = await pool.ask("GET", f"{self._path}limit=1")
        if status != 200:
            raise RuntimeError(f"{self._name}: the list answered {status}: {answer[:300]!r}")
        self.seen.start(int(json.loads(answer)["metadata"]["resourceVersion"]))

    async def run(self) -> None:
        """For ever."""
        while True:
            with contextlib.suppress(OSError):
                await self._once()
            await asyncio.sleep(self._draw.uniform(0.5, 1.5) * PAUSE_SECONDS)
            self.resumed += 1

    async def _once(self) -> None:
        load = self._traffic.load
        seconds = int(self._draw.uniform(load.shortest_watch, load.longest_watch)) or 1
        query = f"watch=1&allowWatchBookmarks=true&resourceVersion={self.seen.position}&timeoutSeconds={seconds}"
        stream = await lines(self._place.target, self._path + query, self._line)
        try:
            status = stream.status.result()
            if status == 200:
                self._traffic.counts["watches"] += 1
                await self._listen(stream.ended, seconds)
            elif status:
                self._traffic.refused(f"{self._name}: watch from {self.seen.position}", status)
        finally:
            stream.transport.abort()

    async def _listen(self, ended: asyncio.Future[bool], seconds: float) -> None:
        if self._draw.random() < CUT_OFF:
            await asyncio.wait([ended], timeout=self._draw.uniform(0, seconds))
            self._traffic.counts["watches broken off by the client"] += 1
            return
        done, _ = await asyncio.wait([ended], timeout=seconds + LATEST_SECONDS)
        if not done:
            self._traffic.found(f"{self._name}: a watch of {seconds} s did not end")
        elif ended.result():
            self._traffic.counts["watches that ended"] += 1
        else:
            self._traffic.found(f"{self._name}: a watch broke off")

    def _line(self, line: bytes) -> None:
        if text := self.seen.add(line):
            self._traffic.found(f"{self._name}: {text}")

    def compare(self, log: Log) -> str:
        """Say how what came differs from the log; nothing if it does not."""
        text = self.seen.compare(log.of(self.node))
        return text and f"{self._name}, {text}"

    def has_all(self, log: Log) -> bool:
        due = log.of(self.node)
        return not due or due[-1] <= self.seen.position


def watchers(traffic: Traffic) -> list[Watcher]:
    """Each of one node, but for some of everything."""
    nodes, everything = traffic.nodes, traffic.load.of_everything
    return [
        Watcher(traffic, number, "" if number < everything else nodes[number % len(nodes)])
        for number in range(traffic.load.watchers)
    ]
