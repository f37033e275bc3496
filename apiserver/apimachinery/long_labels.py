"""Labels of an object that has very many, looked up in their JSON text.

A hundred thousand of them fit into one object. Decoding these takes longer than a step of the event loop may, at every write. The decoded
labels would take ten times the memory of their text, as long as the object exists.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView

import msgspec
import orjson

decode = msgspec.json.Decoder(dict[str, str] | None).decode
"""Decodes labels. Raises msgspec.DecodeError for other JSON."""


_BETWEEN = b'":"'
"""Separates a name from its value. Only these colons occur in such a text."""


class LongLabels(Mapping[str, str]):
    """The members of a JSON object, sorted by the bytes of their names as in all stored text. Iteration decodes all of them.

    The text is its only memory. A lookup halves the text, which takes 10 to 20 µs among a hundred thousand labels.
    """

    __slots__ = ("_count", "_text")

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: bytes, count: int) -> None:
        self._text = text
        self._count = count

    def __getitem__(self, key: str) -> str:
        text, name = self._text, key.encode(errors="surrogatepass")
        low, high = 0, len(text)
        while low < high:  # the label, if present, begins behind `low` and before `high`
            middle = (low + high) // 2
            at = text.find(_BETWEEN, middle, high + len(_BETWEEN) - 1)
            if at < 0:
                high = middle
                continue
            here = text[text.rindex(b'"', 0, at) + 1 : at]
            if here == name:
                at += len(_BETWEEN)
                return text[at : text.index(b'"', at)].decode()
            if here < name:
                low = at + 1
            else:
                high = middle
        raise KeyError(key)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self.decoded())

    def items(self) -> ItemsView[str, str]:
        return self.decoded().items()

    def values(self) -> ValuesView[str]:
        return self.decoded().values()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LongLabels):
            return self._text == other._text
        return isinstance(other, Mapping) and len(other) == len(self) and self.decoded() == dict(other.items())

    def decoded(self) -> dict[str, str]:
        """Return all of them, decoded anew at each call."""
        found: dict[str, str] = orjson.loads(self._text)
        return found


def of(text: bytes) -> Mapping[str, str]:
    """Return the labels of a valid JSON text. Raises msgspec.DecodeError for other JSON."""
    count = text.count(b":")
    # One object without escapes, with as many pairs of strings as colons: so each colon separates such a pair.
    flat = text.count(b"{") == 1 and b"[" not in text and b"\\" not in text
    if flat and text.count(b'"') == 4 * count and text.count(_BETWEEN) == count:
        return LongLabels(text, count)
    return decode(text) or {}
