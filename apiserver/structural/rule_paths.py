"""Paths that a rule or a selectable field names: `.spec.replicas`, `.labels['example.com/a']`.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go` ValidFieldPath.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from apiserver.apimachinery.fieldpath import ROOT, Path
from apiserver.schema.structural import Structural

_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\",
}  # fmt: skip
_DELIMITERS = ".[]"


class PathError(ValueError):
    """The path is malformed, or the schema has no such field. The text is upstream's."""


def resolve(path: str, schema: Structural, *, brackets: bool = True) -> tuple[Path, Structural | None]:
    """Return the path as errors print it, and the schema of the field, None for a member that no schema describes. Raises PathError.

    `brackets` allows `['name']`, which names a member like `.name` does.
    """
    found, tokens = ROOT, _tokens(path)
    at: Structural | None = schema
    for token in tokens:
        if token == "[":
            if not brackets:
                raise PathError("array notation is not allowed")
            name = _unquoted(_next(tokens))
            found, at = _step(found, at, name)
            if (closing := _next(tokens)) != "]":
                raise PathError(f"expected ] but got {closing}")
        elif token == ".":
            found, at = _step(found, at, _next(tokens))
        else:
            raise PathError(f"expected [ or . but got: {token}")
    return found, at


def _step(path: Path, schema: Structural | None, name: str) -> tuple[Path, Structural | None]:
    if schema is not None and name in schema.properties:
        return path.child(name), schema.properties[name]
    if schema is None or schema.properties or (schema.additional is None and not schema.any_additional):
        raise PathError("does not refer to a valid field")
    return path.key(name), schema.additional


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise PathError("unexpected end of JSON path")
    return token


def _tokens(path: str) -> Iterator[str]:
    """Yield the delimiters, the texts in single quotes with their quotes, and the texts between these."""
    at = 0
    while at < len(path):
        if path[at] in _DELIMITERS:
            end = at + 1
        elif path[at] == "'":
            end = _quote_end(path, at)
        else:
            end = next((i for i in range(at, len(path)) if path[i] in _DELIMITERS), len(path))
        yield path[at:end]
        at = end


def _quote_end(path: str, at: int) -> int:
    """Return where the text in quotes that begins here ends. Without a closing quote it is the rest."""
    end = at
    while (end := path.find("'", end + 1)) > 0:
        if path[end - 1] != "\\":
            return end + 1
    return len(path)


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise PathError(f"expected single quoted string but got {token}")

    def replace(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise PathError(f"invalid string literal: invalid escape char {match[0]}")
        return _ESCAPES[match[1]]

    return _ESCAPED.sub(replace, token[1:-1])
