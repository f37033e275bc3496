"""Find facts about a schema with everything below it: unknown formats and sets, about which kube-apiserver warns, and defaults.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/validation/formats.go`, `pkg/registry/customresourcedefinition/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from apiserver.apiextensions.sharing import Facts
from apiserver.apiextensions.structural_checks import JUNCTORS, LEAF, LIST_TYPE, Schema

_OF_TEXTS = frozenset(
    ("bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname", "ipv4", "ipv6", "isbn",
     "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac", "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5")
)  # fmt: skip
"""Without hyphens, which do not count."""
_OF_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def of(schema: Schema, known: dict[int, Facts]) -> Facts:
    """Return the facts of a schema. `known` are those of schemas that were looked at before, by identity. New ones are added."""
    found = known.get(id(schema))
    if found is None:
        found = known[id(schema)] = _of(schema, known)
    return found


def _of(schema: Schema, known: dict[int, Facts]) -> Facts:
    format_, items = schema.get("format", ""), schema.get("items")
    formats = () if not format_ or _is_known(schema.get("type", ""), format_) else (format_,)
    defaults = schema.get("default") is not None
    sets: tuple[str, ...] = ()
    if schema.keys() <= LEAF:
        return Facts(formats, sets, defaults) if formats or defaults else _NOTHING
    if schema.get(LIST_TYPE) == "set" and isinstance(items, dict) and items.get("type") in ("array", "object"):
        sets = (items["type"],)
    below = [inner for each in _below(schema) if (inner := of(each, known)) is not _NOTHING]
    if not (below or formats or sets or defaults):
        return _NOTHING
    return Facts(
        tuple(dict.fromkeys([*formats, *(text for inner in below for text in inner.formats)])),
        tuple(dict.fromkeys([*sets, *(text for inner in below for text in inner.sets)])),
        defaults or any(inner.defaults for inner in below),
    )


_NOTHING = Facts()


def _below(node: Schema) -> Iterator[Schema]:
    """Yield the nodes directly below one."""
    items = node.get("items")
    yield from [items] if isinstance(items, dict) else items or ()
    for junctor in JUNCTORS:
        yield from node.get(junctor) or ()
    for name in ("not", "additionalProperties", "additionalItems"):
        if isinstance(node.get(name), dict):
            yield node[name]
    for name in ("properties", "patternProperties", "definitions", "dependencies"):
        for inner in (node.get(name) or {}).values():
            if isinstance(inner, dict):
                yield inner


def _is_known(type_: str, format_: str) -> bool:
    if type_ in ("", "string"):
        return format_.replace("-", "") in _OF_TEXTS
    return format_ in _OF_NUMBERS.get(type_, ())
