"""Identify the items of lists that merge item by item: return the path element of each.

Upstream: kubernetes-sigs/structured-merge-diff `typed/helpers.go` (listItemToPathElement).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubetext.quoting import go_quote
from structuredmerge.paths import KEY, VALUE, Element, item
from structuredmerge.types import UNSET, List
from structuredmerge.values import ABSENT, STRING, Key, key

__all__ = ["Namer", "UnknownItem", "namer"]

Namer = Callable[[Any], Element]


class UnknownItem(ValueError):
    """An item has no path element. The message is upstream's.

    It is not a map, has none of the keys, or is not a scalar of a set.
    """


def namer(list_: List) -> Namer:
    """Return the function that computes the path element of an item. The list must not be atomic.

    The element of a list map consists of the values of its keys, or their defaults where the item has none. The element
    of a set is the item itself. The function raises UnknownItem.
    """
    return _keyed(list_) if list_.keys else _set_item


def _set_item(value: Any) -> Element:
    if isinstance(value, str):
        return (VALUE, (STRING, value))
    if isinstance(value, dict):
        raise UnknownItem("associative list without keys has an element that's a map type")
    if isinstance(value, list):
        raise UnknownItem("not supported: associative list with lists as elements")
    if value is None:
        raise UnknownItem("associative list without keys has an element that's an explicit null")
    return item(value)


def _keyed(list_: List) -> Namer:
    declared = list_.item.map.members if list_.item.map else {}
    keys = []
    for name in sorted(list_.keys):
        default = declared[name].default if name in declared else UNSET
        # Null does not count as a default.
        keys.append((name, None if default is UNSET or default is None else (name, key(default))))

    def name_of(value: Any) -> Element:
        if not isinstance(value, dict):
            raise UnknownItem(
                f"associative list with keys may not have {'a null element' if value is None else 'non-map elements'}"
            )
        found = []
        for name, default in keys:
            part = value.get(name, ABSENT)
            if part.__class__ is str:
                found.append((name, (STRING, part)))
            elif part is not ABSENT:
                found.append((name, _key(part)))
            elif default is not None:
                found.append(default)
        if not found:
            names = " ".join(map(go_quote, list_.keys))
            raise UnknownItem(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return (KEY, tuple(found))

    return name_of


def _key(value: Any) -> Key:
    """Return the key of a value that is not a string."""
    try:
        return key(value)
    except RecursionError as error:
        raise UnknownItem(str(error)) from None
