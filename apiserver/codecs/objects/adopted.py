"""Turn a value that a server of another release stored into the one that this release would store.

Members that this release does not know are left out, as upstream's decoder leaves out protobuf fields that it does not know. Values without
such members are not decoded: their text is searched for the names of members that only other releases have, a microsecond for each.
Upstream: kubernetes/apimachinery `pkg/runtime/serializer/protobuf/protobuf.go`, kubernetes/apiserver `pkg/storage/etcd3/store.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from apiserver.codecs.objects import canonical, typed
from apiserver.schema import types
from apiserver.schema.types import ListOf, MapOf, Struct, Type

Adopt = Callable[[bytes], bytes]
"""Returns a stored value in this release's form: the same object if it has that form. Raises ValueError for bytes that are no object."""


def adopter(shape: Struct, others: Sequence[Struct]) -> Adopt | None:
    """Return the function for the values of a kind; None if the other releases' shapes have the same members.

    `others` are the stored shapes of the kind in other releases.
    """
    foreign = sorted({name for other in others for name in _only_there(shape, other)})
    if not foreign:
        return None
    # A quote inside JSON text is escaped, so these bytes are the name of a member or the key of a map.
    named = tuple(b'"%b":' % name.encode() for name in foreign)

    def adopt(value: bytes) -> bytes:
        for name in named:
            if name in value:
                return _adopted(shape, others, value)
        return value

    return adopt


def _adopted(shape: Struct, others: Sequence[Struct], value: bytes) -> bytes:
    line = value.partition(b"\n")[0]
    if typed.has_no_others(shape, line):
        return value
    # The second line has a text for each raw JSON that the writer knew.
    writer = next((other for other in others if typed.has_no_others(other, line)), shape)
    try:
        obj = canonical.decode(writer, value)
    except ValueError:
        obj = canonical.decode(shape, line)
    made = canonical.encode(shape, obj)
    return value if made == value else made


def _only_there(here: Type, there: Type) -> Iterator[str]:
    """Yield the names of members that only the second of two shapes has."""
    if here is there:
        return
    match here, there:
        case Struct(), Struct():
            known = {field.name: field.type for field in types.members(here)}
            for field in types.members(there):
                if field.name in known:
                    yield from _only_there(known[field.name], field.type)
                else:
                    yield field.name
        case ListOf(item=mine), ListOf(item=theirs):
            yield from _only_there(mine, theirs)
        case MapOf(value=mine), MapOf(value=theirs):
            yield from _only_there(mine, theirs)
