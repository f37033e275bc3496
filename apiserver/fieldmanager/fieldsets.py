"""Cache the field sets of FieldsV1 texts, within a limit of memory.

Objects of one writer have equal texts, and every request repeats the text that the last one stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from apiserver.apimachinery.releases import NEWEST, V1_37, Release, at, since
from apiserver.apimachinery.remembered import Remembered
from apiserver.codecs.json import rawjson
from structuredmerge import fieldsv1
from structuredmerge.sets import Set

REMEMBERED_BYTES = 16 << 20
"""Bytes of texts and their sets. A text of more than some thirty thousand characters is decoded each time."""

_SET_BYTES = 32
"""Bytes of a set for each byte of its text, about."""

NOTHING = b"{}"


REFUSES_TRAILING_DATA = since(
    V1_37,
    True,  # noqa: FBT003 - the value
    before=False,
    what="metadata.managedFields with data after the JSON value of a key are refused",
)
"""Upstream: kubernetes-sigs/structured-merge-diff `fieldpath/serialize.go`, v6.3.3 and v6.4.2."""


class FieldSet(NamedTuple):
    """A set, and its text as it is stored."""

    set: Set
    text: bytes


class FieldSets:
    """The cache. Any thread may use it."""

    def __init__(self, release: Release = NEWEST) -> None:
        self._whole = at(release, REFUSES_TRAILING_DATA)
        self._remembered = Remembered[FieldSet](REMEMBERED_BYTES)

    @property
    def bytes(self) -> int:
        """The approximate size of the cache in bytes."""
        return self._remembered.size

    def read(self, fields: Any) -> FieldSet:
        """Return the set of a member fieldsV1. Raises fieldsv1.FieldsError."""
        text = NOTHING if fields is None else rawjson.text(fields)
        key = text.decode()
        found = self._remembered.get(key)
        if found is None:
            set_ = fieldsv1.decode(text, whole=self._whole)
            found = FieldSet(set_, fieldsv1.encode(set_))
            self._remembered.add(key, found, size=_SET_BYTES * len(text))
        return found

    def written(self, set_: Set) -> FieldSet:
        """Return the text of a set, and cache it: the next reader of the object needs it."""
        text = fieldsv1.encode(set_)
        key = text.decode()
        found = self._remembered.get(key)
        if found is None:
            found = FieldSet(set_, text)
            self._remembered.add(key, found, size=_SET_BYTES * len(text))
        return found
