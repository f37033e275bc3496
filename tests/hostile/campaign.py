"""Sends hostile requests to a running server and holds the server to its budget meanwhile.

The budget is that of one request that anybody may send: no 500 that upstream would not answer, no error of more than 1 MiB, 64 MiB of
memory while it is served and nothing that stays, no step of the event loop above 20 ms of CPU, and health checks on another connection
that do not wait. A refused request may cost 100 ms of CPU (the family `refusals`). Time is judged together with the CPU time that the
server used meanwhile, so that a busy machine is not mistaken for a slow server. A step that is not far above the budget is a breach if
it is one again when the request is sent again.

Requests are sent in rounds: the small ones of a round several at once, each large one alone. A round that was above the budget of one
request is sent again, one request at a time, to find out which it was.

Growth is judged between two moments of rest, the first when the server is warm. By then caches may not be full: the bytes that the
server itself reports (objects, history, encodings: all bounded) are subtracted, and the remainder may be GROWTH_BYTES.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pathlib
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from apiserver.serving.steps import BUDGET_SECONDS, MESSAGE
from tests.fixtures import steps
from tests.fixtures.server import Reply
from tests.hostile import custom, handshakes
from tests.hostile.forms import STANDING, Hostile
from tests.hostile.generator import COLLECTIONS, GROUP, REFUSALS, SPECS

ERROR_BYTES = (1 << 20) + 4096
"""The largest error, with its headers."""
MEMORY_BYTES = 64 << 20
GROWTH_BYTES = 16 << 20
"""The permitted growth of the process after any number of requests that wrote nothing: answers of the cluster in the last seconds, and
the allocator's leftovers."""
HELD = re.compile(rb"(?m)^sluice_(?:object|history|encoding)_bytes(?:\{[^}]*\})? (\S+)$")
REFUSED = re.compile(rb'(?m)^sluice_crds\{state="refused"\} (\S+)$')
LOOK_SECONDS = 0.2
"""Between two looks at whether changed definitions are served."""
HELD_SHARE = 1.6
"""The cost of a byte of those, with everything around it: while a campaign added 16.7 MB to them, all that was in use grew by 26.1."""
SCATTERED_BYTES = 32 << 20
"""Python's allocator gives a mebibyte back when nothing is left in it. Where requests of megabytes come and something of them stays, the
peaks leave as much between what stays, however many follow: beside a campaign that had grown by 199 MiB and held 101 more, 74 of the 127
that the allocator had were free (`sys._debugmallocstats`), and all that was in use had grown by 110."""
REST_SECONDS, RESTLESS_SECONDS, STILL_BYTES = 2.0, 20.0, 1 << 20
"""A process rests when it has not become smaller by more than that for so long; and how long that is waited for."""
ALONE_BYTES = 256 << 10
"""Requests above it are sent one at a time: several may take more memory together than one may."""
TOLD, TOLD_SECONDS = 500, 30.0
"""After how many requests it is said how it goes, and after how long at the latest."""
WARM, WARM_HEADS = 2000, 4000
"""After how many requests a process is as large as it will be: of all sorts, once patterns, expressions and field sets are remembered up to
their bounds; and of heads alone, once every place is taken where short targets are remembered."""
REFUSAL_SECONDS = 0.1
"""CPU time that the process may take for a request that it refuses: the event loop and all threads together."""
HEALTH_SECONDS = 0.1
PROBE_SECONDS = 0.02
ANSWER_SECONDS = 90.0
STREAM_SECONDS, LEAVING_SECONDS = 0.5, 0.2
"""How long a client stays with an answer that has no end, and how long one waits that has not sent all of its request."""
FLAGS = (
    "--feature-gates=ShardedListAndWatch=true,DRANodeAllocatableResources=true,DRAListTypeAttributes=true",
    f"--runtime-config={GROUP}/v1beta1=true,{GROUP}/v1beta2=true",
)
"""Flags of the server that enable everything that can be attacked."""
SLOW_PIECES, SLOW_BYTES, SLOW_SECONDS = 50, 8192, 0.01
REPEATED, FAR = 3, 2.5
"""How often requests are sent again that took too long, and by how much too long no second look is needed."""
HEALTH = "health"
OURS = (HEALTH, "all")
"""Names of breaches that belong to no single request."""
SHOWN = 300
"""Bytes of an answer that a breach shows."""
HELD_UP = "held the event loop"
DENIALS = (b"admission webhook", b"ValidatingAdmissionPolicy")
PANIC = b"caused apiserver to panic"
TICKS = os.sysconf("SC_CLK_TCK")
UPSTREAMS = (
    (500, rb'resourceVersion: Invalid value: \\"'),
    (500, rb"resourceVersion should not be set on objects to be created"),
    (500, rb"strconv.ParseUint: parsing "),
    (500, rb"invalid shard selector: "),
    (500, rb"etcdserver: request is too large"),
    (
        500,
        rb'"message":"(map: map|unknown patch type: |list element types are not identical: |no elements in any of the given )',
    ),
    (
        500,
        rb'"message":"(expected a |expected slice |unable to find api field|merging |The order in patch list:|runtime error: )',
    ),
    (
        500,
        rb'"message":"(value for key |cannot merge lists |unexpected slice of slice|failed to (create|convert|get|prune|merge) )',
    ),
    (500, rb"Internal Server Error: .*failed to create RequestInfo"),
    (500, rb'"message":"(errors:\\n +)?\.metadata\.[a-zA-Z]+: duplicate entries for key '),
    (
        500,
        rb"Internal error occurred: (Unable to complete the copy|(add|copy|move|remove|replace|test) operation does not apply|testing )",
    ),
    (501, rb"\r\n\r\n(\Z|Unsupported transfer encoding)"),  # to HEAD without a body
    (500, rb"the spec replicas field "),
    (500, rb"conversion webhook for custom\.hostile\.example\.com/"),
    (504, rb"Too large resource version"),
    (505, rb"505 HTTP Version Not Supported"),
)
"""The answers above 499 that are upstream's own, by what they say."""
LATE = re.compile(rb"[?&]timeout=")
"""The query parameter of requests that may get 504 because their time is over."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A violation by one request or by several together, and how to send them again."""

    request: Hostile
    what: str
    again: str = ""
    together: int = 1

    def __str__(self) -> str:
        first = self.request.head[:160].decode("utf-8", "replace").split("\r\n")[0]
        who = f"#{self.request.number} ({self.request.family})"
        if self.together > 1:
            who = f"one of {self.together} from {who} on, and none of them when it is sent alone,"
        return f"{who} {self.what}: {first}" + (f'\n  again: make hostile ARGS="{self.again}"' if self.again else "")


@dataclass(slots=True)
class Report:
    """The results of a campaign. Seconds are the longest wait of a health check and the longest reported step, bytes the most that
    one request took, and what the process had grown by in the end beside what it held by then."""

    breaches: list[Breach] = field(default_factory=list)
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    sent: int = 0
    slowest_probe: float = 0.0
    longest_step: float = 0.0
    most_memory: int = 0
    warm: int = 0
    grown: int = 0
    held: int = 0
    stopped: bool = False

    def __str__(self) -> str:
        lines = [
            f"{self.sent} requests, {len(self.breaches)} breaches{', stopped' if self.stopped else ''}",
            f"longest wait of a health check {self.slowest_probe * 1000:.0f} ms, longest step {self.step}",
            f"most memory of one request {self.most_memory >> 20} MiB",
            f"grown by {self.grown / (1 << 20):.1f} MiB since it was warm, holding {self.held / (1 << 20):.1f} MiB more"
            if self.warm
            else "not warm: what stays in memory was not judged",
        ]
        for family, total in sorted(self.families.items()):
            codes = [(code, count) for (of, code), count in sorted(self.codes.items()) if of == family]
            lines.append(f"  {family} {total}: " + ", ".join(f"{count} × {code}" for code, count in codes))
        return "\n".join([*lines, *map(str, self.breaches)])

    @property
    def step(self) -> str:
        if not self.longest_step:
            return f"below {BUDGET_SECONDS * 1000:.0f} ms"
        return f"{self.longest_step * 1000:.0f} ms (budget here {BUDGET_SECONDS * steps.slowness() * 1000:.0f} ms)"

    @property
    def families(self) -> Counter[str]:
        """How many answers there were to each."""
        found: Counter[str] = Counter()
        for (family, _), count in self.codes.items():
            found[family] += count
        return found


Look = tuple[list[str], int]
"""Times above a budget, and the bytes of memory that were taken."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status 0: the connection ended without one. `start` is of head and body."""

    code: int
    size: int = 0
    start: bytes = b""


class Target(Protocol):
    """The server that is attacked: `tests.fixtures.server.DevServer`, or one behind a cluster."""

    port: int
    log: pathlib.Path

    @property
    def pid(self) -> int: ...

    def context(self, *, certificate: bool = True) -> ssl.SSLContext:
        """The TLS context of an administrator, or of a client without a certificate."""

    def request(self, method: str, path: str, body: Any = None) -> Reply:
        """As the administrator."""


class Process:
    """The kernel's figures of the server's process."""

    def __init__(self, pid: int) -> None:
        self._folder = pathlib.Path("/proc", str(pid))

    def cpu_seconds(self) -> float:
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        """Resident bytes."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """The most resident bytes since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"the kernel does not tell {name}")


class Connection:
    """One client's connection, made anew whenever the server or the client ended it."""

    def __init__(self, port: int, *, context: ssl.SSLContext) -> None:
        self._port = port
        self._context = context
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, request: Hostile) -> list[Answer]:
        """The answers to it, of which there is one unless it is several requests. Raises TimeoutError when nothing comes for too long."""
        if request.family == handshakes.FAMILY:
            return [Answer(await asyncio.to_thread(handshakes.attack, self._port, request.head))]
        if request.slowly or request.answers > 1:
            # On a connection that has carried a large body, aiohttp leaves a pipeline unread that is longer than its queue: it harms nobody
            # but its client, who would have to be waited for here.
            await self.close()
        try:
            reader, writer = await self._connected(slowly=request.slowly)
            sending = asyncio.ensure_future(_send(writer, request))
            try:
                if request.slowly:
                    return await _slow_answer(reader)
                return await self._answers(reader, request)
            finally:
                if not sending.done():  # the rest of it would be taken for the beginning of the next one
                    sending.cancel()
                    await self.close()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            if request.slowly or request.streams or request.leaves:
                await self.close()

    async def _answers(self, reader: asyncio.StreamReader, request: Hostile) -> list[Answer]:
        found: list[Answer] = []
        seconds = LEAVING_SECONDS if request.leaves else ANSWER_SECONDS
        for _ in range(request.answers):
            deadline = asyncio.timeout(seconds)
            try:
                async with deadline:
                    answer, goes_on = await _answer(reader, request)
            except TimeoutError:
                if deadline.expired() and not request.leaves:
                    await self.close()
                    raise
                answer, goes_on = Answer(0), False
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                answer, goes_on = Answer(0), False
            found.append(answer)
            if not goes_on:
                await self.close()
                break
        return found

    async def _connected(self, *, slowly: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            sock = socket.socket()
            if slowly:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BYTES)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
            self._reader, self._writer = await asyncio.open_connection(
                sock=sock, ssl=self._context, server_hostname="127.0.0.1", limit=SLOW_BYTES if slowly else 1 << 26
            )
        return self._reader, self._writer

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def _send(writer: asyncio.StreamWriter, request: Hostile) -> None:
    """While the answer is read, which may come before all is sent."""
    raw = request.head + request.body
    for at in range(0, len(raw), 1 << 16):
        writer.write(raw[at : at + (1 << 16)])
        await writer.drain()


async def _slow_answer(reader: asyncio.StreamReader) -> list[Answer]:
    """A part of it, in small pieces."""
    async with asyncio.timeout(ANSWER_SECONDS):
        parts = [await reader.read(SLOW_BYTES)]
    for _ in range(SLOW_PIECES):
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                parts.append(await reader.read(SLOW_BYTES))
        except TimeoutError:
            break
        if not parts[-1]:
            break
        await asyncio.sleep(SLOW_SECONDS)
    whole = b"".join(parts)
    return [Answer(int(whole.split(b" ", 2)[1]) if whole.startswith(b"HTTP/") else 0, len(whole), whole[:4096])]


async def _answer(reader: asyncio.StreamReader, request: Hostile) -> tuple[Answer, bool]:
    """And whether the connection can be used again."""
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 1"):
        head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    assert head.startswith(b"HTTP/1."), head
    code = int(head.split(b" ", 2)[1])
    goes_on = b"connection: close" not in lower
    if request.head.startswith(b"HEAD ") or code in (204, 304):
        return Answer(code, len(head), head), goes_on
    if b"transfer-encoding: chunked" in lower:
        body = await _chunks(reader, streams=request.streams)
        goes_on = goes_on and not request.streams
    elif b"content-length: " in lower:
        body = await reader.readexactly(int(lower.partition(b"content-length: ")[2].split(b"\r\n", 1)[0]))
    else:
        body, goes_on = await reader.read(), False
    return Answer(code, len(head) + len(body), head + body[: 1 << 16]), goes_on


async def _chunks(reader: asyncio.StreamReader, *, streams: bool) -> bytes:
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(STREAM_SECONDS if streams else None):
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
            await reader.readuntil(b"\r\n")
    except TimeoutError:
        pass
    return b"".join(parts)


class Campaign:
    """One server, one stream of requests, sent in rounds: `each` of them for each connection, which sends one at a time.

    `say` prints the progress, and `again` knows how to send a request once more. `definitions` is the folder that the server follows
    (`--crds`), if it serves the custom kinds.
    """

    def __init__(
        self,
        server: Target,
        *,
        connections: int = 1,
        each: int = 1,
        warm: int = WARM,
        say: Callable[[str], None] = lambda text: None,
        again: Callable[[Hostile], str] = lambda request: "",
        definitions: pathlib.Path | None = None,
    ) -> None:
        self._server = server
        self._definitions = definitions
        self._defining = asyncio.Lock()
        self._defined, self._placed = b"", 0
        self._process = Process(server.pid)
        admin, nobody = server.context(), server.context(certificate=False)
        self._connections = [
            (Connection(server.port, context=admin), Connection(server.port, context=nobody))
            for _ in range(connections)
        ]
        self._probe = Connection(server.port, context=admin)
        self._together = connections * each
        self._logged = server.log.stat().st_size
        self._warm = warm
        self._warm_held = 0
        self._say, self._again = say, again
        self._stopping = False
        self._refused = 0
        """Requests of the family REFUSALS that were refused so far, but for denials of webhooks and policies."""
        self.report = Report()

    def stop(self) -> None:
        """Ends it with what is being sent, and with what was found so far."""
        self._stopping = self.report.stopped = True

    async def run(
        self, requests: Iterable[Hostile], *, most: int | None = None, seconds: float | None = None
    ) -> Report:
        """Until so many were sent, or so much time has passed, or somebody stops it."""
        report = self.report
        began = said = time.monotonic()
        told = 0
        await self._prepare()
        stream = iter(requests)
        try:
            while not self._stopping and (seconds is None or time.monotonic() < began + seconds):
                left = self._together if most is None else min(self._together, most - report.sent)
                if not (together := list(itertools.islice(stream, left))):
                    break
                await self._round(together)
                if not report.warm and report.sent >= self._warm:
                    report.warm, self._warm_held = await self._at_rest()
                now = time.monotonic()
                if report.sent - told >= TOLD or now - said >= TOLD_SECONDS:
                    told, said = report.sent, now
                    self._say(self._progress(now - began, most))
            if report.warm and report.sent > self._warm:
                await self._judge_growth()
        finally:
            for connection in (self._probe, *itertools.chain.from_iterable(self._connections)):
                await connection.close()
        return report

    def _progress(self, seconds: float, most: int | None) -> str:
        report = self.report
        line = (
            f"{report.sent}{f' of {most}' if most else ''} requests in {seconds:.0f} s: {len(report.breaches)} breaches,"
            f" longest step {report.step}, health {report.slowest_probe * 1000:.0f} ms, most of one {report.most_memory >> 20} MiB,"
            f" process {self._process.memory() >> 20} MiB"
        )
        return line + "\n  answers: " + ", ".join(f"{name} {count}" for name, count in sorted(report.families.items()))

    async def _prepare(self) -> None:
        """An object of each kind that is always there, and everything warm that is made once."""
        for kind, collection in COLLECTIONS.items():
            metadata = {"name": STANDING, **({"namespace": "hostile"} if "namespaces" in collection else {})}
            obj = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": SPECS[kind]}
            reply = await asyncio.to_thread(self._server.request, "POST", collection, obj)
            assert reply.status in (201, 409), reply.text
        for collection, obj in custom.standing() if self._definitions else ():
            reply = await asyncio.to_thread(self._server.request, "POST", collection, obj)
            assert reply.status in (201, 409), reply.text
        for path in ("/openapi/v2", "/openapi/v3", "/metrics", "/apis"):
            await asyncio.to_thread(self._server.request, "GET", path)
        steps.breaches()

    async def _round(self, requests: Sequence[Hostile]) -> None:
        self.report.sent += len(requests)
        small = [request for request in requests if len(request.head) + len(request.body) <= ALONE_BYTES]
        large = [request for request in requests if len(request.head) + len(request.body) > ALONE_BYTES]
        if len(self._connections) == 1 or not small:
            small, large = [], list(requests)
        if small:
            await self._judge_several(sorted(small, key=lambda request: not request.lasts))
        for request in large:
            if not self._stopping:
                await self._judge(request)

    async def _judge_several(self, requests: Sequence[Hostile]) -> None:
        """Several requests together may exceed the budget of one: then each is judged alone."""
        late, took = await self._look(requests)
        if not late and took <= MEMORY_BYTES:
            return
        if len(requests) == 1:
            await self._judge(requests[0], (late, took))
            return
        before = len(self.report.breaches)
        for request in requests:
            if self._stopping:
                return
            await self._judge(request)
        if len(self.report.breaches) > before:
            return
        if took > MEMORY_BYTES * len(self._connections):
            self.found(requests[0], f"took {took >> 20} MiB of memory", together=len(requests))
        for what in late:
            # That health checks wait while several are served is not the budget of one; what holds the loop for so long is.
            if what.startswith(HELD_UP) and _ratio(what) > FAR:
                self.found(requests[0], what, together=len(requests))

    async def _judge(self, request: Hostile, look: Look | None = None) -> None:
        """By itself. A time that is not far above the budget counts if it is above it more often than not."""
        late, took = look or await self._look([request])
        self.report.most_memory = max(self.report.most_memory, took)
        if took > MEMORY_BYTES:
            self.found(request, f"took {took >> 20} MiB of memory")
        if not late:
            return
        if not any(_ratio(what) > FAR for what in late):
            times = [bool((await self._look([request]))[0]) for _ in range(REPEATED)]
            if sum(times) <= REPEATED // 2:
                return
        for what in late:
            self.found(request, what)

    async def _look(self, requests: Sequence[Hostile]) -> Look:
        """Send them, one on each connection at a time, and return times above a budget and the memory that they took."""
        self._process.forget_peak()
        before, refused, used = self._process.memory(), self._refused, self._process.cpu_seconds()
        done = asyncio.Event()
        probing = asyncio.ensure_future(self._watch_health(done))
        waiting = iter(requests)
        try:
            await asyncio.gather(*(self._send(waiting, pair) for pair in self._connections[: len(requests)]))
        finally:
            done.set()
            used = self._process.cpu_seconds() - used
            waited = await probing
        late = [f"{HELD_UP}: {step}" for step in steps.breaches()]
        if waited is not None:
            late.append(f"let a health check wait: cpu_seconds={waited:.3f} (budget {HEALTH_SECONDS:.3f} s)")
        if len(requests) == 1 and self._refused > refused and used > (budget := REFUSAL_SECONDS * steps.slowness()):
            late.append(f"cost too much for a refusal: cpu_seconds={used:.3f} (budget {budget:.3f} s)")
        self._read_log(requests)
        return late, self._process.peak() - before

    async def _send(self, requests: Iterator[Hostile], pair: tuple[Connection, Connection]) -> None:
        for request in requests:
            if self._stopping:
                return
            try:
                if request.family == custom.DEFINITION:
                    answers = [await self._define(request)]
                else:
                    answers = await pair[request.anonymous].send(request)
            except TimeoutError:
                self.report.codes[request.family, -1] += 1
                self.found(request, f"no answer within {ANSWER_SECONDS:.0f} s")
                continue
            for answer in answers:
                self.report.codes[request.family, answer.code] += 1
                # The denial of a webhook or a policy comes after all the work of a write.
                denied = any(denial in answer.start for denial in DENIALS)
                self._refused += request.family == REFUSALS and answer.code >= 400 and not denied
                if answer.code >= 400 and answer.size > ERROR_BYTES:
                    self.found(request, f"was answered {answer.code} with {answer.size} bytes")
                if answer.code >= 500 and not _is_upstreams(answer, request):
                    self.found(request, f"was answered {answer.code}: {_body(answer)!r}")
                if PANIC in answer.start[:4096]:
                    self.found(request, "made the server panic")

    async def _define(self, request: Hostile) -> Answer:
        """Give the server another definition file, and wait until it has read it: 200 if it serves what the file holds, else 422.

        Raises TimeoutError when the server does not read it."""
        async with self._defining:
            if request.body == self._defined:  # it would not be read again
                await self._place(b"")
            await self._place(request.body)
            reply = await asyncio.to_thread(self._server.request, "GET", "/metrics")
        return Answer(422 if int(float(REFUSED.findall(reply.body)[0])) else 200)

    async def _place(self, definition: bytes) -> None:
        """Replace the file, and wait until the server serves what was changed with it."""
        assert self._definitions is not None
        folder = self._definitions
        self._defined = definition
        self._placed += 1
        contents = {"changing.yaml": definition, "marker.json": json.dumps(custom.marker(self._placed)).encode()}
        path = f"/apis/{custom.FOLLOWED}/{custom.marker_version(self._placed)}"

        def place_and_wait() -> None:
            _replace(folder, contents)
            end = time.monotonic() + ANSWER_SECONDS
            while self._server.request("GET", path).status != 200:
                if time.monotonic() > end:
                    raise TimeoutError
                time.sleep(LOOK_SECONDS)

        await asyncio.to_thread(place_and_wait)

    async def _at_rest(self) -> tuple[int, int]:
        """The bytes of the process when nothing is being served, and those that it says it holds."""
        least = rested = time.monotonic()
        smallest = self._process.memory()
        while (now := time.monotonic()) < rested + REST_SECONDS and now < least + RESTLESS_SECONDS:
            await asyncio.sleep(REST_SECONDS / 10)
            if (memory := self._process.memory()) < smallest - STILL_BYTES:
                smallest, rested = memory, time.monotonic()
        reply = await asyncio.to_thread(self._server.request, "GET", "/metrics")
        return min(smallest, self._process.memory()), int(sum(map(float, HELD.findall(reply.body))))

    async def _judge_growth(self) -> None:
        """The growth of the process beyond the bytes that it reports."""
        report = self.report
        memory, held = await self._at_rest()
        report.grown, report.held = memory - report.warm, held - self._warm_held
        allowed = GROWTH_BYTES
        if report.held > 0:
            allowed += SCATTERED_BYTES + int(HELD_SHARE * report.held)
        if report.grown > allowed:
            self.found(Hostile("all", b""), f"{report.grown >> 20} MiB stayed (allowed: {allowed >> 20} MiB)")

    def found(self, request: Hostile, what: str, *, together: int = 1) -> None:
        """Notes a breach, and says so at once."""
        again = self._again(request) if request.family not in OURS else ""
        breach = Breach(request, what, again, together)
        self.report.breaches.append(breach)
        self._say(f"BREACH {breach}")

    def _read_log(self, requests: Sequence[Hostile]) -> None:
        """Read new lines of the server's log: which steps were longest, and stack traces, which are breaches."""
        size = self._server.log.stat().st_size
        if size == self._logged:
            return
        with self._server.log.open("rb") as log:
            log.seek(self._logged)
            text = log.read().decode("utf-8", "replace")
        self._logged = size
        told = [steps.seconds(line) for line in text.splitlines() if MESSAGE in line]
        self.report.longest_step = max([self.report.longest_step, *told])
        if "Traceback" in text:
            self.found(requests[0], f"left a stack trace: {text[-400:]}", together=len(requests))

    async def _watch_health(self, done: asyncio.Event) -> float | None:
        """Asks again and again until `done`: the most CPU seconds of the server that a wait lasted, if it was too long."""
        worst: float | None = None
        while not done.is_set():
            for path in ("livez", "readyz"):
                probe = Hostile(HEALTH, f"GET /{path} HTTP/1.1\r\nHost: server\r\n\r\n".encode())
                started, used = time.monotonic(), self._process.cpu_seconds()
                [answer] = await self._probe.send(probe)
                waited, used = time.monotonic() - started, self._process.cpu_seconds() - used
                if answer.code != 200:
                    self.found(probe, f"was answered {answer.code}: {answer.start[-200:]!r}")
                self.report.slowest_probe = max(self.report.slowest_probe, min(waited, used))
                if (blocked := min(waited, used)) > HEALTH_SECONDS and blocked > HEALTH_SECONDS * steps.slowness():
                    worst = max(worst or 0.0, blocked)
            await _unless(done, PROBE_SECONDS)
        return worst


def _replace(folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
    """Write files, each in one step. The server never sees a part of one, nor a further one."""
    for name, content in contents.items():
        new = folder.parent / f"{name}.new"
        new.write_bytes(content)
        new.replace(folder / name)


def _body(answer: Answer) -> bytes:
    return answer.start.partition(b"\r\n\r\n")[2][:SHOWN]


def _is_upstreams(answer: Answer, request: Hostile) -> bool:
    if answer.code == 504 and LATE.search(request.head.split(b"\r\n", 1)[0]):
        return True
    return any(answer.code == code and re.search(text, answer.start) for code, text in UPSTREAMS)


def _ratio(step: str) -> float:
    """By how much it is above the budget of this machine, which it names."""
    return steps.seconds(step) / float(step.rpartition("(budget ")[2].removesuffix(" s)"))


async def _unless(done: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        pass
