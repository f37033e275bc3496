"""Convert an object of another server to the value that this one would have stored, or explain why not: nothing of it may be lost.

No hook of its kind and no admission runs for such an object. Its contents stay, system fields included. It must pass strict decoding, and a
later write that changes nothing must be accepted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from apiserver.apimachinery import meta
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import surrogates
from apiserver.kinds.served import Kinds
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key
from apiserver.wire import body, negotiation

UPDATE = "update"
NAMELESS = "an object without a name"


class MigrationError(Exception):
    """Nothing can be moved. The text is for the user of the command."""


class Unfit(Exception):
    """One object cannot be moved. The text says why."""


class Item(NamedTuple):
    """An object as it was received: its version, and its JSON."""

    resource: Resource
    raw: bytes


class Stored(NamedTuple):
    """An object as it is stored."""

    key: Key
    uid: str
    object: Object
    value: bytes


@dataclass(frozen=True, slots=True)
class Reader:
    kinds: Kinds
    gates: Gates

    async def stored(self, item: Item) -> Stored:
        """Return an object as it is stored. Raises Unfit."""
        obj = await self.decoded(item)
        metadata, resource = obj["metadata"], item.resource.stored
        named = described(resource, obj)
        missing = [name for name in ("name", "uid", "creationTimestamp") if not metadata.get(name)]
        if resource.namespaced and not metadata.get("namespace"):
            missing.append("namespace")
        if missing:
            raise Unfit(f"{named}: without metadata.{missing[0]} it is no object of a server")
        self._judge(resource, obj, named)
        lifecycle.drop_unstored(obj)
        key = keys.key(metadata["namespace"] if resource.namespaced else "", metadata["name"])
        return Stored(key, metadata["uid"], obj, lifecycle.value_of(resource, obj))

    async def decoded(self, item: Item) -> Object:
        """Return an object in the stored form. Raises Unfit."""
        try:
            return await body.decode_object(
                item.resource,
                negotiation.JSON,
                item.raw,
                kinds=self.kinds,
                now=meta.rfc3339(time.time()),
                validation="Strict",
                warnings=Warnings(),
            )
        except StatusError as error:
            raise Unfit(f"{described(item.resource, _outline(item.raw))}: {error.message}") from None

    def _judge(self, resource: Resource, obj: Object, named: str) -> None:
        """Raise Unfit if a write that changes nothing would be refused."""
        stands = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "1"}}
        context = Context(gates=self.gates, verb=UPDATE)
        if not lifecycle.judge(context, resource, stands, stands, sub=None).acceptable:
            refusal = lifecycle.refusal(context, resource, stands, stands, sub=None)
            raise Unfit(f"{named}: no write to it would be accepted: {refusal.message}")


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Outline(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_read_outline = surrogates.replaced(msgspec.json.Decoder(_Outline).decode)


def _outline(raw: bytes) -> Mapping[str, Any]:
    """Return the name of an object that cannot be decoded."""
    try:
        found = _read_outline(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {"metadata": {"name": found.name, "namespace": found.namespace}}


def described(resource: Resource, obj: Mapping[str, Any]) -> str:
    """Return the name of an object as `kubectl` prints it."""
    metadata = obj.get("metadata") or {}
    name = metadata.get("name") or NAMELESS
    where = f" of namespace {metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{resource.plural} {name}{where}"
