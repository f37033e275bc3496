"""`enum` of a schema: the values that are allowed.

Upstream: kubernetes/kube-openapi `pkg/validation/validate/validator.go` (basicCommonValidator), kubernetes/apimachinery
`pkg/util/validation/field/errors.go` (NotSupported).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from apiserver.apimachinery import excerpt, fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.structural.numbers import as_int64
from apiserver.structural.values import go_json, shown
from kubetext import printing
from kubetext.deepequal import deep_equal
from kubetext.quoting import go_quote
from kubetext.strconv import MAX_INT64, MIN_INT64

TEXT_BYTES = 64 << 10
"""Bytes of the allowed values that one error shows (see `excerpt`)."""


class Enumeration:
    """The allowed values. A value is found in constant time, whatever their number; objects and lists in linear time."""

    __slots__ = ("_booleans", "_compounds", "_floats", "_integers", "_strings", "_supported", "_text", "_values")

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values = [_stored(value) for value in values]
        self._strings = frozenset(value for value in values if type(value) is str)
        self._integers = frozenset(value for value in values if type(value) is int)
        self._floats = frozenset(value for value in values if type(value) is float)
        self._booleans = frozenset(value for value in values if type(value) is bool)
        self._compounds = [value for value in values if isinstance(value, dict | list)]
        self._supported = self._text = ""

    def check(self, kind: type) -> Callable[[Any], bool]:
        """Return `has` for values of one kind."""
        return self._strings.__contains__ if kind is str else self.has

    def has(self, value: Any) -> bool:
        """Return whether a value is allowed. Go converts a value to the type of each allowed one before it compares: 1.5 passes where 1 is
        allowed, and 65 where "A" is. Null never passes."""
        kind = type(value)
        if kind is str:
            return value in self._strings
        if kind is int:
            return (
                value in self._integers
                or float(value) in self._floats
                or bool(self._strings and _as_text(value) in self._strings)
            )
        if kind is float:
            return value in self._floats or bool(self._integers and as_int64(value) in self._integers)
        if kind is bool:
            return value in self._booleans
        return value is not None and any(deep_equal(value, allowed) for allowed in self._compounds)

    @property
    def text(self) -> str:
        """The allowed values, as they tell one enumeration from another."""
        if not self._text:
            self._text = printing.plain(list(self._values))
        return self._text

    def error(self, path: str, value: Any) -> FieldError:
        """Return the error for a value that is not allowed."""
        if not self._supported:
            texts = (value if isinstance(value, str) else go_json(value) for value in self._values)
            self._supported = excerpt.cut(", ".join(map(go_quote, texts)), TEXT_BYTES)
        body = f"Unsupported value: {fieldpath.show(shown(value))}: supported values: {self._supported}"
        return FieldError(fieldpath.NOT_SUPPORTED, path, body)


def _stored(value: Any) -> Any:
    """Return a value of a definition as it is read back: kube-apiserver stores 1.0 as 1, which is an integer then."""
    if isinstance(value, dict):
        return {name: _stored(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_stored(item) for item in value]
    if isinstance(value, float) and value.is_integer() and MIN_INT64 <= value < MAX_INT64:
        return int(value)
    return value


def _as_text(number: int) -> str:
    """Return Go's `string(number)`: the character with this number."""
    valid = 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if valid else "\ufffd"
