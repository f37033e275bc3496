"""Objects as structured merge compares them: the JSON that Go makes of the typed object, with kind and apiVersion of their version.

Members that are left out when empty are absent, those that are always written are there with their zero value; what raw JSON means takes
the place of its text. metadata.managedFields is no part of it. What is decoded from the store has this form already but for raw JSON.
Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/typeconverter.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from apiserver.schema import canonical, rawjson, typed, types
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import ListOf, ListType, MapOf, RawJSON, Struct, Type
from apiserver.structuredmerge import values


def form(resource: Resource, obj: Object) -> Object:
    """The form of a decoded object of this version. It shares parts with `obj`, which is not changed."""
    return _headed(resource, _read(resource.shape, canonical.writer(resource.shape)(untracked(obj))))


def of_stored(resource: Resource, obj: Object) -> Object:
    """The same of an object decoded from the store, in a version that is stored as it looks."""
    return _headed(resource, _read(resource.shape, untracked(obj)))


def zero(resource: Resource) -> Object:
    """The form of the object of which nothing is set."""
    return _headed(resource, _zero(resource.shape))


_zero = functools.cache(canonical.zero)


def both(shape: Struct, stored: Object | None, new: Object) -> tuple[Object, Object]:
    """The forms of a stored object, or of one of which nothing is set, and of a new one: in the version that is stored, without kind and
    apiVersion.

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


def _read(type_: Type, value: Any) -> Any:
    reader = _reader(type_)
    return value if reader is None or value is None else reader(value)


@functools.cache
def _reader(type_: Type) -> _Reader | None:
    """None for types without raw JSON."""
    match type_:
        case RawJSON():
            return rawjson.parsed
        case ListOf(item=inner):
            item = _reader(inner)
            return item and _list_reader(item)
        case MapOf(value=inner):
            member = _reader(inner)
            return member and _map_reader(member)
        case Struct():
            return _struct_reader(type_)
    return None


def _list_reader(item: _Reader) -> _Reader:
    return lambda value: [x if x is None else item(x) for x in value]


def _map_reader(member: _Reader) -> _Reader:
    return lambda value: {name: x if x is None else member(x) for name, x in value.items()}


def _struct_reader(struct: Struct) -> _Reader | None:
    readers = {field.name: read for field in types.members(struct) if (read := _reader(field.type)) is not None}
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
    """Only whether the two are the same matters. Upstream compares lists as Go does, to which what is empty is not what is not there."""
    same, empties = _sameness(type_), _empties(type_) if isinstance(type_, ListOf) else None

    def pair(stored: Any, new: Any) -> tuple[Any, Any]:
        if stored is not None and (new == stored or (same(stored, new) and not (empties and empties(new)))):
            return stored, stored
        return stored, new

    return pair


@functools.cache
def _empties(type_: Type) -> Callable[[Any], bool] | None:
    """Whether a list or map that a value of the type holds, or is, has nothing in it; None where there can be none. What is stored holds
    none."""
    match type_:
        case ListOf(item=inner):
            item = _empties(inner)
            return lambda value: not value or (item is not None and any(item(x) for x in value if x is not None))
        case MapOf(value=inner):
            of_list = _empties(ListOf(inner))
            return lambda value: of_list is not None and of_list(list(value.values()))
        case Struct():
            table = {field.name: found for field in types.members(type_) if (found := _empties(field.type)) is not None}
            if table:
                return lambda value: any(
                    name in table and x is not None and table[name](x) for name, x in value.items()
                )
    return None


def _sameness(type_: Type) -> Callable[[Any, Any], bool]:
    """Whether a new value, which is not the stored one as it stands, has the same form."""
    class_, write, read = typed.writing(type_), canonical.writer(type_), _reader(type_)

    def written(stored: Any, new: Any) -> bool:
        if read is None:
            return bool(write(new) == stored)
        return values.equal(read(write(new)), read(stored))

    def converted(stored: Any, new: Any) -> bool:
        try:
            return bool(msgspec.convert(new, class_) == msgspec.convert(stored, class_))
        except (msgspec.ValidationError, UnicodeEncodeError):
            return written(stored, new)

    return written if class_ is None else converted
