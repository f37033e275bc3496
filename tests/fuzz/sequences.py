"""Random sequences of writes, each of one object, sent to two servers: a kube-apiserver with its own resource.k8s.io, and Sluice. After
each write the answers are compared whole, and so is what is stored: who manages which field since when included.

All sequences go forward together, and no two writes of one fall into the same second. So a time says in which write it was made, and stands
for that in what is compared; versions and uids stand for the order in which they came.
"""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import itertools
import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from tests.e2e.controlplane.plane import until
from tests.fixtures.server import Reply
from tests.fuzz.objects import NAMESPACES, UPSTREAM_GROUP, WORKERS, Side
from tests.fuzz.writes import Draw, Object, Step, Write

NAMESPACE = NAMESPACES[0]
STEPS = 20
PLURALS = ("resourceclaims",) * 5 + ("resourceslices",) * 3 + ("deviceclasses", "resourceclaimtemplates")
SHRUNK, ROUNDS = 5, 8
"""How many differences get a search for the shortest sequence, and how often that is cut."""
SHOWN_BEFORE, SHOWN_AFTER = 300, 500

_NUMBERS = itertools.count()
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r'(resourceVersion(?:\\*"):\s*\\*"|resourceVersion:)(\d+)')
_DEBUG = re.compile(r"got &.*?(?=\\n|\"|$)")
"""How Go shows values that only it knows, addresses among them."""


@dataclass(frozen=True, slots=True)
class Course:
    """A sequence of writes, which the state of the object that they are about makes whole."""

    plural: str
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Known:
    """Values that a server has returned in a sequence, and times of requests: a name for each value that another server cannot have."""

    uids: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    """The seconds, the last one included, in which each step was answered."""

    def told(self, text: str) -> str:
        text = _TIME.sub(lambda found: self._moment(found[0]), text)
        text = _UID.sub(lambda found: self.uids.setdefault(found[0], f"<uid {len(self.uids)}>"), text)
        return _VERSION.sub(lambda found: found[1] + self._version(found[2]), text)

    def _version(self, version: str) -> str:
        return self.versions.setdefault(version, f"<version {len(self.versions)}>")

    def _moment(self, text: str) -> str:
        second = dt.datetime.fromisoformat(text).timestamp()
        return next((f"<step {i}>" for i, (first, last) in enumerate(self.asked) if first <= second <= last), text)


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of an answer that servers can have in common."""

    code: int
    headers: tuple[str, ...]
    content: str

    @classmethod
    def read(cls, reply: Reply, side: Side, known: Known) -> Answer:
        said = known.told(_text(reply, side)).replace(f"Key: /{UPSTREAM_GROUP}/", "Key: /")
        warnings = (
            known.told(text.replace(side.group, UPSTREAM_GROUP)) for text in reply.headers.get_all("Warning") or ()
        )
        headers = (reply.headers["Content-Type"] or "", *warnings)
        try:
            document = json.loads(said)
        except ValueError:
            return cls(reply.status, headers, said)
        if document.get("kind") == "Status":
            _order(document)
        return cls(reply.status, headers, json.dumps(document, ensure_ascii=False))

    def __str__(self) -> str:
        return f"{self.code} {' '.join(self.headers)} {self.content}"


def _order(status: Object) -> None:
    """Upstream says in no order what several managers, or rules about entries of a map, have against a request."""
    status["message"] = _DEBUG.sub("got …", status.get("message", ""))
    causes = (status.get("details") or {}).get("causes")
    if not causes:
        return
    for cause in causes:
        cause["message"] = _DEBUG.sub("got …", cause.get("message", ""))
    if status["code"] == 409:
        causes.sort(key=lambda cause: str(cause["message"]))
    elif len(causes) > 1:
        causes.sort(key=json.dumps)
        status["message"] = ""


def _text(reply: Reply, side: Side) -> str:
    return reply.body.decode(errors="surrogateescape").replace(side.group, UPSTREAM_GROUP)


@dataclass(frozen=True, slots=True)
class Difference:
    """The last step of a sequence is the one after which the servers differ."""

    sequence: Course
    writes: tuple[Write, ...]
    what: str
    theirs: Answer
    ours: Answer

    def __str__(self) -> str:
        theirs, ours = str(self.theirs), str(self.ours)
        same = next(
            (i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours))
        )
        start = max(0, same - SHOWN_BEFORE)
        steps = zip(self.sequence.steps, self.writes, strict=True)
        said = "".join(f"\n  {i}. {step.version} {write}"[:3000] for i, (step, write) in enumerate(steps))
        return (
            f"{self.sequence.plural}: {self.what}{said}\n  server: {theirs[start : same + SHOWN_AFTER]}\n"
            f"  here:   {ours[start : same + SHOWN_AFTER]}"
        )


class Run:
    """A sequence on its way, with an object of its own."""

    def __init__(self, sequence: Course, sides: Sequence[Side]) -> None:
        self.sequence = sequence
        self.name = f"sequence-{next(_NUMBERS)}"
        self.difference: Difference | None = None
        self._sides = [(side, Known()) for side in sides]
        self._writes: list[Write] = []
        self._live: list[Object | None] = [None for _ in sides]

    def is_on(self, number: int) -> bool:
        return self.difference is None and number < len(self.sequence.steps)

    def go(self, number: int) -> None:
        """One write, and what it left, read in the version of the next one."""
        steps = self.sequence.steps
        answers = [self._write(steps[number], place) for place in range(len(self._sides))]
        self._judge(number, "the answers differ", answers)
        following = steps[min(number + 1, len(steps) - 1)]
        held = [self._read(following, place) for place in range(len(self._sides))]
        self._judge(number, f"what is stored differs, in {following.version}", held)

    def _judge(self, number: int, what: str, answers: Sequence[Answer]) -> None:
        theirs, ours = answers
        if theirs != ours and self.difference is None:
            done = replace(self.sequence, steps=self.sequence.steps[: number + 1])
            self.difference = Difference(done, tuple(self._writes[: number + 1]), what, theirs, ours)

    def _write(self, step: Step, place: int) -> Answer:
        side, known = self._sides[place]
        write = Draw(step, self.sequence.plural, self.name, NAMESPACE, self._live[place]).write()
        if place == 0:
            self._writes.append(write)
        known.told(write.body)
        path = self._path(side, step.version, write.subresource, named=write.named)
        body = write.body.replace(f"{UPSTREAM_GROUP}/v", f"{side.group}/v").encode()
        target = f"{path}?{urlencode(write.query)}"
        began = int(time.time())
        reply = side.server.ask(write.method, target, body or None, headers=write.headers)
        known.asked.append((began, int(time.time())))
        return Answer.read(reply, side, known)

    def _read(self, step: Step, place: int) -> Answer:
        side, known = self._sides[place]
        reply = side.server.ask("GET", self._path(side, step.version))
        self._live[place] = json.loads(_text(reply, side)) if reply.status == 200 else None
        return Answer.read(reply, side, known)

    def _path(self, side: Side, version: str, subresource: str = "", *, named: bool = True) -> str:
        name = self.name if named else ""
        return side.path(self.sequence.plural, NAMESPACE, name, subresource, version=version)

    def clean(self) -> None:
        """Takes the object away."""
        patch = json.dumps({"metadata": {"finalizers": None}}).encode()
        for side, _ in self._sides:
            path = self._path(side, "v1")
            side.server.ask("PATCH", path, patch, headers={"Content-Type": "application/merge-patch+json"})
            side.server.ask("DELETE", path)


def draw(seed: int, count: int, versions: Sequence[str], *, steps: int = STEPS) -> list[Course]:
    source = random.Random(seed)
    return [
        Course(
            source.choice(PLURALS),
            tuple(Step(source.getrandbits(64), source.choice(versions)) for _ in range(steps)),
        )
        for _ in range(count)
    ]


def differences(
    theirs: Side, ours: Side, *, seed: int, count: int, versions: Sequence[str] = ("v1",), steps: int = STEPS
) -> list[Difference]:
    """Differences of so many sequences; for some, the shortest that shows them. The namespaces exist already."""
    sides = (theirs, ours)
    found = [run.difference for run in play(draw(seed, count, versions, steps=steps), sides) if run.difference]
    return [*shortest(found[:SHRUNK], sides), *found[SHRUNK:]]


def play(sequences: Sequence[Course], sides: Sequence[Side]) -> list[Run]:
    """All of them, side by side; one that shows a difference goes no further."""
    runs = [Run(sequence, sides) for sequence in sequences]
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for number in range(max((len(sequence.steps) for sequence in sequences), default=0)):
            _until_the_next_second()
            list(pool.map(Run.go, [run for run in runs if run.is_on(number)], itertools.repeat(number)))
        list(pool.map(Run.clean, runs))
    return runs


def _until_the_next_second() -> None:
    began = int(time.time())
    until(lambda: int(time.time()) > began, "a second passes")


def shortest(found: Sequence[Difference], sides: Sequence[Side]) -> list[Difference]:
    """Sequences without what their differences do not need; those of all are tried together."""
    best = list(found)
    for _ in range(ROUNDS):
        tried = [(place, cut) for place, one in enumerate(best) for cut in _cuts(one.sequence)]
        shorter = False
        for (place, cut), run in zip(tried, play([cut for _, cut in tried], sides), strict=True):
            difference = run.difference
            if difference and difference.sequence == cut and len(cut.steps) < len(best[place].sequence.steps):
                best[place], shorter = difference, True
        if not shorter:
            break
    return best


def _cuts(sequence: Course) -> Iterator[Course]:
    """It without some of the steps before the last one."""
    count = len(sequence.steps) - 1
    for size in sorted({max(1, count // 2), max(1, count // 4), 1}):
        for start in range(0, count, size):
            yield replace(sequence, steps=sequence.steps[:start] + sequence.steps[start + size :])
