"""Convert metadata.managedFields to the managers of structured merge and back: their identities, fields and times.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/managedfields.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical
from apiserver.codecs.objects.times import order
from apiserver.fieldmanager.fieldsets import FieldSet, FieldSets
from apiserver.schema.resource import Object
from kubetext.quoting import go_quote
from structuredmerge.fieldsv1 import FieldsError
from structuredmerge.sets import Set
from structuredmerge.updater import Managers, Owned

APPLY, UPDATE = "Apply", "Update"
FIELDS_V1 = "FieldsV1"

MOST_BYTES = 3 << 20
"""Bytes of a text of fields: twice what the store accepts. Go's escapes make the text of one request up to six times as long."""

EPOCH = "1970-01-01T00:00:00Z"
"""Sorts entries without time."""

Entries = Sequence[Mapping[str, Any]]


class EntriesError(ValueError):
    """The entries are invalid. The text is upstream's."""


class Identity(NamedTuple):
    """Distinguishes managers. A manager that applies is the same in all versions: its `api_version` is empty."""

    manager: str
    operation: str
    api_version: str
    subresource: str

    @property
    def text(self) -> str:
        """The key of the manager, which also sorts managers."""
        length = len(self.manager) + len(self.api_version) + len(self.subresource)
        return _known_text(self) if length <= REMEMBERED_LENGTH else _text(self)


def _text(identity: Identity) -> str:
    members = {
        "manager": identity.manager,
        "operation": identity.operation,
        "apiVersion": identity.api_version,
        "subresource": identity.subresource,
    }
    return canonical.encode_value({name: x for name, x in members.items() if x}).decode()


REMEMBERED, REMEMBERED_LENGTH = 1024, 256
"""Texts of identities that are cached, and characters of an identity that may be: managers are few, and each write needs their texts
several times."""
_known_text = functools.lru_cache(REMEMBERED)(_text)


def applier(manager: str, subresource: str) -> Identity:
    return Identity(manager, APPLY, "", subresource)


def updater(manager: str, api_version: str, subresource: str) -> Identity:
    return Identity(manager, UPDATE, api_version, subresource)


class Managed(NamedTuple):
    """The managers of an object. None of its parts is changed.

    `managers` are those of structured merge, by the text of their identity. `times` are RFC 3339 and may have further keys. `identities`
    and `stored` are known for some managers: the identity, and the entry's set with its value of fieldsV1.
    """

    managers: Managers = MappingProxyType({})
    times: Mapping[str, str] = MappingProxyType({})
    identities: Mapping[str, Identity] = MappingProxyType({})
    stored: Mapping[str, tuple[Set, Any]] = MappingProxyType({})

    def with_managers(self, managers: Managers) -> Managed:
        return Managed(managers, self.times, self.identities, self.stored)

    def with_manager(self, identity: Identity, owned: Owned, *, time: str | None) -> Managed:
        """Return a copy with the fields of this manager. Without `time` it keeps its former time, if any."""
        name = identity.text
        times = self.times if time is None else {**self.times, name: time}
        return Managed({**self.managers, name: owned}, times, {**self.identities, name: identity}, self.stored)


NOBODY = Managed()


def decode(entries: Entries | None, sets: FieldSets) -> Managed:
    """Return the managers of the entries; of equal identities the later one. Raises EntriesError."""
    managers: dict[str, Owned] = {}
    times: dict[str, str] = {}
    identities: dict[str, Identity] = {}
    stored: dict[str, tuple[Set, Any]] = {}
    for i, entry in enumerate(entries or ()):
        identity, version = _identity(entry, i)
        fields = entry.get("fieldsV1")
        if fields is not None and len(rawjson.text(fields)) > MOST_BYTES:
            raise EntriesError(f"fieldsV1 of managed fields entry {i} is longer than {MOST_BYTES} bytes")
        try:
            found = sets.read(fields)
        except FieldsError as e:
            raise EntriesError(f"error decoding versioned set from {_shown(entry)}: error decoding set: {e}") from None
        name = identity.text
        managers[name] = Owned(found.set, version, identity.operation == APPLY)
        identities[name] = identity
        stored[name] = found.set, _value(found, fields)
        if (time := entry.get("time")) is not None:
            times[name] = time
        else:
            times.pop(name, None)
    return Managed(managers, times, identities, stored)


def _identity(entry: Mapping[str, Any], i: int) -> tuple[Identity, str]:
    operation, version = entry.get("operation"), entry.get("apiVersion") or ""
    if operation not in (APPLY, UPDATE):
        raise EntriesError("operation must be `Apply` or `Update`")
    if not version:
        raise EntriesError("apiVersion must not be empty")
    fields_type = entry.get("fieldsType")
    if not fields_type:
        raise EntriesError(f"missing fieldsType in managed fields entry {i}")
    if fields_type != FIELDS_V1:
        raise EntriesError(f"invalid fieldsType {go_quote(fields_type)} in managed fields entry {i}")
    manager, subresource = entry.get("manager") or "", entry.get("subresource") or ""
    made = applier(manager, subresource) if operation == APPLY else updater(manager, version, subresource)
    return made, version


def _value(found: FieldSet, fields: Any) -> Any:
    """Return the stored value of a set: the received value, if it has that spelling."""
    return fields if fields is not None and rawjson.text(fields) == found.text else rawjson.of(found.text)


def _shown(entry: Mapping[str, Any]) -> str:
    """Return an entry as Go prints it."""
    fields = entry.get("fieldsV1")
    time = entry.get("time")
    shown = (
        entry.get("manager") or "",
        entry.get("operation") or "",
        entry.get("apiVersion") or "",
        "<nil>" if time is None else f"{time[:10]} {time[11:-1]} +0000 UTC",
        entry.get("fieldsType") or "",
        "<nil>" if fields is None else rawjson.text(fields).decode(),
        entry.get("subresource") or "",
    )
    return f"{{{' '.join(shown)}}}"


def encode(managed: Managed, sets: FieldSets) -> list[Object]:
    """Return the entries of managers, in the order in which they are stored."""
    entries = [_entry(name, owned, managed, sets) for name, owned in managed.managers.items()]
    if len(entries) > 1:
        entries.sort(key=_order)
    return entries


def _entry(name: str, owned: Owned, managed: Managed, sets: FieldSets) -> Object:
    identity = managed.identities[name]
    set_, fields = managed.stored.get(name, _NOT_STORED)
    if owned.set is not set_:
        fields = rawjson.of(sets.written(owned.set).text)
    entry: Object = {"manager": identity.manager} if identity.manager else {}
    entry["operation"] = identity.operation
    entry["apiVersion"] = owned.version
    if (time := managed.times.get(name)) is not None:
        entry["time"] = time
    entry["fieldsType"] = FIELDS_V1
    entry["fieldsV1"] = fields
    if identity.subresource:
        entry["subresource"] = identity.subresource
    return entry


_NOT_STORED: tuple[Set | None, Any] = (None, None)


def _order(entry: Object) -> tuple[Any, ...]:
    """Sort appliers first, then the oldest first."""
    return (
        entry["operation"],
        order(entry.get("time", EPOCH)),
        entry.get("manager", ""),
        entry["apiVersion"],
        entry.get("subresource", ""),
    )
