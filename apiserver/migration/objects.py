"""An object of somebody else's server as the value that this one would have stored, or why it cannot be: nothing of it may be lost.

Nothing is decided anew about such an object: no hook of its kind prepares it, no admission looks at it. What it says is kept, its system
fields included; it has to be read strictly, and a write that changes nothing has to be accepted later.
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
from apiserver.codecs.objects import canonical
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
    """Nothing can be moved; the text is for who asked for it."""


class Unfit(Exception):
    """One object cannot be moved, and why."""


class Item(NamedTuple):
    """An object as it came: in which version, and its JSON."""

    resource: Resource
    raw: bytes


class Settled(NamedTuple):
    """The same as it is stored."""

    key: Key
    uid: str
    object: Object
    value: bytes


@dataclass(frozen=True, slots=True)
class Reader:
    kinds: Kinds
    gates: Gates

    async def settled(self, item: Item) -> Settled:
        """Raises Unfit."""
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
        return Settled(key, metadata["uid"], obj, canonical.encode(resource.shape, obj))

    async def decoded(self, item: Item) -> Object:
        """In the form that is stored. Raises Unfit."""
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
        """As a write that changes nothing is judged."""
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
    """Of an object that cannot be read, what it is called."""
    try:
        found = _read_outline(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {"metadata": {"name": found.name, "namespace": found.namespace}}


def described(resource: Resource, obj: Mapping[str, Any]) -> str:
    """As `kubectl` names it."""
    metadata = obj.get("metadata") or {}
    name = metadata.get("name") or NAMELESS
    where = f" of namespace {metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{resource.plural} {name}{where}"
