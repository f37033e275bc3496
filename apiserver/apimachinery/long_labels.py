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


class LongLabels(Mapping[str, str]):
    """The members of a JSON object. Whoever goes through all of them has them decoded."""

    __slots__ = ("_count", "_text")

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: bytes, count: int) -> None:
        self._text = text
        self._count = count

    def __getitem__(self, key: str) -> str:
        if '"' in key:
            raise KeyError(key)
        # Of all strings only the name of a member has a colon behind it.
        name = b'"%b":"' % key.encode(errors="surrogatepass")
        at = self._text.find(name) + len(name)
        if at < len(name):
            raise KeyError(key)
        return self._text[at : self._text.index(b'"', at)].decode()

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
    if flat and text.count(b'"') == 4 * count and text.count(b'":"') == count:
        return LongLabels(text, count)
    return decode(text) or {}
