"""Find the formats of a schema that kube-apiserver does not know. It warns about them and ignores them.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/validation/formats.go`, `pkg/registry/customresourcedefinition/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from apiserver.apiextensions.structural_checks import JUNCTORS, LEAF, Schema

_OF_TEXTS = frozenset(
    ("bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname", "ipv4", "ipv6", "isbn",
     "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac", "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5")
)  # fmt: skip
"""Without hyphens, which do not count."""
_OF_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def unrecognized(schema: Schema) -> Iterator[str]:
    """Yield the unknown formats of a schema, below junctors too. One may come several times."""
    for node in every_node(schema):
        if (format_ := node.get("format", "")) and not _is_known(node.get("type", ""), format_):
            yield format_


def _is_known(type_: str, format_: str) -> bool:
    if type_ in ("", "string"):
        return format_.replace("-", "") in _OF_TEXTS
    return format_ in _OF_NUMBERS.get(type_, ())


def every_node(schema: Schema) -> Iterator[Schema]:
    """Yield a node and every one below it, outer ones first. One that stands at several places comes once."""
    left, seen = [schema], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if node.keys() <= LEAF:
            continue
        below: list[Schema] = []
        items = node.get("items")
        below += [items] if isinstance(items, dict) else items or ()
        for junctor in JUNCTORS:
            below += node.get(junctor) or ()
        for name in ("not", "additionalProperties", "additionalItems"):
            if isinstance(node.get(name), dict):
                below.append(node[name])
        for name in ("properties", "patternProperties", "definitions", "dependencies"):
            below += [inner for inner in (node.get(name) or {}).values() if isinstance(inner, dict)]
        left += reversed(below)
