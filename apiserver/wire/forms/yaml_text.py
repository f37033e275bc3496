"""YAML. Members stand sorted, so some of a list's stand before its elements and some behind them.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/json`, which writes YAML too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apiserver.codecs.yaml import as_yaml
from apiserver.wire import as_json
from apiserver.wire.forms.syntax import Brackets, DocumentType, Text, fits_indented


class Yaml(Text):
    """Block style; JSON, which is YAML too, for what is too deep for that."""

    step = 4 << 10
    costly = True
    separator = b""

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        compact = type_.head + members[1:]
        return self._block(compact, as_json.loads) or compact + b"\n"

    def element(self, type_: DocumentType, members: bytes) -> bytes:
        compact = type_.head + members[1:]
        return self._block(compact, lambda text: [as_json.loads(text)]) or b"- %b\n" % compact

    def _block(self, compact: bytes, read: Callable[[bytes], Any]) -> bytes | None:
        """None for what is too deep."""
        if not fits_indented(compact):
            return None
        try:
            return as_yaml.dumps(read(compact))
        except (as_json.TooDeep, RecursionError):
            return None

    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        others: dict[str, Any] = as_json.loads(type_.head + members[1:])
        order = as_yaml.in_order({**others, name: None})
        at = order.index(name)
        opening = as_yaml.dumps({other: others[other] for other in order[:at]})
        behind = order[at + 1 :]
        closing = as_yaml.dumps({other: others[other] for other in behind}) if behind else b""
        empty = opening + as_yaml.dumps({name: []}) + closing
        null = opening + as_yaml.dumps({name: None}) + closing
        return Brackets(opening + f"{name}:\n".encode(), closing, empty, null)


YAML = Yaml()
