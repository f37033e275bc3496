"""Objects reduced to their metadata. Copies bytes; decodes nothing but the place where metadata ends.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/response.go` asPartialObjectMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from apiserver.apimachinery import errors
from apiserver.codecs.json import surrogates
from apiserver.kinds import type_meta
from apiserver.listcache.chunk import ListRange
from apiserver.listcache.piece import Pieces
from apiserver.schema import machinery
from apiserver.watchcache.entry import Entry
from apiserver.wire.forms.form import Form, Listing, ListMeta, NoFrame, range_of
from apiserver.wire.forms.syntax import DocumentType, document_type
from apiserver.wire.representation import PARTIAL, PARTIAL_LIST


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


_decode = surrogates.kept(msgspec.json.Decoder(_Metadata).decode)


_FIRST, _NEXT = b'{"metadata":', b',"spec":'
"""How objects begin, and what follows their metadata."""


def metadata_of(body: bytes) -> bytes:
    """Return the JSON of an object's metadata. Read no further than its end, if the text before `spec` is valid JSON."""
    at = body.find(_NEXT) if body.startswith(_FIRST) else -1
    if at > 0:
        try:
            return bytes(_decode(body[:at] + b"}").metadata)
        except msgspec.DecodeError:
            pass
    return bytes(_decode(body).metadata)


def partial(api_version: str, body: bytes) -> bytes:
    """The object as PartialObjectMetadata in a version of meta.k8s.io."""
    return b'%b"metadata":%b}' % (document_type(PARTIAL, api_version).head, metadata_of(body))


def _members(body: bytes) -> bytes:
    """The JSON of a PartialObjectMetadata but for what it says it is."""
    return b'{"metadata":%b}' % metadata_of(body)


_LISTS = {
    "v1": machinery.PARTIAL_OBJECT_METADATA_LIST,
    "v1beta1": machinery.PARTIAL_OBJECT_METADATA_LIST_V1BETA1,
}


class _OfMetadata(Form):
    step = 1 << 20

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        target = self._representation.target
        assert target is not None
        self._api_version = target.api_version
        self._list_shape = _LISTS[target.version]
        (number,) = (field.number for field in self._list_shape.fields if field.name == "items")
        self._type = document_type(PARTIAL, self._api_version, machinery.PARTIAL_OBJECT_METADATA, number)

    def element(self, entry: Entry) -> bytes:
        return self.syntax.element(self._type, _members(self.served(self.source(entry))))

    def elements(self, entries: Sequence[Entry]) -> list[bytes]:
        return self.syntax.elements(self._type, [_members(self.served(self.source(entry))) for entry in entries])


class Partial(_OfMetadata):
    """One object's metadata."""

    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        return self._type, _members(self.served(source))

    def cached_document(self, entry: Entry) -> bytes | None:
        return self._document_of(entry)

    def listing(
        self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange | None = None, *, compressed: bool = False
    ) -> Listing:
        what = f"you requested {PARTIAL}, but the requested object is a list"
        raise errors.not_convertible(f"{what} (*{type_meta.hub_type(self.resource)}List)")


class PartialList(_OfMetadata):
    """The metadata of a list's objects."""

    def shown(self, source: bytes, *, first: bool = True) -> tuple[DocumentType, bytes]:
        what = f"you requested {PARTIAL_LIST}, but the requested object is not a list"
        raise errors.not_convertible(f"{what} (*{type_meta.hub_type(self.resource)})")

    def _event(self, event_type: str, entry: Entry, *, first: bool) -> bytes:
        raise NoFrame

    def _frame(self, event_type: str, source: bytes, *, first: bool) -> bytes:
        raise NoFrame

    def initial(self, entries: Sequence[Entry], range_: ListRange, *, first: bool) -> Pieces:
        if entries:
            raise NoFrame
        return iter(())

    def listing(
        self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange | None = None, *, compressed: bool = False
    ) -> Listing:
        members = b'{"metadata":%b}' % meta.json()
        type_ = document_type(PARTIAL_LIST, self._api_version, self._list_shape)
        return self._collection(
            type_,
            members,
            "items",
            entries,
            range_=range_ or range_of(meta),
            compressed=compressed,
            null=True,  # upstream appends to none
        )
