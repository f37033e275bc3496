"""Apply strategic merge patches: lists merge by the keys that the shape declares, and directives change that.

* `$patch` replaces or deletes.
* `$retainKeys` drops all other members.
* `$deleteFromPrimitiveList/<list>` removes elements.
* `$setElementOrder/<list>` orders elements.

The order of a merged list: elements of the patch stand in the patch's order. Elements of the live list only keep their own order, and stand
before a common element only if they did so before. The cost is linear in the length of lists.
Upstream: kubernetes/apimachinery `pkg/util/strategicpatch/{patch,meta}.go`, `pkg/util/mergepatch/errors.go`,
`third_party/forked/golang/json/fields.go`, kubernetes/apiserver `pkg/endpoints/handlers/patch.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, NamedTuple

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import rawjson
from apiserver.patching import stable
from apiserver.schema import types
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Field, Integer, ListOf, MapOf, RawJSON, String, Struct, Type
from kubetext import printing
from kubetext.quoting import go_quote

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM: Final = "$deleteFromPrimitiveList"
ORDER: Final = "$setElementOrder"


def apply(patch: Object, live: Object, shape: Struct) -> Object:
    """Return the patched object, which shares parts with both. `live` is not changed. `patch` is changed: afterwards it holds the part that
    upstream's errors show.

    Raises 400 and 422 for an invalid directive, and a bare 500 for a patch that does not fit the lists it names.
    """
    return _merged(live, patch, shape, ours=False)


# The shape's declarations.


class _Below(NamedTuple):
    """The target of a patch: the type of an object or of a list's elements, the strategy (`merge`, `replace` or nothing), and the key of
    elements."""

    type: Type
    strategy: str
    key: str


def _declared(type_: Type, name: str) -> Field:
    if not isinstance(type_, Struct | RawJSON):
        raise errors.raw(f"merging an object in json but data type is not struct, instead is: {_kind(type_)}")
    field = _field(type_, name)
    if field is None:
        struct = type_.name if isinstance(type_, Struct) else type_.go.rpartition(".")[2]
        raise errors.raw(f"unable to find api field in struct {struct} for the json field {go_quote(name)}")
    return field


def _field(type_: Type, name: str) -> Field | None:
    """Return the member that Go would choose: the exact name, otherwise one that differs in case."""
    fields = types.members(type_) if isinstance(type_, Struct) else ()
    folded = name.replace("ſ", "s").lower()
    return next((f for f in fields if f.name == name), None) or next(
        (f for f in fields if f.name.lower() == folded), None
    )


def _object(type_: Type, name: str) -> _Below:
    field = _declared(type_, name)
    return _Below(field.type, _strategy(field), field.patch_merge_key)


def _list(type_: Type, name: str) -> _Below:
    field = _declared(type_, name)
    element = field.type
    if isinstance(field.type, ListOf):
        element = field.type.item
        if isinstance(element, ListOf):
            raise errors.raw("unexpected slice of slice")
    elif not types.is_pointer(field):
        raise errors.raw(f"expected slice or array type, but got: {_kind(type_)}")
    return _Below(element, _strategy(field), field.patch_merge_key)


def _strategy(field: Field) -> str:
    return next((word for word in field.patch_strategy.split(",") if word != "retainKeys"), "")


def _kind(type_: Type) -> str:
    """Return the name that Go's reflection gives the type."""
    match type_:
        case String():
            return "string"
        case Integer():
            return f"int{type_.bits}"
        case Boolean():
            return "bool"
        case MapOf():
            return "map"
        case ListOf():
            return "slice"
    return "struct"


# Objects.


def _merged(original: Object, patch: Object, type_: Type, *, ours: bool) -> Object:
    """Return the merged object. `ours`: the original is part of the patch, and is changed as upstream changes it."""
    if DIRECTIVE in patch:
        return _directed(patch)
    out = original if ours else _opened(original, patch, type_)
    _retain(out, patch)
    for directive in [name for name in patch if name.startswith(ORDER)]:
        _order(out, patch, directive, type_, ours=ours)
    for name, value in patch.items():
        deletes = name.startswith(DELETE_FROM)
        place = (_target(name, DELETE_FROM, "primitive list") if deletes else name) or name
        _merge_member(out, place, value, type_, deletes=deletes, ours=ours)
    return out


def _opened(original: Object, patch: Object, type_: Type) -> Object:
    """Return a copy in which the raw JSON that the patch names is decoded."""
    out = dict(original)
    for place in {place for name in patch for place in (name, name.partition("/")[2])}.intersection(out):
        field = _field(type_, place)
        member = type_.value if isinstance(type_, MapOf) else field and field.type
        if isinstance(member, RawJSON) and out[place] is not None:
            out[place] = rawjson.parsed(out[place])
        elif isinstance(member, ListOf) and isinstance(member.item, RawJSON):
            out[place] = [rawjson.parsed(x) for x in out[place] or ()]
    return out


def _directed(patch: Object) -> Object:
    if patch[DIRECTIVE] == "replace":
        del patch[DIRECTIVE]
        return patch
    if patch[DIRECTIVE] == "delete":
        return {}
    raise _unknown_directive(patch)


def _retain(out: Object, patch: Object) -> None:
    if RETAIN_KEYS not in patch:
        return
    kept = patch.pop(RETAIN_KEYS)
    if not isinstance(kept, list):
        raise _malformed("retainKeys")
    names = _hashed(kept)
    for name, value in patch.items():
        if value is not None and not name.startswith((DELETE_FROM, ORDER)) and _identity(name) not in names:
            raise _malformed("retainKeys")
    for name in [name for name in out if _identity(name) not in names]:
        del out[name]


def _target(name: str, directive: str, what: str) -> str:
    """Return the member that a directive concerns."""
    stated, slash, place = name.partition("/")
    if not slash or stated != directive:
        raise _malformed(what)
    return place


def _merge_member(out: Object, name: str, value: Any, type_: Type, *, deletes: bool, ours: bool) -> None:
    if value is None:
        out.pop(name, None)
        return
    here: Any = out.get(name)
    if printing.go_type(here) != printing.go_type(value):
        if not deletes:
            _take(out, name, value)
    elif isinstance(value, dict):
        below = _object(type_, name)
        out[name] = value if below.strategy == "replace" else _merged(here, value, below.type, ours=ours)
    elif isinstance(value, list):
        out[name] = _merged_lists(here, value, _list(type_, name), deletes=deletes, ours=ours).elements
    else:
        out[name] = value


def _take(out: Object, name: str, value: Any) -> None:
    """Set a value of the patch, without nulls and directives."""
    _discard_nulls(value)
    taken = [value]
    _discard_directives(taken)
    if taken:
        out[name] = taken[0]
    else:
        out.pop(name, None)


def _discard_nulls(value: Any) -> None:
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, dict):
            for name in [name for name, x in here.items() if x is None]:
                del here[name]
            left += here.values()
        elif isinstance(here, list):
            left += here


def _discard_directives(values: list[Any]) -> None:
    """Remove objects with a directive. Lists below are replaced, not changed."""
    values[:] = filter(_plain, values)
    left: list[Any] = [values]
    while left:
        here = left.pop()
        for place, x in list(here.items()) if isinstance(here, dict) else enumerate(here):
            if not _plain(x):
                del here[place]
            elif isinstance(x, dict):
                left.append(x)
            elif isinstance(x, list):
                here[place] = list(filter(_plain, x))
                left.append(here[place])


def _plain(value: Any) -> bool:
    return not isinstance(value, dict) or DIRECTIVE not in value


# Lists.


class _Merge(NamedTuple):
    """A merged list, and the list that orders elements which the patch does not order."""

    elements: list[Any]
    order: list[Any]


def _merged_lists(original: list[Any], patch: list[Any], below: _Below, *, deletes: bool, ours: bool) -> _Merge:
    if below.strategy != "merge" and not deletes:
        return _Merge(patch, original)
    if not original and not patch:
        return _Merge(original, original)
    if _of_objects(original, patch):
        return _merged_objects(original, patch, below, ours=ours)
    if deletes:
        gone = _hashed(patch)
        return _Merge([x for x in original if _identity(x) not in gone], original)
    distinct = list({_identity(x): x for x in [*original, *patch]}.values())
    return _Merge(_Elements(below.key, objects=False).arranged(distinct, patch, original), original)


def _of_objects(*lists: list[Any]) -> bool:
    """Return whether the elements are objects. Raises 422 for lists of lists, 500 for elements of several types."""
    found = {printing.go_type(x): x for part in lists for x in part}
    first = next((x for part in lists for x in part), lists)
    if first is lists:
        raise errors.raw("no elements in any of the given slices")
    if first is None:
        raise _crash("invalid memory address or nil pointer dereference")
    if isinstance(first, list):
        raise errors.unprocessable_patch()
    if len(found) > 1:
        raise errors.raw(f"list element types are not identical: {printing.plain(list(lists))}")
    return isinstance(first, dict)


def _merged_objects(original: list[Any], patch: list[Any], below: _Below, *, ours: bool) -> _Merge:
    key = below.key
    if not key:
        raise errors.raw(f"cannot merge lists without merge key for {_kind(below.type)}")
    elements = _Elements(key, objects=True)
    plain, gone, replaced = _sorted_out(patch, key)
    kept = [x for x in original if key not in x or _identity(x[key]) not in gone] if gone else original
    if replaced:
        return _Merge(elements.arranged(plain, [], plain), kept)
    out = list(kept)
    places: dict[Hashable, int] = {}
    for place, x in enumerate(out):
        if key in x:
            places.setdefault(_identity(x[key]), place)
    for x in plain:
        if key not in x:
            raise _no_merge_key(x, key)
        place = places.setdefault(_comparable(x[key]), len(out))
        if place == len(out):
            out.append(x)
        else:
            out[place] = _merged(out[place], x, below.type, ours=ours or place >= len(kept))
    # Upstream appends to a list whose end the deletions have freed, and then orders by that same list.
    order = out[: len(original)]
    return _Merge(elements.arranged(out, plain, out[: len(kept)]), order)


def _sorted_out(patch: list[Any], key: str) -> tuple[list[Any], set[Hashable], bool]:
    """Return the elements without directives, the keys of those to delete, and whether the list is replaced."""
    plain: list[Any] = []
    gone: set[Hashable] = set()
    replaced = False
    for x in patch:
        if DIRECTIVE not in x:
            plain.append(x)
        elif x[DIRECTIVE] == "delete":
            if key not in x:
                raise _no_merge_key(x, key)
            gone.add(_identity(x[key]))
        elif x[DIRECTIVE] == "replace":
            replaced = True
        elif x[DIRECTIVE] == "merge":
            raise errors.raw("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(x)
    return plain, gone, replaced


def _order(out: Object, patch: Object, directive: str, type_: Type, *, ours: bool) -> None:
    """Merge and order the list that `$setElementOrder/<list>` names, and remove both from the patch."""
    wanted = _as_list(patch.pop(directive))
    name = _target(directive, ORDER, "setElementOrder list")
    original = _as_list(out[name]) if name in out else []
    changes = _as_list(patch[name]) if name in patch else []
    below = _list(type_, name)
    _check_order(changes, wanted, below.key)
    if name not in patch and name not in out:
        return
    if name not in patch:
        found = _Merge(original, original)
    elif name not in out:
        found = _Merge(changes[:], original)
        _discard_directives(found.elements)
    else:
        found = _merged_lists(original, changes, below, deletes=False, ours=ours)
    parts = _partition(found.elements, wanted, below.key)
    elements = _Elements(below.key, objects=_of_objects(original, changes))
    out[name] = elements.interleaved(parts, wanted, found.order)
    patch.pop(name, None)


def _check_order(patch: list[Any], wanted: list[Any], key: str) -> None:
    """Raise an error unless the patch's elements stand in the wanted order."""
    if not patch or not wanted:
        return
    named = [x for x in patch if _as_object(x).get(DIRECTIVE) != "delete"] if key else patch
    left = iter(wanted)
    unseen = len(wanted)
    for x in named:
        if unseen and not _plain(x):
            continue
        found = False
        while unseen and not found:
            found = _equal(x, next(left), key)
            unseen -= 1
        if not found:
            raise errors.raw(
                f"The order in patch list:\n{printing.plain(patch)}\n"
                f" doesn't match {ORDER} list:\n{printing.plain(wanted)}\n"
            )


def _equal(a: Any, b: Any, key: str) -> bool:
    if key:
        a, b = _as_object(a), _as_object(b)
        for x in (a, b):
            if key not in x:
                raise _no_merge_key(x, key)
        a, b = a[key], b[key]
    if isinstance(a, dict | list) and type(a) is type(b):
        raise _uncomparable(a)
    return _identity(a) == _identity(b)


def _partition(merged: list[Any], wanted: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Return the elements that are among the wanted ones, and the others."""
    if not key:
        named = _hashed(wanted)
        chosen = [_comparable(x) in named for x in merged]
    else:
        chosen = _chosen_objects(merged, wanted, key)
    return (
        [x for x, yes in zip(merged, chosen, strict=True) if yes],
        [x for x, yes in zip(merged, chosen, strict=True) if not yes],
    )


def _chosen_objects(merged: list[Any], wanted: list[Any], key: str) -> list[bool]:
    wrong = next((place for place, x in enumerate(wanted) if not isinstance(x, dict)), None)
    named = {_identity(x[key]) for x in wanted[:wrong] if key in x}
    chosen: list[bool] = []
    for x in merged:
        if key not in _as_object(x):
            raise _no_merge_key(x, key)
        chosen.append(_comparable(x[key]) in named)
        if not chosen[-1] and wrong is not None:
            raise errors.raw(f"value for key {wrong} is not a map")
    return chosen


class _Elements(NamedTuple):
    """Identifies elements: objects by the value of a key, others by their own value."""

    key: str
    objects: bool

    def arranged(self, merged: list[Any], wanted: list[Any], order: list[Any]) -> list[Any]:
        """Return the wanted elements in their order, and the others in the order of the second list."""
        return self.interleaved(_partition(merged, wanted, self.key), wanted, order)

    def interleaved(self, parts: tuple[list[Any], list[Any]], wanted: list[Any], order: list[Any]) -> list[Any]:
        places = self._places(order)
        chosen = iter(self._sorted(parts[0], wanted, self._places(wanted)))
        out: list[Any] = []
        waiting = next(chosen, _NONE)
        for x in self._sorted(parts[1], order, places):
            place = places.get(self._name(x), _FAR)
            while waiting is not _NONE and not place < places.get(self._name(waiting), stable.UNKNOWN):
                out.append(waiting)
                waiting = next(chosen, _NONE)
            out.append(x)
        return out if waiting is _NONE else [*out, waiting, *chosen]

    def _sorted(self, elements: list[Any], order: list[Any], places: dict[Hashable, int]) -> list[Any]:
        deleted: list[Any] = []
        if self.objects:
            for x in (*elements, *order):
                if self.key not in _as_object(x):
                    raise _no_merge_key(x, self.key)
            deleted = [x for x in elements if x.get(DIRECTIVE) == "delete"]
            elements = [x for x in elements if x.get(DIRECTIVE) != "delete"] if deleted else elements
        ranks = [places.get(self._name(x), stable.UNKNOWN) for x in elements]
        return [*(elements[i] for i in stable.by_rank(ranks)), *deleted]

    def _places(self, order: list[Any]) -> dict[Hashable, int]:
        """Return the first index of each element."""
        found: dict[Hashable, int] = {}
        for place, x in enumerate(order):
            found.setdefault(self._name(x), place)
        return found

    def _name(self, x: Any) -> Hashable:
        if not self.objects:
            return _identity(x)
        return _identity(x.get(self.key) if isinstance(x, dict) else None)


_NONE: Final = object()
_FAR: Final = 1 << 62


# Values.


def _identity(value: Any) -> Hashable:
    """Return a key that is equal for two values that Go holds to be equal. Objects and lists equal nothing else."""
    return (printing.go_type(value), id(value) if isinstance(value, dict | list) else value)


def _comparable(value: Any) -> Hashable:
    """Return the same for a value that is compared with others of its type. Go cannot compare every type."""
    if isinstance(value, dict | list):
        raise _uncomparable(value)
    return _identity(value)


def _hashed(values: Iterable[Any]) -> set[Hashable]:
    return {_comparable(x) for x in values}


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _bad_type("[]interface {}", value)
    return value


def _as_object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise _bad_type("map[string]interface {}", value)
    return value


# Errors.


def _bad_type(expected: str, value: Any) -> StatusError:
    found = "%!s(<nil>)" if value is None else printing.go_type(value)
    return errors.raw(f"expected a {expected}, but received a {found}")


def _malformed(what: str) -> StatusError:
    return errors.bad_request(f"invalid patch format of {what}")


def _no_merge_key(value: Object, key: str) -> StatusError:
    return errors.raw(f"map: {printing.plain(value)} does not contain declared merge key: {key}")


def _unknown_directive(patch: Object) -> StatusError:
    return errors.raw(f"unknown patch type: {printing.text(patch[DIRECTIVE])} in map: {printing.plain(patch)}")


def _uncomparable(value: Any) -> StatusError:
    return _crash(f"comparing uncomparable type {printing.go_type(value)}")


def _crash(why: str) -> StatusError:
    """Return the bare 500 that upstream answers when Go's runtime panics."""
    return errors.raw(f"runtime error: {why}")
