"""Clients of one server: requests on a kept connection, watches read event by event, and the objects that they send."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from tests.fixtures.server import Reply
from tests.promises.api.target import Target

NAMESPACES = "/api/v1/namespaces"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MARKER = "k8s.io/initial-events-end"
SECONDS = 120.0
"""How long a test waits for something on a loaded machine before it gives up."""

Object = dict[str, Any]
Event = tuple[str, Object]


def claim(name: str = "", **metadata: Any) -> Object:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    return {"metadata": _metadata(name, metadata), "spec": {"devices": {"requests": requests}}}


def device_class(name: str = "", **metadata: Any) -> Object:
    return {"metadata": _metadata(name, metadata), "spec": {}}


def resource_slice(name: str = "", node: str = "node", **metadata: Any) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"metadata": _metadata(name, metadata), "spec": spec}


def _metadata(name: str, more: Mapping[str, Any]) -> Object:
    return {"name": name, **more} if name else dict(more)


RESERVED = [{"resource": "pods", "name": "p", "uid": "u-1"}]
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "node", "device": "gpu-0"}
ALLOCATED: Object = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": RESERVED}
"""The status of a claim that a scheduler has dealt with."""


def version(obj: Object) -> int:
    """The version of an object or a list."""
    return int(obj["metadata"]["resourceVersion"])


def content(obj: Object, *omitted: str) -> Object:
    """An object without what the system tells about its writes, and without the named metadata."""
    left_out = ("resourceVersion", "managedFields", *omitted)
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name not in left_out}}


def at(listed: Object) -> dict[str, Any]:
    """The query that lists this very state again, whatever has been written since."""
    return {"resourceVersion": listed["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}


def names(listed: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def token(revision: Any, start: Any, **more: Any) -> str:
    """A continue token as a client might forge one."""
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start, **more})
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def opened(text: str) -> Object:
    """The content of a continue token."""
    content: Object = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return content


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """`continue_` stands for the parameter whose name is a word of Python."""
    pairs = {name.rstrip("_"): value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(pairs, doseq=True)}" if pairs else path


class Client:
    """One connection of a target's administrator, used again and again; and the names of what the target serves."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.group, self.v1 = target.group, target.v1
        self.classes, self.slices = f"{self.v1}/deviceclasses", f"{self.v1}/resourceslices"
        self.all_claims = f"{self.v1}/resourceclaims"
        self._namespaces: list[str] = []
        self._connection = target.connect()

    def claims(self, namespace: str) -> str:
        return f"{self.v1}/namespaces/{namespace}/resourceclaims"

    def templates(self, namespace: str) -> str:
        return f"{self.v1}/namespaces/{namespace}/resourceclaimtemplates"

    def namespace(self, name: str) -> str:
        """A namespace of this name, which is there from now on."""
        if self.target.namespaces:
            self.create(NAMESPACES, {"metadata": {"name": name}})
            self._namespaces.append(name)
        return name

    def leave(self) -> None:
        """Begins the deletion of the namespaces that it created."""
        while self._namespaces:
            self.ask("DELETE", f"{NAMESPACES}/{self._namespaces.pop()}")

    def close(self) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Reply:
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        if isinstance(body, str):
            body = body.encode()
        try:
            self._connection.request(method, with_query(path, query), body=body, headers=sent)
            answer = self._connection.getresponse()
            try:
                return Reply(answer.status, answer.headers, answer.read())
            except http.client.IncompleteRead:
                if method not in ("PUT", "PATCH") or not self.target.behind:
                    raise
            # A proxy in Go breaks a long answer off when its own writer comes to look for more of the request only now, once the server
            # has closed the request's body (golang/go `src/net/http/transport.go` writeLoop). The written part can be read.
            self._connection.close()
            sent.pop("Content-Type", None)
            return self.ask("GET", path, headers=sent)
        except BaseException:
            # The next test begins anew.
            self._connection.close()
            raise

    def get(self, path: str, **query: Any) -> Object:
        return self._granted(self.ask("GET", path, **query), 200)

    def create(self, path: str, obj: Object, **query: Any) -> Object:
        return self._granted(self.ask("POST", path, obj, **query), 201)

    def put(self, path: str, obj: Object, **query: Any) -> Object:
        return self._granted(self.ask("PUT", path, obj, **query), 200)

    def patch(self, path: str, patch: Any, *, kind: str = MERGE, **query: Any) -> Object:
        return self._granted(self.ask("PATCH", path, patch, headers={"Content-Type": kind}, **query), 200)

    def delete(self, path: str, options: Object | None = None, **query: Any) -> Object:
        return self._granted(self.ask("DELETE", path, options, **query), 200)

    def refusal(self, method: str, path: str, body: Any = None, *, kind: str = "", **query: Any) -> Refusal:
        """Send a request that must fail with a Status, and return that."""
        reply = self.ask(method, path, body, headers={"Content-Type": kind} if kind else None, **query)
        status = reply.json
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure"), reply.text[
            :2000
        ]
        assert status["code"] == reply.status
        return Refusal(reply)

    def watch(self, path: str, *, accept: str = "", **query: Any) -> Watch:
        query.setdefault("watch", "1")
        query.setdefault("timeoutSeconds", "120")
        return Watch(self.target.connect(), with_query(path, query), accept=accept)

    def _granted(self, reply: Reply, code: int) -> Object:
        assert reply.status == code, reply.text[:2000]
        answer: Object = reply.json
        return answer


class Refusal:
    """An error as a client reads it. Compares equal to (code, reason, message)."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.code = reply.status
        self.reason: str = reply.json.get("reason", "")
        self.message: str = reply.json["message"]
        self.details: Object = reply.json.get("details", {})
        self.metadata: Object = reply.json["metadata"]

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [(cause["field"], cause["message"]) for cause in self.details.get("causes", [])]

    def __eq__(self, other: object) -> bool:
        return (self.code, self.reason, self.message) == other

    def __repr__(self) -> str:
        return repr((self.code, self.reason, self.message))

    __hash__ = None  # type: ignore[assignment]  # compared, never kept


class Watch:
    """An open stream of events, on a connection of its own."""

    def __init__(self, connection: http.client.HTTPSConnection, where: str, *, accept: str) -> None:
        self._connection = connection
        connection.request("GET", where, headers={"Accept": accept} if accept else {})
        self._answer = connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._answer.close()
        self._connection.close()

    def next(self) -> Event:
        """The next event; waits for it."""
        line = self._answer.readline()
        assert line.endswith(b"\n"), f"the stream ended: {line!r}"
        return _event(line)

    def take(self, count: int) -> list[Event]:
        return [self.next() for _ in range(count)]

    def initial(self) -> tuple[list[Event], int]:
        """The events before the marker, and the marker's version."""
        events: list[Event] = []
        while True:
            kind, obj = self.next()
            if kind == "BOOKMARK":
                assert obj["metadata"]["annotations"] == {MARKER: "true"}
                return events, version(obj)
            events.append((kind, obj))

    def rest(self) -> list[Event]:
        """Everything up to the clean end of the stream."""
        return list(self._rest())

    def up_to(self, last: int) -> list[Event]:
        """The events up to one of this version; fewer when the stream ends cleanly before it."""
        events: list[Event] = []
        for event in self._rest():
            events.append(event)
            if version(event[1]) >= last:
                break
        return events

    def _rest(self) -> Iterator[Event]:
        while line := self._answer.readline():
            yield _event(line)

    def reuse(self, path: str) -> int:
        """The status of another request on the connection of a stream that has ended."""
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def abandon(self) -> None:
        """Goes away without a word."""
        self.__exit__(None, None, None)


def _event(line: bytes) -> Event:
    event = json.loads(line)
    return event["type"], event["object"]


def told(events: list[Event]) -> list[tuple[str, str]]:
    """(type, name) of each event."""
    return [(kind, obj["metadata"].get("name", "")) for kind, obj in events]
