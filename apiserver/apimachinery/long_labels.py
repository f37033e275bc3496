"""Labels of an object that has very many: they are looked up in their text.

A hundred thousand of them fit into one object. To decode these takes longer than a step of the event loop may, with every write, and ten
times their memory for as long as the object is there.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView

import msgspec
import orjson

decode = msgspec.json.Decoder(dict[str, str] | None).decode
"""Raises msgspec.DecodeError for what are no labels."""


_BETWEEN = b'":"'
"""A name and its value. Nothing else in such a text has a colon."""


class LongLabels(Mapping[str, str]):
    """The members of a JSON object, in the order of their names' bytes as in everything that is stored. Whoever goes through all of them
    has them decoded.

    Its memory is the text alone: a name is looked for by halving that, which takes 10 to 20 µs among a hundred thousand.
    """

    __slots__ = ("_count", "_text")

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: bytes, count: int) -> None:
        self._text = text
        self._count = count

    def __getitem__(self, key: str) -> str:
        text, name = self._text, key.encode(errors="surrogatepass")
        low, high = 0, len(text)
        while low < high:  # it begins behind one and before the other, if it is there
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
        """All of them, each time anew."""
        found: dict[str, str] = orjson.loads(self._text)
        return found


def of(text: bytes) -> Mapping[str, str]:
    """The labels of a valid JSON text. Raises msgspec.DecodeError for what are no labels."""
    count = text.count(b":")
    # One object without escapes, with as many pairs of strings as there are colons: then each of these stands between two of them.
    flat = text.count(b"{") == 1 and b"[" not in text and b"\\" not in text
    if flat and text.count(b'"') == 4 * count and text.count(_BETWEEN) == count:
        return LongLabels(text, count)
    return decode(text) or {}
