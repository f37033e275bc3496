"""Random objects of the four kinds, written in their versions to two servers: a kube-apiserver with its own resource.k8s.io, and Sluice.
Where they differ, one of the two is wrong.

All writes are dry but those of the objects that updates begin with. An answer is compared whole: code, headers that matter, and every
member of the object or Status but what no two servers have in common (uids, versions, the time).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import http.client
import itertools
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import yaml

from apiserver import resources
from apiserver.apimachinery.releases import Release
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import conversion, decoding
from apiserver.codecs.protobuf import envelope as as_protobuf
from apiserver.codecs.protobuf import messages
from apiserver.kinds.served import Kinds
from apiserver.schema import machinery
from apiserver.schema.resource import Object
from apiserver.schema.types import Struct
from apiserver.wire import as_json
from kubetext.quoting import go_quote
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection
from tests.fixtures.server import Reply
from tests.fuzz.mutations import Mutations, is_plain, repeats, text
from tests.fuzz.samples import Samples

UPSTREAM_GROUP = "resource.k8s.io"
SERVED = Kinds(resources.RESOURCES, group=UPSTREAM_GROUP, release=Release(*map(int, binaries.minor().split("."))))
KINDS = {kind.plural: kind for kind in SERVED if kind.version == "v1"}
VERSIONS = {(kind.plural, kind.version): kind for kind in SERVED}
NAMESPACES = ("fuzz", "fuzz-admin")
"""The second one is for administrators."""
STORED = 48
"""Objects that updates begin with."""
WORKERS = 4
ASKED_AGAIN = 64
"""How often a server is asked again that says the same in another order. Small maps of Go show three of four times the same one."""

PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = {"Content-Type": "application/json"}
PREFIX = 58
"""Bytes that are kept of a generateName."""

_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]{5}"


@dataclass(slots=True)
class Side:
    """One of the two servers, the group in which it serves the kinds, and what it stores."""

    group: str
    connect: Callable[[], Connection]
    stored: dict[str, Object] = field(default_factory=dict)
    _local: threading.local = field(default_factory=threading.local)
    _opened: list[Connection] = field(default_factory=list)

    @property
    def server(self) -> Connection:
        """The connection of this thread."""
        if not hasattr(self._local, "server"):
            self._local.server = self.connect()
            self._opened.append(self._local.server)
        server: Connection = self._local.server
        return server

    def close(self) -> None:
        """The connections of all threads."""
        for connection in self._opened:
            connection.close()

    def path(self, plural: str, namespace: str, name: str = "", subresource: str = "", *, version: str = "v1") -> str:
        within = f"/namespaces/{namespace}" if KINDS[plural].namespaced else ""
        return "/".join(filter(None, (f"/apis/{self.group}/{version}{within}", plural, name, subresource)))


@dataclass(frozen=True, slots=True)
class Question:
    """A request. `stored` names the object that it is about; in its body the marks `UID` and `VERSION` stand for what a server gave it."""

    method: str
    plural: str
    namespace: str
    obj: Object
    stored: str = ""
    subresource: str = ""
    strictness: str = "Strict"
    media: str = "application/json"
    changed: Sequence[str] = ()
    version: str = "v1"
    loose: bool = False

    def ask(self, side: Side) -> Answer:
        path = side.path(self.plural, self.namespace, self.stored, self.subresource, version=self.version)
        known = side.stored.get(self.stored, {})
        try:
            reply = side.server.ask(
                self.method,
                f"{path}?dryRun=All&fieldValidation={self.strictness}",
                self._message(known, side.group) if self.media == PROTOBUF else self.body(known).encode(),
                headers={"Content-Type": self.media, "Accept": PROTOBUF if self.media == PROTOBUF else "*/*"},
            )
        except (http.client.HTTPException, ConnectionError) as error:
            return Answer(0, (), f"no answer: {error!r}")
        return Answer.read(reply, side.group, known.get("uid", ""), self._prefix())

    def body(self, known: Object) -> str:
        if self.media == "application/yaml":
            sent = yaml.dump(self.obj, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)
        else:
            sent = text(self.obj, loose=self.loose)
        sent = sent.replace(UID, known.get("uid", "")).replace(VERSION, known.get("resourceVersion", ""))
        return _ESCAPABLE.sub(_escaped, sent) if self.loose and self.media != "application/yaml" else sent

    def _message(self, known: Object, group: str) -> bytes:
        kind = VERSIONS[self.plural, self.version]
        decoded = decoding.decode(kind.shape, as_json.loads(self.body(known).encode(), kind.shape))
        message = messages.encode(kind.shape, decoded.object)
        return as_protobuf.envelope(f"{group}/{self.version}", kind.kind, message)

    def _prefix(self) -> str:
        metadata = self.obj.get("metadata")
        prefix = metadata.get("generateName") if isinstance(metadata, dict) and not metadata.get("name") else None
        return prefix if isinstance(prefix, str) and not self.stored else ""

    def __str__(self) -> str:
        where = "/".join(filter(None, (self.version, self.plural, self.stored, self.subresource)))
        return (
            f"{self.method} {where} ({self.strictness}, {self.media}) changed: {', '.join(self.changed) or 'nothing'}"
        )


UID, VERSION = "\ue010", "\ue011"
_ESCAPABLE = re.compile(r'[^\x00-\x7f]|/|(?<=")\+')


def _escaped(found: re.Match[str]) -> str:
    """As other encoders of JSON write what they are careful about. Go reads it everywhere but in amounts."""
    character = found[0]
    if character.isascii():
        return "\\/" if character == "/" else f"\\u{ord(character):04x}"
    return json.dumps(character)[1:-1]


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of an answer that servers can have in common."""

    code: int
    headers: tuple[str, ...]
    content: str

    @classmethod
    def read(cls, reply: Reply, group: str, uid: str, prefix: str) -> Answer:
        shown = _shown(reply.body) if reply.body.startswith(as_protobuf.MAGIC) else reply.body
        said = shown.decode(errors="surrogateescape").replace(group, UPSTREAM_GROUP)
        if uid:
            said = said.replace(uid, "<uid>")
        if prefix:
            for spelling in (prefix, go_quote(prefix)[1:-1]):
                written = re.escape(json.dumps(spelling, ensure_ascii=False)[1:-1])
                said = re.sub(written + _GENERATED, "<generated>", said)
        # kube-apiserver's own kinds are stored without their group, those of an aggregated server with it.
        said = said.replace(f"Key: /{UPSTREAM_GROUP}/", "Key: /")
        years = f"(?:{time.gmtime().tm_year}|{time.gmtime().tm_year - 1})"
        said = re.sub(years + r"-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<now>", said)
        warnings = (text.replace(group, UPSTREAM_GROUP) for text in reply.headers.get_all("Warning") or ())
        headers = [reply.headers["Content-Type"] or "", *warnings]
        try:
            document = json.loads(
                said, parse_float=lambda digits: f"<{digits}>", parse_int=lambda digits: f"<{digits}>"
            )
        except ValueError:
            return cls(reply.status, tuple(headers), said)
        for name in ("uid", "resourceVersion", "creationTimestamp"):
            document.get("metadata", {}).pop(name, None)
        return cls(reply.status, tuple(headers), json.dumps(document, ensure_ascii=False))

    @property
    def causes(self) -> list[str]:
        """Causes of a refusal, in no order."""
        details = json.loads(self.content).get("details") or {} if self.code == 422 else {}
        return sorted(json.dumps(cause) for cause in details.get("causes", ()))

    def __str__(self) -> str:
        return f"{self.code} {' '.join(self.headers)} {self.content}"


def _shown(message: bytes) -> bytes:
    """A message as JSON, from which the same bytes can be made again, raw JSON as a text: so messages that look alike are alike."""
    envelope = as_protobuf.opened(message)
    shapes = {(kind.kind, kind.version): kind.shape for kind in VERSIONS.values()}
    shape = shapes.get((envelope.kind, envelope.api_version.rpartition("/")[2]), machinery.STATUS)
    obj = messages.decode(shape, envelope.raw, parse=bytes)
    again = as_protobuf.envelope(envelope.api_version, envelope.kind, messages.encode(shape, obj))
    assert again == message, (message, again)
    obj = messages.decode(shape, envelope.raw, parse=bytes.decode)
    return rawjson.dumps({"kind": envelope.kind, "apiVersion": envelope.api_version, **obj})


@dataclass(frozen=True, slots=True)
class Difference:
    question: Question
    theirs: Answer
    ours: Answer

    def __str__(self) -> str:
        theirs, ours = str(self.theirs), str(self.ours)
        same = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), 0)
        start = max(0, same - 200)
        sent = self.question.body({"uid": "<uid>", "resourceVersion": "<version>"})
        return (
            f"{self.question}\n  sent:   {sent[:3000]}\n  server: {theirs[start : same + 300]}\n"
            f"  here:   {ours[start : same + 300]}"
        )


@contextlib.contextmanager
def sides(bed: Bed) -> Iterator[tuple[Side, Side]]:
    """The kube-apiserver of a bed without controllers, and Sluice at its own port. Makes the namespaces."""
    straight = bed.straight(bed.admin)
    theirs = Side(UPSTREAM_GROUP, lambda: Connection(bed.admin))
    ours = Side(bed.group, lambda: Connection(straight))
    with contextlib.closing(theirs), contextlib.closing(ours):
        _make_namespaces(theirs)
        yield theirs, ours


def _make_namespaces(theirs: Side) -> None:
    for name, labels in zip(NAMESPACES, ({}, {"resource.kubernetes.io/admin-access": "true"}), strict=True):
        reply = theirs.server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        assert reply.status == 201, reply.text


class Questions:
    """A sequence of requests, drawn from a seed, in these versions."""

    def __init__(self, seed: int, versions: Sequence[str]) -> None:
        self._random, self._versions = random.Random(seed), versions
        self._drawn = itertools.count()
        self._samples, self._mutations = Samples(self._random), Mutations(self._random)
        self.stored: dict[str, tuple[str, str, Object]] = {}
        """Objects that are stored first, by name: plural, namespace, object."""
        for number in range(STORED):
            plural = (*KINDS, "resourceclaims")[number % 5]
            obj: Object = getattr(self._samples, plural)()
            if plural == "resourceclaims" and number % 2:
                obj["status"] = self._samples.status(obj)
            name = f"stored-{number}"
            metadata = {key: value for key, value in obj["metadata"].items() if key not in ("name", "generateName")}
            administers = number % 2 or '"adminAccess": true' in json.dumps(obj)
            namespace = NAMESPACES[1 if administers else 0]
            self.stored[name] = (plural, namespace, {**obj, "metadata": {"name": name, **metadata}})

    def __iter__(self) -> Iterator[Question]:
        while True:
            yield self.draw()

    def draw(self) -> Question:
        choose = self._random.random()
        if choose < 0.6:
            plural = self._random.choice(list(KINDS))
            obj = getattr(self._samples, plural)()
            return self._question("POST", plural, self._random.choice(NAMESPACES), obj)
        name = self._random.choice(list(self.stored))
        plural, namespace, stored = self.stored[name]
        obj = {**copy.deepcopy(stored), "metadata": {**copy.deepcopy(stored["metadata"])}}
        if self._random.random() < 0.5:
            obj["metadata"] |= {"uid": UID, "resourceVersion": VERSION}
        if plural == "resourceclaims" and self._random.random() < 0.7:
            if self._random.random() < 0.5:
                obj["status"] = self._samples.status(obj)
            return self._question("PUT", plural, namespace, obj, stored=name, subresource="status")
        if self._random.random() < 0.3:
            obj["spec"] = getattr(self._samples, plural)()["spec"]
        return self._question("PUT", plural, namespace, obj, stored=name)

    def _question(self, method: str, plural: str, namespace: str, obj: Object, **more: str) -> Question:
        kind = VERSIONS[plural, self._random.choice([v for v in self._versions if (plural, v) in VERSIONS])]
        obj = conversion.served(kind, obj)
        count = self._random.choices((0, 1, 2, 3), (2, 10, 5, 1))[0]
        changed: list[str] = []
        # The first of two members of one name is read and forgotten; only equal ones are drawn.
        while len(changed) < count and not repeats(obj):
            changed.append(self._mutations.mutate(kind.shape, obj))
        metadata = obj.get("metadata")
        if isinstance(metadata, dict) and VERSION in str(metadata.get("resourceVersion")):
            metadata["resourceVersion"] = VERSION
        if isinstance(metadata, dict) and isinstance(metadata.get("generateName"), str):
            # Upstream may cut a character in two.
            metadata["generateName"] = metadata["generateName"].encode()[:PREFIX].decode(errors="ignore")
        if self._random.random() < 0.01:
            obj["kind"] = KINDS[plural].kind
        media = JSON["Content-Type"]
        if method == "POST" and self._random.random() < 0.05 and is_plain(obj):
            media = "application/yaml"
        elif self._random.random() < 0.15 and _fits(kind.shape, obj):
            media = PROTOBUF
        strictness = self._random.choices(("Strict", "Warn", "Ignore"), (6, 3, 1))[0]
        return Question(
            method,
            plural,
            namespace,
            obj,
            strictness=strictness,
            media=media,
            changed=changed,
            version=kind.version,
            loose=next(self._drawn) % 3 == 0,
            **more,
        )


def _fits(shape: Struct, obj: Object) -> bool:
    """Whether a message can be made of it, in which every time is one."""
    try:
        return is_plain(obj) and "0001-01-01" not in text(obj) and not decoding.decode(shape, obj).unknown
    except decoding.DecodeError:
        return False


def differences(
    theirs: Side, ours: Side, *, seed: int, count: int, versions: Sequence[str] = ("v1",)
) -> Iterator[Difference]:
    """Stores what updates begin with, on both, and asks both, who serve these versions. The namespaces are there."""
    questions = Questions(seed, versions)
    for side in (theirs, ours):
        _prepare(side, questions)
    # Servers keep times in whole seconds. An update in the second of its creation may leave a time as it is, on one side only.
    time.sleep(1.0 - time.time() % 1.0)
    try:
        yield from _differences(theirs, ours, questions, count)
    finally:
        _clean((theirs, ours), questions)


def _differences(theirs: Side, ours: Side, questions: Questions, count: int) -> Iterator[Difference]:
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        asked = itertools.islice(questions, count)
        for found in pool.map(lambda question: _judged(question, theirs, ours), asked):
            if found is not None:
                yield found


def _prepare(side: Side, questions: Questions) -> None:
    for name, (plural, namespace, obj) in questions.stored.items():
        path, sent = side.path(plural, namespace), text(obj, loose=name[-1] in "0369").encode()
        reply = side.server.ask("POST", path, sent, headers=JSON)
        assert reply.status == 201, reply.text
        if "status" in obj:
            reply = side.server.ask("PUT", f"{path}/{name}/status", sent, headers=JSON)
            assert reply.status == 200, reply.text
        if obj["metadata"].get("finalizers") and len(name) % 2:
            side.server.ask("DELETE", f"{path}/{name}")
            reply = side.server.ask("GET", f"{path}/{name}")
        side.stored[name] = reply.json["metadata"]


def _clean(sides: Sequence[Side], questions: Questions) -> None:
    """Takes away what was stored."""
    patch = json.dumps({"metadata": {"finalizers": None}})
    for side in sides:
        for name, (plural, namespace, _) in questions.stored.items():
            path = side.path(plural, namespace, name)
            side.server.ask("PATCH", path, patch, headers={"Content-Type": "application/merge-patch+json"})
            side.server.ask("DELETE", path)


def _judged(question: Question, theirs: Side, ours: Side) -> Difference | None:
    here, there = question.ask(ours), question.ask(theirs)
    same = (
        there == here
        or _panicked(there, here)
        or _is_cut(there, here)
        or _is_of_another_second(question, there, here)
        or _is_disorder(question, theirs, there, here)
    )
    return None if same else Difference(question, there, here)


def _is_disorder(question: Question, theirs: Side, there: Answer, here: Answer) -> bool:
    """Whether the server says the same in another order, and again in another one when it is asked again: Go's maps have none."""
    if not there.causes or there.causes != here.causes:
        return False
    return any(question.ask(theirs) != there for _ in range(ASKED_AGAIN))


def _is_of_another_second(question: Question, theirs: Answer, ours: Answer) -> bool:
    """A taint has the time of the request by default: to write one again changes the object, but not within a second."""
    ungenerated = [re.sub(r'"generation": "<[12]>", ', "", answer.content) for answer in (theirs, ours)]
    return "'taints'" in str(question.obj) and theirs.code == ours.code and ungenerated[0] == ungenerated[1]


def _panicked(theirs: Answer, ours: Answer) -> bool:
    """Upstream divides by a step of zero, and takes negative ones; 1.37 words it as we do."""
    return theirs.code in (0, 201, 200) and ours.code == 422 and '.step"' in ours.content


def _is_cut(theirs: Answer, ours: Answer) -> bool:
    """Our errors are bounded, and say where they are cut."""
    told, cut, _ = ours.content.partition("… ")
    return bool(cut) and (theirs.code, theirs.headers) == (ours.code, ours.headers) and theirs.content.startswith(told)
