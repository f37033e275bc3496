"""The function library, its commands and its typed answers. Knows the protocol of `functions.lua`, and nothing about lineage."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apiserver.storage.errors import Unavailable
from apiserver.storage.pipeline import Rejected, packed_words
from apiserver.storage.redis_keys import RedisKeys
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision

LIBRARY = "sluice1"
SCHEMA = "2"
"""The schema of new stores: revisions below 2^53."""
SCHEMAS = ("1", SCHEMA)
"""The schemas that this version serves. A log keeps the schema that it was created with."""
CODE = Path(__file__).with_suffix(".lua").read_bytes()

BATCH_CHANGES = 64
"""The most changes that one call of `sl1_batch` takes."""

EPOCH_STEPS = 1 << 17
"""2 seconds, in 65536ths (docs/storage.md explains epochs): failovers that lie further apart keep their order."""

_KEY_COUNT = 5


class Lost(Unavailable):
    """Some or all keys of a resource are missing: flushed, deleted, or another database. Nothing was executed."""


class Foreign(Rejected):
    """The log was changed by another server process, or ends below what clients have seen. It must be taken over first."""

    def __init__(self) -> None:
        super().__init__("the log is not the one that this server process has left")


def schema_beside(heads: Iterable[Head]) -> str:
    """Return the schema of a new log in a store that holds these: a store has one schema, so that older servers can follow all of it."""
    return "1" if any(head.schema == "1" for head in heads) else SCHEMA


def code_hash(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------------------- commands


class Mutation(NamedTuple):
    """One put (value) or delete (None), as `sl1_batch` takes it. All fields are bytes, sent as they are."""

    key: bytes
    expected: bytes
    """An ID, or `-`: the key must be absent."""
    token: bytes
    uid: bytes
    """On a delete, `old` asks for the deleted value."""
    value: bytes | None


class Commands:
    """The commands of one resource. Packing by hand takes a microsecond; redis-py takes ten."""

    def __init__(self, resource: str) -> None:
        self.keys = RedisKeys.of(resource)
        self.log = self.keys.log.encode()
        self._put, self._put_need = (self._call("sl1_put", arguments=count) for count in (7, 8))
        self._del, self._del_need = (self._call("sl1_del", arguments=count) for count in (6, 7))
        self._batch = self._call("sl1_batch", arguments=0).partition(b"\r\n")[2]
        self.head = self._call("sl1_head", arguments=0, read=True)
        self.head_in_step = self._with("sl1_head", "", 1, read=True)
        """Asks for the replicas in step too (`in_step`)."""
        self.touch = self._call("sl1_touch", arguments=0)

    def _call(self, name: str, *, arguments: int, read: bool = False) -> bytes:
        words = ("FCALL_RO" if read else "FCALL", name, _KEY_COUNT, *self.keys.all)
        return b"*%d\r\n%b" % (len(words) + arguments, packed_words(words))

    def _with(self, name: str, *arguments: str | bytes | int, read: bool = False) -> bytes:
        return self._call(name, arguments=len(arguments), read=read) + packed_words(arguments)

    def change(self, epoch: bytes, deadline: bytes, change: Mutation, *, need: bytes = b"") -> bytes:
        """Pack one change. `need`: the number of replicas that must be in step; empty demands none."""
        key, expected, token, uid, value = change
        last = packed_words((need,)) if need else b""
        if value is None:
            return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
                self._del_need if need else self._del, len(epoch), epoch, len(deadline), deadline, len(key), key,
                len(expected), expected, len(token), token, len(uid), uid, last,
            )  # fmt: skip
        return (
            b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
                self._put_need if need else self._put, len(epoch), epoch, len(deadline), deadline, len(key), key,
                len(expected), expected, len(token), token, len(uid), uid, len(value), value, last,
            )
        )  # fmt: skip

    def batch(self, epoch: bytes, deadline: bytes, changes: Sequence[Mutation], *, need: bytes = b"") -> bytes:
        """Pack up to BATCH_CHANGES changes into one call, which costs server and client less than as many single calls."""
        words = 3 + _KEY_COUNT + 2 + 6 * len(changes) + bool(need)
        out = [
            b"*%d\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (words, self._batch, len(epoch), epoch, len(deadline), deadline)
        ]
        for key, expected, token, uid, value in changes:
            kind, data = (b"del", b"") if value is None else (b"put", value)
            out.append(
                b"$3\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
                % (kind, len(key), key, len(expected), expected, len(token), token, len(uid), uid, len(data), data)
            )
        if need:
            out.append(packed_words((need,)))
        return b"".join(out)

    def head_of(self, epoch: int) -> bytes:
        """Pack `head` that also asks for the end of this epoch."""
        return self._with("sl1_head", epoch, read=True)

    def range(self, after: bytes, *, count: int, size: int) -> bytes:
        return self._with("sl1_range", after, count, size, read=True)

    def scan(self, cursor: bytes, *, count: int, newest: Revision | None = None) -> bytes:
        """Pack a scan step. `newest` leaves out objects that changed after it."""
        limit = () if newest is None else (keys.stream_id(newest),)
        return self._with("sl1_scan", cursor, count, *limit, read=True)

    def digest(self, cursor: bytes, *, count: int) -> bytes:
        return self._with("sl1_digest", cursor, count, read=True)

    def fence(self, run_id: str, highest_epoch: int, *, confirmed: bool = False) -> bytes:
        """Pack a fence. `highest_epoch` is the highest epoch of this log that the caller has ever met.

        `confirmed`: a majority of the sentinels names this server now, so it may take a log over although it was deposed.
        """
        return self._with("sl1_fence", run_id, highest_epoch, _step(), int(confirmed))

    def depose(self, marker: str, epoch: int) -> bytes:
        """Pack the notice to a former primary that another one has taken over the log of this marker, in this epoch."""
        return self._with("sl1_depose", marker, epoch, read=True)

    def floor(self, wanted: Revision, *, least_ms: int, keep: int) -> bytes:
        return self._with("sl1_floor", keys.stream_id(wanted), least_ms, keep)

    def init(self, run_id: str, marker: str, schema: str) -> bytes:
        return self._with("sl1_init", run_id, schema, marker, _step())


def _step() -> int:
    """Return how far a new epoch lies above every known one, in 65536ths of a second; the library converts it to the log's form. It is
    random: two takeovers that do not know of each other must differ.
    """
    return 1 + secrets.randbelow(EPOCH_STEPS)


# ----------------------------------------------------------------------------------------------------------------- answers


class Head(NamedTuple):
    epoch: int
    last: Revision
    floor: Revision
    own: bool
    """The server process knows this log as it is, and may write to it."""
    objects: int
    size: int
    """Bytes of all stored values."""
    now_ms: int
    """The server's clock."""
    fenced: int | None
    """The n at which the requested epoch ended."""
    marker: str
    schema: str


class Range(NamedTuple):
    floor: Revision
    last: Revision
    entries: list[tuple[bytes, list[bytes]]]


class Scan(NamedTuple):
    cursor: bytes
    last: Revision
    rows: list[bytes]


class Fence(NamedTuple):
    epoch: int
    last: Revision
    started: bool


class Floor(NamedTuple):
    floor: Revision
    raised: bool
    more: bool


def found(reply: list[Any]) -> list[Any]:
    """Return the answer if the resource exists. Raises Lost."""
    if reply[0] == b"LOST":
        raise Lost(f"the store lost its data: {reply[1].decode()}")
    return reply


def head(reply: list[Any]) -> Head:
    _, epoch, last, floor_, own, count, size, now, fenced, marker, schema = found(reply)[:11]
    return Head(
        int(epoch), keys.revision(last), keys.revision(floor_), own == b"1", int(count), int(size), int(now),
        int(fenced) if fenced else None, marker.decode(), schema.decode(),
    )  # fmt: skip


def in_step(reply: list[Any]) -> int:
    """Return the replicas in step from an answer to `head_in_step`. An older library does not tell them: 0."""
    return int(reply[11]) if len(reply) > 11 else 0


def touched(reply: list[Any]) -> Revision:
    """Return the end of the log from an answer to `touch`. Raises Lost and Foreign."""
    word, last = found(reply)[:2]
    if word != b"OK":
        raise Foreign
    return keys.revision(last)


def own_head(reply: list[Any]) -> Head:
    """Parse a head. Raises Foreign when the log is not the server process's own, because nothing in the head is then reliable."""
    answer = head(reply)
    if not answer.own:
        raise Foreign
    return answer


def range_(reply: list[Any]) -> Range:
    _, floor_, last, entries = found(reply)
    return Range(keys.revision(floor_), keys.revision(last), entries)


def scan(reply: list[Any]) -> Scan:
    """Parse an answer of `scan` or `digest`."""
    _, cursor, last, rows = found(reply)
    return Scan(cursor, keys.revision(last), rows)


def fence(reply: list[Any]) -> Fence:
    """Parse a fence. Raises Rejected when another primary has deposed this server."""
    if reply[0] == b"DEPOSED":
        raise Rejected(
            "another primary has taken over from this server; a majority of sentinels, or its restart, can bring it back"
        )
    _, epoch, last, started = found(reply)
    return Fence(int(epoch), keys.revision(last), started == b"1")


def floor(reply: list[Any]) -> Floor:
    _, current, raised, more = found(reply)
    return Floor(keys.revision(current), raised == b"1", more == b"1")
