"""Objects as structured merge compares them: the JSON that Go makes of the typed object, with kind and apiVersion of their version.

Members that are left out when empty are absent, those that are always written are there with their zero value; what raw JSON means takes
the place of its text. metadata.managedFields is no part of it. What is decoded from the store has this form already but for raw JSON.
Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/typeconverter.go`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from apiserver.schema import canonical, rawjson, types
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Field, ListOf, ListType, MapOf, RawJSON, Struct, Type
from apiserver.structuredmerge import values


def form(resource: Resource, obj: Object) -> Object:
    """The form of a decoded object of this version. It shares parts with `obj`, which is not changed."""
    return _headed(resource, _read(resource.shape, written(resource, untracked(obj))))


def of_stored(resource: Resource, obj: Object) -> Object:
    """The same of an object decoded from the store, in a version that is stored as it looks."""
    return _headed(resource, _read(resource.shape, untracked(obj)))


def spelled(resource: Resource, obj: Object) -> Object:
    """The form of a decoded object of this version, for the comparison with one that comes from another version: upstream compares the Go
    values of their atomic lists then. Raw JSON in these that Go would write in another way is its text, which nothing is equal to.
    """
    return _headed(resource, _read(resource.shape, written(resource, untracked(obj)), spelled=True))


def written(resource: Resource, obj: Object) -> Object:
    """An object of this version as if it had been decoded from the store."""
    made: Object = canonical.writer(resource.shape)(obj)
    return made


def zero(resource: Resource) -> Object:
    """The form of the object of which nothing is set."""
    return _headed(resource, _zero(resource.shape))


_zero = functools.cache(canonical.zero)


def both(shape: Struct, stored: Object | None, new: Object) -> tuple[Object, Object]:
    """The forms of a stored object, or of one of which nothing is set, and of a new one, without kind and apiVersion. The stored one has
    its form already, but for raw JSON.

    What is the same in both is one object. An atomic part that differs is given as it is: nobody looks inside it.
    """
    before = _zero(shape) if stored is None else untracked(stored)
    return _struct_pairing(shape)(before, untracked(new))


def _headed(resource: Resource, value: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **value}


def untracked(obj: Object) -> Object:
    """An object without its managers."""
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: x for name, x in metadata.items() if name != "managedFields"}}


# Raw JSON: value → the value with what the raw JSON below it means, the same object where there is none.

_Reader = Callable[[Any], Any]


def _read(type_: Type, value: Any, *, spelled: bool = False) -> Any:
    reader = _reader(type_, spelled=spelled)
    return value if reader is None or value is None else reader(value)


@functools.cache
def _reader(type_: Type, *, spelled: bool = False, atomic: bool = False) -> _Reader | None:
    """None for types without raw JSON. `spelled`: that in lists that are `atomic` may stay text."""
    below = functools.partial(_reader, spelled=spelled, atomic=atomic)
    match type_:
        case RawJSON():
            return _spelling if spelled and atomic else rawjson.parsed
        case ListOf(item=inner, list_type=list_type):
            item = _reader(inner, spelled=spelled, atomic=atomic or list_type is ListType.ATOMIC)
            return item and _list_reader(item)
        case MapOf(value=inner):
            member = below(inner)
            return member and _map_reader(member)
        case Struct():
            return _struct_reader(type_, below)
    return None


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


# Pairs: (stored, new) → their forms. What is stored may be None for absent.

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
            if x is None or name not in table:
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
    """What is looked into is written out, unless it is as it was."""
    write, read = canonical.writer(type_), _reader(type_)

    def pair(stored: Any, new: Any) -> tuple[Any, Any]:
        if new == stored:
            return stored, stored
        new = write(new)
        if read is None:
            return stored, new
        return (None if stored is None else read(stored)), read(new)

    return pair


def _atomic_pairing(type_: Type) -> _Pairing:
    """Only whether the two are the same matters."""
    same = _sameness(type_, listed=False)

    def pair(stored: Any, new: Any) -> tuple[Any, Any]:
        if stored is not None and (new == stored or same(stored, new)):
            return stored, stored
        return stored, new

    return pair


# Sameness of atomic parts: (stored, new) → whether a new value, None for absent, is what is stored. Upstream compares the Go values of
# lists (reflect.DeepEqual): below one, an empty list or map is not an absent one, and raw JSON is its text.

_Sameness = Callable[[Any, Any], bool]


@functools.cache
def _sameness(type_: Type, *, listed: bool) -> _Sameness:
    match type_:
        case Struct():
            return _struct_sameness(type_, listed=listed)
        case ListOf(item=inner):
            return _list_sameness(_sameness(inner, listed=True))
        case MapOf(value=inner):
            return _map_sameness(_sameness(inner, listed=listed))
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
    """Of a member, None where it is absent, which may be the same as its zero value."""
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
        return len(stored) == len(new) and all(a == b or same(a, b) for a, b in zip(stored, new, strict=True))

    return same_lists


def _map_sameness(same: _Sameness) -> _Sameness:
    def same_maps(stored: Any, new: Any) -> bool:
        if stored is None or new is None:
            return stored is new
        return stored.keys() == new.keys() and all(same(x, new[name]) for name, x in stored.items())

    return same_maps
