"""Give audit the object that was sent and the one that is answered, as JSON in the requested version. Makes only what the audit level asks
for.
Upstream: kubernetes/apiserver `pkg/audit/request.go` LogRequestObject, LogRequestPatch, LogResponseObject, copyWithoutManagedFields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, overload

import msgspec

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Deferred, Recording
from apiserver.codecs.json import rawjson, surrogates
from apiserver.codecs.objects import canonical, conversion
from apiserver.listcache import piece
from apiserver.listcache.chunk import ListRange
from apiserver.runtime import offload
from apiserver.schema.resource import Object, Resource
from apiserver.verbs.context import Call
from apiserver.watchcache.entry import SUPERSEDED, Entry, split
from apiserver.wire import as_json, patches
from apiserver.wire.forms.form import Form, ListMeta

NAMED = ("name", "namespace", "uid", "resourceVersion")
"""Metadata that identifies an object."""
DELETE_OPTIONS = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal"}
"""Upstream decodes delete options into its internal version, and records that."""


async def sent(call: Call, obj: Object, *, size: int) -> None:
    """Record the decoded object of a body of about `size` bytes."""
    recording = call.exchange.recording
    if recording is None:
        return
    metadata = obj["metadata"]
    recording.reference = {name: metadata[name] for name in NAMED if metadata.get(name)}
    if recording.wants_sent:
        if recording.bare:
            obj = {**obj, "metadata": {name: x for name, x in metadata.items() if name != MANAGED_FIELDS}}
        recording.sent = (await offload.run_sized(offload.RECORD, size, _text, call.resource, obj),)


def _text(resource: Resource, obj: Object) -> bytes:
    head = as_json.dumps({"kind": resource.kind, "apiVersion": resource.api_version})
    shown = obj if resource.hub is resource else conversion.from_hub(resource, conversion.copied(obj))
    return head[:-1] + b"," + canonical.encode_shown(resource.shape, shown)[1:]


async def patch(call: Call, raw: bytes, *, applies: bool) -> None:
    """Record a patch as it was sent; YAML as JSON (upstream cannot write the event then, and loses it). A patch that cannot be read is left
    out."""
    recording = call.exchange.recording
    if recording is not None and recording.wants_sent:
        text = await offload.run_sized(offload.RECORD, len(raw), _compact, raw, applies)
        recording.sent = (text,) if text else ()


def _compact(raw: bytes, applies: bool) -> bytes:  # noqa: FBT001 - passed through a pool
    try:
        compact = surrogates.formatted(raw.decode("utf-8", "replace").encode())
    except (msgspec.DecodeError, RecursionError):
        return _applied(raw) if applies else b""
    return rawjson.escaped(compact)


def _applied(raw: bytes) -> bytes:
    try:
        return as_json.dumps(patches.read_apply_patch(raw, "Ignore").value)
    except (StatusError, RecursionError, ValueError):
        return b""


def delete_options(recording: Recording | None, members: Mapping[str, Any]) -> None:
    """Record the delete options of a body."""
    if recording is not None and recording.wants_sent:
        stated = {name: value for name, value in members.items() if name not in DELETE_OPTIONS}
        recording.sent = (canonical.encode_value({**DELETE_OPTIONS, **stated}),)


# ---------------------------------------------------------------------------------------------------------------- without managedFields

MANAGED_FIELDS = "managedFields"
_MANAGED_FIELDS = b'"managedFields":'
_members = surrogates.kept(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)


def bare(value: bytes) -> bytes:
    """Return a stored value without managedFields."""
    if _MANAGED_FIELDS not in value:
        return value
    body, behind = split(value)
    members = _members(body)
    metadata = _members(members["metadata"])
    metadata.pop(MANAGED_FIELDS, None)
    members["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(members) + behind


SAMPLE = 32
"""Objects of a list whose sizes estimate those of the others."""


class Listed(Deferred):
    """A list as an answer shows it. It is encoded only when it is read, and its encodings are not cached."""

    def __init__(self, form: Form, entries: Sequence[Entry], meta: ListMeta, *, bare: bool) -> None:
        self._form, self._meta = form, meta
        self._entries = _Apart(entries, bare=bare)
        step = max(1, len(entries) // SAMPLE)
        some = [entries[at].size for at in range(0, len(entries), step)]
        self.size = sum(some) * step

    def __iter__(self) -> Iterator[bytes]:
        listing = self._form.listing(
            self._entries, self._meta, ListRange(self._meta.revision, sparse=True), compressed=True
        )
        last = b""
        for one in piece.finished(listing.pieces):
            for text in piece.texts(one):
                if last:
                    yield last
                last = text
        yield last.removesuffix(b"\n")


class _Apart(Sequence[Entry]):
    """The same objects outside their groups, which belong to the event loop; without managedFields if `bare`."""

    def __init__(self, entries: Sequence[Entry], *, bare: bool) -> None:
        # A copy, because a sequence that is read on the event loop remembers its last position.
        self._entries, self._bare = copy(entries), bare

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...

    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            return list(map(self._apart, self._entries[at]))
        return self._apart(self._entries[at])

    def __iter__(self) -> Iterator[Entry]:
        return map(self._apart, self._entries)

    def _apart(self, entry: Entry) -> Entry:
        body, behind = split(bare(entry.value)) if self._bare else (entry.body, entry.verbatim)
        return Entry(entry.key, entry.revision, body, entry.labels, entry.fields, group=SUPERSEDED, verbatim=behind)
