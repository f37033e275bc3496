"""How objects look to a client in each form that it may ask for. All clients see the same of an object at one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from tests.fixtures import protobuf

Object = dict[str, Any]
Key = tuple[str, str]
PROTOBUF = "application/vnd.kubernetes.protobuf"
PARTIAL, PARTIAL_LIST = (f"as=PartialObjectMetadata{what};g=meta.k8s.io;v=v1" for what in ("", "List"))


class Seen(NamedTuple):
    """An object at a version; `look` is a number for what was seen of it."""

    key: Key
    version: int
    look: int


class Told(NamedTuple):
    """An event. A bookmark has no key, and its `version` is all that it says."""

    type: str
    seen: Seen


class Listed(NamedTuple):
    version: int
    following: str
    items: list[Seen]


def key_of(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


def bare(obj: Object) -> Object:
    """Without what elements of a list do not say."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def _digest(*values: Any) -> int:
    return hash(msgspec.json.encode(values, order="sorted"))


def _cells(obj: Object) -> tuple[str, ...]:
    """Columns that kubectl shows, without the age."""
    name, spec = obj["metadata"]["name"], obj["spec"]
    return (name, spec["nodeName"], spec["driver"], spec["pool"]["name"]) if "pool" in spec else (name, "pending")


class _Meta(msgspec.Struct):
    resourceVersion: str  # noqa: N815 - as it is sent
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None
    rows: list[_Row] | None = None


class _Row(msgspec.Struct):
    cells: list[Any]
    object: msgspec.Raw


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_lists, _events = msgspec.json.Decoder(_List), msgspec.json.Decoder(_Event)


class Form:
    """JSON as it is stored."""

    accept = watched = "application/json"
    framed = False

    def __init__(self) -> None:
        self._read: dict[bytes, Seen] = {}
        """Cached digests of texts: many lists contain the same ones."""

    def look(self, obj: Object) -> int:
        """How this form shows a known object."""
        return _digest(bare(obj))

    def listed(self, body: bytes) -> Listed:
        document = _lists.decode(body)
        items = [self._seen(bytes(item)) for item in document.items or ()]
        return Listed(int(document.metadata.resourceVersion), document.metadata.continue_, items)

    def told(self, frame: bytes) -> Told:
        """Raises AssertionError for an error."""
        event = _events.decode(frame)
        assert event.type != "ERROR", frame
        if event.type == "BOOKMARK":
            return _bookmark(frame, version_of(msgspec.json.decode(event.object)))
        return Told(event.type, self._changed(bytes(event.object)))

    def _changed(self, text: bytes) -> Seen:
        return self._seen(text)

    def _seen(self, text: bytes) -> Seen:
        return _remembered(self._read, text, self._made)

    def _made(self, text: bytes) -> Seen:
        obj = msgspec.json.decode(text)
        return Seen(key_of(obj), version_of(obj), self.look(obj))


def _remembered(known: dict[bytes, Seen], text: bytes, make: Callable[[bytes], Seen]) -> Seen:
    found = known.get(text)
    if found is None:
        if len(known) > 20_000:
            known.clear()
        found = known[text] = make(text)
    return found


def _bookmark(frame: bytes, version: int) -> Told:
    return Told("MARKER" if b"initial-events-end" in frame else "BOOKMARK", Seen(("", ""), version, 0))


class Partial(Form):
    """Metadata in JSON."""

    watched, accept = f"application/json;{PARTIAL}", f"application/json;{PARTIAL_LIST}"

    def look(self, obj: Object) -> int:
        return _digest(obj["metadata"])

    def _made(self, text: bytes) -> Seen:
        assert b'"spec"' not in text
        return super()._made(text)


class Table(Form):
    """The form that kubectl asks for."""

    accept = watched = "application/json;as=Table;g=meta.k8s.io;v=v1"

    def look(self, obj: Object) -> int:
        return hash((_digest(obj["metadata"]), _cells(obj)))

    def listed(self, body: bytes) -> Listed:
        document = _lists.decode(body)
        items = [self._row(row) for row in document.rows or ()]
        return Listed(int(document.metadata.resourceVersion), document.metadata.continue_, items)

    def _changed(self, text: bytes) -> Seen:
        rows = _lists.decode(text).rows
        assert rows is not None
        (row,) = rows
        return self._row(row)

    def _row(self, row: _Row) -> Seen:
        seen = self._seen(bytes(row.object))
        return seen._replace(look=hash((seen.look, tuple(row.cells[:-1]))))

    def _made(self, text: bytes) -> Seen:
        obj = msgspec.json.decode(text)
        return Seen(key_of(obj), version_of(obj), _digest(obj["metadata"]))


class Protobuf(Form):
    """Protobuf messages. The tests do not decode them; they compare them with each other."""

    accept = watched = PROTOBUF
    framed = True

    def __init__(self) -> None:
        super().__init__()
        self._deleted: dict[bytes, Seen] = {}
        self._told: dict[tuple[Key, int, bool], int] = {}

    def look(self, obj: Object) -> int:
        metadata = obj["metadata"]
        maps = metadata.get("labels", {}), metadata.get("annotations", {})
        return _digest(metadata["uid"], metadata["resourceVersion"], *maps)

    def listed(self, body: bytes) -> Listed:
        message = protobuf.opened(body)[2]
        metadata = dict(protobuf.fields(protobuf.inside(message, 1)))
        version, following = (metadata.get(number, b"") for number in (2, 3))
        assert isinstance(version, bytes)
        assert isinstance(following, bytes)
        items = [_remembered(self._read, item, self._made) for item in protobuf.messages(message, 2)]
        return Listed(int(version), following.decode(), items)

    def told(self, frame: bytes) -> Told:
        kind = protobuf.inside(frame, 1).decode()
        message = protobuf.opened(protobuf.inside(frame, 2, 1))[2]
        assert kind != "ERROR", message
        if kind == "BOOKMARK":
            return _bookmark(frame, int(protobuf.inside(message, 1, 6)))
        if kind == "DELETED":
            return Told(kind, _remembered(self._deleted, message, self._gone))
        return Told(kind, _remembered(self._read, message, self._made))

    def _made(self, text: bytes) -> Seen:
        return self._message(text, deleted=False)

    def _gone(self, text: bytes) -> Seen:
        return self._message(text, deleted=True)

    def _message(self, message: bytes, *, deleted: bool) -> Seen:
        metadata = protobuf.inside(message, 1)
        texts = {number: _text(value) for number, value in protobuf.fields(metadata) if number in (1, 3, 5, 6)}
        maps = [dict(_pairs(metadata, number)) for number in (11, 12)]
        seen = Seen((texts.get(3, ""), texts[1]), int(texts[6]), _digest(texts[5], texts[6], *maps))
        known = self._told.setdefault((seen.key, seen.version, deleted), hash(message))
        assert known == hash(message), f"{seen}: two messages of one version"
        return seen


class PartialProtobuf(Protobuf):
    """Metadata as a message."""

    watched, accept = f"{PROTOBUF};{PARTIAL}", f"{PROTOBUF};{PARTIAL_LIST}"


def _pairs(metadata: bytes, number: int) -> Iterator[tuple[str, str]]:
    for entry in protobuf.messages(metadata, number):
        pair = dict(protobuf.fields(entry))
        yield _text(pair[1]), _text(pair[2])


def _text(value: bytes | int) -> str:
    assert isinstance(value, bytes)
    return value.decode()


@dataclass(frozen=True)
class Selection:
    """The objects of a list or a watch."""

    namespace: str = ""
    color: str = ""
    name: str = ""
    node: str = ""

    @property
    def query(self) -> dict[str, str]:
        fields = {"metadata.name": self.name, "spec.nodeName": self.node}
        query = {"fieldSelector": ",".join(f"{field}={value}" for field, value in fields.items() if value)}
        query["labelSelector"] = f"color={self.color}" if self.color else ""
        return {name: value for name, value in query.items() if value}

    def selects(self, obj: Object | None) -> bool:
        if obj is None:
            return False
        namespace, name = key_of(obj)
        return (
            self.namespace in ("", namespace)
            and self.name in ("", name)
            and self.color in ("", obj["metadata"].get("labels", {}).get("color"))
            and self.node in ("", obj["spec"].get("nodeName"))
        )
