"""Convert objects to the form that structured merge compares: Go's JSON of the typed object, with kind and apiVersion of its version.

Members that are left out when empty are absent. Members that are always written are present with their zero value. The meaning of raw JSON
replaces its text. metadata.managedFields is left out. Objects decoded from the store have this form already, except for raw JSON.
Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/typeconverter.go`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical
from apiserver.schema import types
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Field, ListOf, ListType, MapOf, Quantity, RawJSON, Struct, Type
from kubetext.quantity import Respelled
from structuredmerge import values


def form(resource: Resource, obj: Object) -> Object:
    """Return the form of a decoded object of this version. It shares parts with `obj`, which is not changed."""
    return _headed(resource, _read(resource.shape, written(resource, untracked(obj)), _meant))


def of_stored(resource: Resource, obj: Object) -> Object:
    """Return the same for an object decoded from the store, in a version whose JSON is the stored one."""
    return _headed(resource, _read(resource.shape, untracked(obj), _meant_by_stored))


def spelled(resource: Resource, obj: Object) -> Object:
    """Return the form of a decoded object of this version, to compare it with one from another version. Upstream compares the Go values of
    atomic lists then. Raw JSON in these lists that Go would write in another way stays text, which equals nothing."""
    return _headed(resource, _read(resource.shape, written(resource, untracked(obj)), _spelled))


def written(resource: Resource, obj: Object) -> Object:
    """Return an object of this version as if it had been decoded from the store."""
    made: Object = canonical.writer(resource.shape)(obj)
    return made


def zero(resource: Resource) -> Object:
    """Return the form of the object with no member set."""
    return _headed(resource, _zero(resource.shape))


_zero = functools.cache(canonical.zero)


def both(shape: Struct, stored: Object | None, new: Object) -> tuple[Object, Object]:
    """Return the forms of a stored object (or of one with no member set) and of a new one, without kind and apiVersion. The stored one has
    its form already, except for raw JSON.

    Equal parts of both are the same Python object. A changed atomic part is returned as it is: it is never searched.
    """
    before = _zero(shape) if stored is None else untracked(stored)
    return _struct_pairing(shape)(before, untracked(new))


def _headed(resource: Resource, value: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **value}


def untracked(obj: Object) -> Object:
    """Return an object without its managers."""
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: x for name, x in metadata.items() if name != "managedFields"}}


# Readers: value → the value with some parts replaced; the same object if nothing is replaced.

_Reader = Callable[[Any], Any]


class _Leaves(Protocol):
    """Returns the reader of a type without members; None if it needs none. `listed`: it lies below an atomic list."""

    def __call__(self, type_: Type, *, listed: bool) -> _Reader | None: ...

    def __hash__(self) -> int: ...


def _meant(type_: Type, *, listed: bool) -> _Reader | None:
    """Read the meaning of raw JSON, and amounts in their canonical spelling."""
    return _plain if isinstance(type_, Quantity) else _meant_by_stored(type_, listed=listed)


def _meant_by_stored(type_: Type, *, listed: bool) -> _Reader | None:
    return rawjson.parsed if isinstance(type_, RawJSON) else None


def _spelled(type_: Type, *, listed: bool) -> _Reader | None:
    return _spelling if isinstance(type_, RawJSON) and listed else _meant(type_, listed=listed)


def _sent(type_: Type, *, listed: bool) -> _Reader | None:
    """Read amounts as they were sent."""
    return _as_sent if isinstance(type_, Quantity) else None


def _read(type_: Type, value: Any, leaves: _Leaves) -> Any:
    reader = _reader(type_, leaves)
    return value if reader is None or value is None else reader(value)


@functools.cache
def _reader(type_: Type, leaves: _Leaves, *, listed: bool = False) -> _Reader | None:
    """Return the reader of a type; None if it replaces nothing."""
    match type_:
        case ListOf(item=inner, list_type=list_type):
            item = _reader(inner, leaves, listed=listed or list_type is ListType.ATOMIC)
            return item and _list_reader(item)
        case MapOf(value=inner):
            member = _reader(inner, leaves, listed=listed)
            return member and _map_reader(member)
        case Struct():
            return _struct_reader(type_, functools.partial(_reader, leaves=leaves, listed=listed))
    return leaves(type_, listed=listed)


def _plain(amount: str) -> str:
    return str(amount)


def _as_sent(amount: str) -> str:
    return amount.sent if isinstance(amount, Respelled) else amount


def _spelling(raw: Any) -> Any:
    meaning, text = rawjson.parsed(raw), rawjson.text(raw)
    return meaning if rawjson.text(rawjson.made(meaning)) == text else text.decode()


def _list_reader(item: _Reader) -> _Reader:
    return lambda value: [x if x is None else item(x) for x in value]


def _map_reader(member: _Reader) -> _Reader:
    return lambda value: {name: x if x is None else member(x) for name, x in value.items()}


def _struct_reader(struct: Struct, reader: Callable[[Type], _Reader | None]) -> _Reader | None:
    readers = {field.name: read for field in types.members(struct) if (read := reader(field.type)) is not None}
    if not readers:
        return None

    def read_struct(value: Object) -> Object:
        found = {name: readers[name](x) for name, x in value.items() if x is not None and name in readers}
        return {**value, **found} if found else value

    return read_struct


# Pairs: (stored, new) → their forms. The stored value may be None for absent.

_Pairing = Callable[[Any, Any], tuple[Any, Any]]


@functools.cache
def _pairing(type_: Type) -> _Pairing:
    match type_:
        case Struct(atomic=True) | ListOf(list_type=ListType.ATOMIC):
            return _atomic_pairing(type_)
        case Struct():
            return _struct_pairing(type_)
    return _granular_pairing(type_)


@functools.cache
def _struct_pairing(struct: Struct) -> _Pairing:
    fields = types.members(struct)
    table = {field.name: (_pairing(field.type), canonical.left_out_when_empty(field)) for field in fields}
    owed = {field.name: absent for field in fields if (absent := canonical.absent_value(field)) is not None}

    def pair(stored: Object | None, new: Object) -> tuple[Object | None, Object]:
        before: Object = stored or {}
        made: Object = {}
        read: Object = {}
        kept = 0
        for name, x in new.items():
            if name not in table:
                if struct.open:
                    same = name in before and values.equal(before[name], x)
                    made[name] = before[name] if same else x
                    kept += same
                continue
            if x is None:
                continue
            pairing, omit_empty = table[name]
            former = before.get(name)
            old, x = pairing(former, x)
            if not x and omit_empty:
                continue
            made[name] = x
            if old is not former:
                read[name] = old
            if x is old and former is not None:
                kept += 1
        for name, absent in owed.items():
            if name not in made:
                made[name] = x = absent()
                if name in before and before[name] == x:
                    kept += 1
        if stored is None:
            return None, made
        if read:
            stored = {**stored, **read}
        return stored, stored if kept == len(made) == len(stored) else made

    return pair


def _granular_pairing(type_: Type) -> _Pairing:
    """Return both forms, for a type whose members are compared. A new value is written out, unless it is unchanged."""
    write, read_stored, read = canonical.writer(type_), _reader(type_, _meant_by_stored), _reader(type_, _meant)

    def pair(stored: Any, new: Any) -> tuple[Any, Any]:
        if new == stored:
            return stored, stored
        new = write(new)
        if read_stored is not None and stored is not None:
            stored = read_stored(stored)
        return stored, new if read is None else read(new)

    return pair


def _atomic_pairing(type_: Type) -> _Pairing:
    """Return both forms, for an atomic type: only their equality matters."""
    same = _quick(type_, _sameness(type_, listed=False), listed=False)

    def pair(stored: Any, new: Any) -> tuple[Any, Any]:
        if stored is not None and same(stored, new):
            return stored, stored
        return stored, _read(type_, new, _sent) if new == stored else new

    return pair


# Sameness of atomic parts: (stored, new) → whether a new value, None for absent, equals the stored one. Upstream compares the Go values of
# lists (reflect.DeepEqual). So below a list, empty lists and maps differ from absent ones, raw JSON is its text, and an amount its
# spelling.

_Sameness = Callable[[Any, Any], bool]


def _quick(type_: Type, same: _Sameness, *, listed: bool) -> _Sameness:
    """Return the same test, which is faster for equal values."""
    respelled = _respelled(type_, listed=listed)
    if respelled is None:
        return lambda stored, new: stored == new or same(stored, new)
    return lambda stored, new: not respelled(new) if stored == new else same(stored, new)


@functools.cache
def _respelled(type_: Type, *, listed: bool) -> Callable[[Any], bool] | None:
    """Return a test whether an amount in a list below the value was sent in another spelling; None if there is no such place."""
    match type_:
        case Quantity():
            return _is_respelled if listed else None
        case ListOf(item=inner):
            item = _respelled(inner, listed=True)
            return item and (lambda value: any(map(item, value)))
        case MapOf(value=inner):
            member = _respelled(inner, listed=listed)
            return member and (lambda value: any(map(member, value.values())))
        case Struct():
            found = [(f.name, below) for f in types.members(type_) if (below := _respelled(f.type, listed=listed))]
            return _any_respelled(found) if found else None
    return None


def _any_respelled(members: Sequence[tuple[str, Callable[[Any], bool]]]) -> Callable[[Any], bool]:
    def respelled(value: Any) -> bool:
        return any((x := value.get(name)) and below(x) for name, below in members)

    return respelled


def _is_respelled(value: Any) -> bool:
    return type(value) is Respelled


def _same_spelling(stored: Any, new: Any) -> bool:
    return stored == new and not _is_respelled(new)


@functools.cache
def _sameness(type_: Type, *, listed: bool) -> _Sameness:
    match type_:
        case Struct():
            return _struct_sameness(type_, listed=listed)
        case ListOf(item=inner):
            return _list_sameness(_quick(inner, _sameness(inner, listed=True), listed=True))
        case MapOf(value=inner):
            return _map_sameness(_sameness(inner, listed=listed))
        case Quantity() if listed:
            return _same_spelling
        case RawJSON() if not listed:
            return lambda stored, new: values.equal(*map(_meaning, (stored, new)))
    return operator.eq


def _meaning(raw: Any) -> Any:
    return None if raw is None else rawjson.parsed(raw)


def _struct_sameness(struct: Struct, *, listed: bool) -> _Sameness:
    fields = types.members(struct)
    members = {field.name: _member_sameness(field, listed=listed) for field in fields}

    def same(stored: Any, new: Any) -> bool:
        if stored is None or new is None:
            return stored is new
        return all(members[name](stored.get(name), new.get(name)) for name in {**stored, **new} if name in members)

    return same


def _member_sameness(field: Field, *, listed: bool) -> _Sameness:
    """Return the sameness of a member. Absent members are None, which may equal the zero value."""
    same = _sameness(field.type, listed=listed)
    absent = canonical.absent_value(field)
    if absent is not None:
        zero = absent()
        return lambda stored, new: same(zero if stored is None else stored, zero if new is None else new)
    if not canonical.left_out_when_empty(field) or (listed and isinstance(field.type, ListOf | MapOf)):
        return same
    return lambda stored, new: (not stored and not new) or same(stored, new)


def _list_sameness(same: _Sameness) -> _Sameness:
    def same_lists(stored: Any, new: Any) -> bool:
        if stored is None or new is None:
            return stored is new
        return len(stored) == len(new) and all(map(same, stored, new))

    return same_lists


def _map_sameness(same: _Sameness) -> _Sameness:
    def same_maps(stored: Any, new: Any) -> bool:
        if stored is None or new is None:
            return stored is new
        return stored.keys() == new.keys() and all(same(x, new[name]) for name, x in stored.items())

    return same_maps
