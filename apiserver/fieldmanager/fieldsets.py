"""Field sets of texts: what FieldsV1 says, read once as long as memory allows.

Objects of one writer say the same of themselves, and every request says again what the last one stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from apiserver.apimachinery.remembered import Remembered
from apiserver.codecs.json import rawjson
from structuredmerge import fieldsv1
from structuredmerge.sets import Set

REMEMBERED_BYTES = 16 << 20
"""Of texts and the sets that they became. A text of more than some thirty thousand characters is read each time."""

_SET_BYTES = 32
"""What a set takes for each byte of its text, about."""

NOTHING = b"{}"


class FieldSet(NamedTuple):
    """A set, and its text as it is stored."""

    set: Set
    text: bytes


class FieldSets:
    """What was read of late. Any thread may ask."""

    def __init__(self) -> None:
        self._remembered = Remembered[FieldSet](REMEMBERED_BYTES)

    @property
    def bytes(self) -> int:
        """What is remembered takes so much, about."""
        return self._remembered.size

    def read(self, fields: Any) -> FieldSet:
        """The set of a member fieldsV1. Raises fieldsv1.FieldsError."""
        text = NOTHING if fields is None else rawjson.text(fields)
        key = text.decode()
        found = self._remembered.get(key)
        if found is None:
            set_ = fieldsv1.decode(text)
            found = FieldSet(set_, fieldsv1.encode(set_))
            self._remembered.add(key, found, size=_SET_BYTES * len(text))
        return found

    def written(self, set_: Set) -> FieldSet:
        """The text of a set, which is remembered: whoever reads the object next asks for it."""
        text = fieldsv1.encode(set_)
        key = text.decode()
        found = self._remembered.get(key)
        if found is None:
            found = FieldSet(set_, text)
            self._remembered.add(key, found, size=_SET_BYTES * len(text))
        return found
