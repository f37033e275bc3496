"""Read the logs of the store at the end of a round, as another client of Valkey does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from apiserver.storage.redis_keys import RedisKeys
from apiserver.watchcache import keys
from tests.faults.history import Broken, History
from tests.faults.records import Kind
from tests.faults.seen import Key, Object, bare, key_of
from tests.fixtures.valkey import Server

FENCE, DELETE = b"9", b"2"


class Change(NamedTuple):
    """An entry of the log. `previous`: the version of the object before, 0 if the object was created."""

    version: int
    key: Key
    deletes: bool
    previous: int


@dataclass
class Start:
    """The state of one resource before a round."""

    version: int
    objects: dict[str, Object]


@dataclass
class Truth:
    """One resource: the versions that survived, and their states."""

    start: int
    history: History
    survivors: set[int]
    changes: dict[int, Change]


def begin(server: Server, kind: Kind) -> Start:
    """Read the present state. Nobody may write meanwhile."""
    names = RedisKeys.of(kind.resource)
    last, values, rows = (
        server("HGET", names.meta, "last"),
        server("HGETALL", names.objects),
        server("HGETALL", names.revisions),
    )
    ids = {key: row.split()[0] for key, row in zip(rows[::2], rows[1::2], strict=True)}
    objects = {
        key.decode(): _versioned(value, keys.revision(ids[key]))
        for key, value in zip(values[::2], values[1::2], strict=True)
    }
    return Start(keys.revision(last), objects)


def read(server: Server, kind: Kind, start: Start) -> Truth:
    """Read all changes since the start. Raises Broken for a log that contradicts itself or the objects."""
    names = RedisKeys.of(kind.resource)
    history = History(start.version, start.objects.values())
    present = {name: key_of(obj) for name, obj in start.objects.items()}
    survivors, changes = {start.version}, dict[int, Change]()
    after, before = keys.stream_id(start.version), keys.stream_id(start.version).encode()
    while part := server("XRANGE", names.log, f"({after}", "+", "COUNT", 500):
        for identity, words in part:
            fields, version = dict(zip(words[::2], words[1::2], strict=True)), int(keys.revision(identity))
            if fields[b"p"] != before:
                raise Broken(f"{kind.plural}: {identity!r} follows {fields[b'p']!r}, and {before!r} lies before it")
            before = identity
            survivors.add(version)
            if fields[b"t"] == FENCE:
                continue
            name = fields[b"k"].decode()
            deletes = fields[b"t"] == DELETE
            if deletes:
                old = history.newest(present[name])
                assert old is not None
                obj = {**old, "metadata": {**old["metadata"], "resourceVersion": str(version)}}
            else:
                obj = _versioned(fields[b"v"], version)
                present[name] = key_of(obj)
            known = history.newest(present[name])
            history.add("DELETED" if deletes else "MODIFIED" if known else "ADDED", obj)
            previous = 0 if fields[b"m"] == b"-" else int(keys.revision(fields[b"m"]))
            changes[version] = Change(version, present[name], deletes, previous)
        after = part[-1][0].decode()
    _check_objects(server, kind, history, present)
    return Truth(start.version, history, survivors, changes)


def _check_objects(server: Server, kind: Kind, history: History, present: dict[str, Key]) -> None:
    """The objects of the store are what its log says."""
    held = begin(server, kind).objects
    told = {name: history.newest(key) for name, key in present.items()}
    if {name: bare(obj) for name, obj in held.items()} != {name: obj for name, obj in told.items() if obj is not None}:
        raise Broken(f"{kind.plural}: the objects of the store are not those of its log")


def _versioned(value: bytes, version: int) -> Object:
    obj: Object = msgspec.json.decode(value)
    obj["metadata"]["resourceVersion"] = str(version)
    return obj
