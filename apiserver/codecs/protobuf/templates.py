"""What is made of a text by copying, made by copy and patch: the objects of a fleet differ in a few values of the same length.

    text      {"metadata":{"name":"│s000017│","creationTimestamp":"│2026-06-01T12:00:00Z│"},"spec":{…
    stencil    constant            │variable│ constant …    the same ones where, and as, the message has them
    message    …                   s000017  …               the varint of its seconds

A stencil is cut where two texts of one length have the same tokens: the values in which they differ become variable, and times, which
soon will. Where those stand in the message, and as what, is tried: a third text, with something else in each of these places, is turned
into a message the long way. A later text fits when everything else is the same to the byte. A text of another length with the same
constants has the same values variable, and is learned of alone.

That is exact: a message says of a string, a number and a time that is a value nothing but itself, and its length is the same. Keys
decide in which order things stand, so they are never variable. What fits no stencil goes the long way.
"""

from __future__ import annotations

import functools
import itertools
import operator
import random
import re
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from apiserver.codecs.objects import times
from apiserver.codecs.protobuf import protowire

LONGEST = 16 << 10
"""Bytes of a text above which nothing is learned of it: a stencil is cut in one step of the event loop."""
KEPT = 512 << 10
"""Bytes of texts and messages that are kept for one shape; what is made of them takes as many again."""
MOST_VARIABLES = 128
FEW = 4
"""Stencils for texts of one length."""
SELDOM = 8
"""One text of so many may be learned of: where nothing is like anything else that costs little."""
RECENT = 4
"""Stencils with which texts of other lengths are compared."""

_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|(?<![\w.+-])(0|[1-9]\d{0,17})(?![\w.+-])', re.DOTALL)
"""A string, whether it is a key, or a number that is whole and not negative."""
_STRING, _NUMBER = re.compile(rb"[ !#-\[\]-~]+"), re.compile(rb"\d+")
"""What may stand in the place of a variable."""
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TIME_LENGTH = 20
_DIFFERENT = re.compile(rb"[^\0]+")
_PLAIN = bytes(c for c in range(0x20, 0x7F) if c not in b'"\\')
"""What stands for itself in JSON and is one byte long."""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Make = Callable[[bytes], bytes]


class _Variable(NamedTuple):
    """A place of a text; what stands there must pass `fits`, and `patch` makes of it what the message has."""

    start: int
    stop: int
    patch: Make


def _same(text: bytes) -> bytes:
    return text


def _patch_of(value: bytes, message: bytes) -> Make:
    """What may become of a string: what looks like a time is one where the message has its seconds."""
    try:
        seconds = _seconds(value)
    except ValueError:
        return _same
    return _seconds if seconds in message else _same


@functools.lru_cache(maxsize=1024)
def _seconds(text: bytes) -> bytes:
    """Raises ValueError for what is no time, and for the year of the one that stands for none."""
    if not _TIME.fullmatch(text) or text.startswith(b"0001-"):
        raise ValueError(text)
    return protowire.varint(times.unix(text.decode())[0])


@functools.lru_cache(maxsize=1024)
def _varint(text: bytes) -> bytes:
    found = _TOKEN.fullmatch(text)
    if found is None or found[3] is None:
        raise ValueError(text)
    return protowire.varint(int(text))


class _Stencil:
    """`text` and `message` are what it was cut of."""

    __slots__ = (
        "_constants", "_order", "_parts", "_patched", "_template", "message", "text", "variables"
    )  # fmt: skip

    def __init__(self, text: bytes, message: bytes, variables: Sequence[_Variable], places: Sequence[int]) -> None:
        """`variables` in the order of the text; `places` where in the message each stands."""
        self.text, self.message, self.variables = text, message, variables
        bounds = [0, *(at for v in variables for at in (v.start, v.stop)), len(text)]
        sizes = [stop - start for start, stop in itertools.pairwise(bounds)]
        self._parts = struct.Struct("".join(f"{size}s" for size in sizes)).unpack
        self._constants = self._parts(text)[::2]
        self._patched = [
            (at, v.patch, len(v.patch(text[v.start : v.stop])))
            for at, v in enumerate(variables)
            if v.patch is not _same
        ]
        by_place = sorted(range(len(variables)), key=places.__getitem__)
        self._order: Callable[[Sequence[bytes]], Iterable[bytes]] = (
            operator.itemgetter(*by_place) if len(by_place) > 1 else tuple
        )
        self._template, at = [], 0
        for one in by_place:
            v = variables[one]
            self._template += [message[at : places[one]], b""]
            at = places[one] + len(v.patch(text[v.start : v.stop]))
        self._template.append(message[at:])

    def variables_of(self, text: bytes) -> list[_Variable]:
        """The same in a text of another length; nothing where it has other constants."""
        at, variables = 0, list[_Variable]()
        for constant, v in zip(self._constants, self.variables, strict=False):
            start = at + len(constant)
            value = (_NUMBER if v.patch is _varint else _STRING).match(text, start)
            if value is None or not text.startswith(constant, at):
                return []
            try:
                v.patch(value[0])
            except ValueError:
                return []
            at = value.end()
            variables.append(_Variable(start, at, v.patch))
        return variables if text[at:] == self._constants[-1] else []

    def fill(self, text: bytes) -> bytes | None:
        """The message of a text of the same length; None where it does not fit."""
        parts = self._parts(text)
        if parts[::2] != self._constants:
            return None
        values = parts[1::2]
        if b"".join(values).translate(None, _PLAIN):
            return None
        if self._patched:
            patched = list(values)
            try:
                for at, patch, size in self._patched:
                    patched[at] = made = patch(values[at])
                    if len(made) != size:
                        return None
            except ValueError:
                return None
            values = tuple(patched)
        whole = self._template.copy()
        whole[1::2] = self._order(values)
        return b"".join(whole)


class Stencils:
    """Makes what `make` makes, sooner where many texts are alike.

    `make` may say of a string, a whole number or a time that is a value nothing but that, in a place that depends on no value, and of raw
    JSON its text.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._known: dict[int, list[_Stencil]] = {}
        self._recent: list[_Stencil] = []
        """Those that were cut last, the last one first."""
        self._size = 0
        self._made = 0
        self._learned = 0
        self._learning = threading.Lock()

    def __call__(self, text: bytes) -> bytes:
        """Raises what `make` raises."""
        (made,) = self.all_of((text,))
        return made

    def all_of(self, texts: Sequence[bytes]) -> list[bytes]:
        """What is made of each. Raises what `make` raises for one of them. At most one is learned of: that takes as long as twenty."""
        self._made += len(texts)
        known, made, learned = self._known, list[bytes](), self._learned
        for text in texts:
            for stencil in known.get(len(text), ()):
                filled = stencil.fill(text)
                if filled is not None:
                    break
            else:
                filled = self._make(text)
                if self._learned == learned:
                    self._consider(text, filled)
            made.append(filled)
        return made

    def _consider(self, text: bytes, made: bytes) -> None:
        """Learns of it, unless there was enough of that."""
        if len(text) <= LONGEST and self._learned * SELDOM <= self._made and self._learning.acquire(blocking=False):
            try:
                self._learn(text, made)
            finally:
                self._learning.release()

    def _learn(self, text: bytes, message: bytes) -> None:
        known = self._known.get(len(text), [])
        for at, one in enumerate(known):
            self._learned += 1
            variables = _variables(text, one, message) if len(one.message) == len(message) else None
            cut = variables and _cut(text, message, variables, self._make)
            if cut and cut.fill(one.text) == one.message:
                known[at] = cut
                self._recent = [cut, *(other for other in self._recent if other is not one)][:RECENT]
                return
        if len(known) < FEW and b"\n" not in text:
            self._keep(self._like_others(text, message) or _Stencil(text, message, (), ()))

    def _like_others(self, text: bytes, message: bytes) -> _Stencil | None:
        """With what is variable in a text of another length."""
        found = [one.variables_of(text) for one in self._recent if len(one.text) != len(text)]
        variables = max(found, key=len, default=[])
        if not variables:
            return None
        self._learned += 1
        return _cut(text, message, variables, self._make)

    def _keep(self, stencil: _Stencil) -> None:
        self._size += len(stencil.text) + len(stencil.message)
        if self._size > KEPT:
            self._known.clear()
            self._recent = []
            self._size = len(stencil.text) + len(stencil.message)
        self._known.setdefault(len(stencil.text), []).append(stencil)


def _variables(text: bytes, one: _Stencil, message: bytes) -> list[_Variable] | None:
    """The values in which two texts of one length differ, those that were variable before, and times; None where something else differs
    too."""
    different, other = bytearray(len(text)), one.text
    for found in _DIFFERENT.finditer(_xor(text, other)):
        different[found.start() : found.end()] = b"\1" * len(found[0])
    for variable in one.variables:
        different[variable.start] = 1
    variables: list[_Variable] = []
    for token in _TOKEN.finditer(text):
        group = 3 if token[3] is not None else 1
        start, stop = token.span(group)
        value = text[start:stop]
        if different.find(1, token.start(), token.end()) < 0 and not (
            stop - start == _TIME_LENGTH and not token[2] and _patch_of(value, message) is _seconds
        ):
            continue
        if token[2] or not value or value.translate(None, _PLAIN) or other[start:stop].translate(None, _PLAIN):
            return None
        variables.append(_Variable(start, stop, _varint if group == 3 else _patch_of(value, message)))
        different[start:stop] = bytes(stop - start)
    if any(different) or not variables or len(variables) > MOST_VARIABLES:
        return None
    return variables


def _cut(text: bytes, message: bytes, variables: list[_Variable], make: Make) -> _Stencil | None:
    """Tries where in the message the variables are found; None where that is not certain."""
    chance = random.Random(len(text))
    others: dict[bytes, int] = {}
    tried: list[bytes] = []
    at = 0
    for number, v in enumerate(variables):
        other = _other(text[v.start : v.stop], v.patch, others, chance)
        if other is None:
            return None
        others[v.patch(other)] = number
        tried += text[at : v.start], other
        at = v.stop
    try:
        changed = make(b"".join((*tried, text[at:])))
    except (ValueError, LookupError, TypeError, AttributeError):  # letters are no time of another form, for instance
        return None
    if len(changed) != len(message):
        return None
    places = [-1] * len(variables)
    for found in _DIFFERENT.finditer(_xor(changed, message)):
        number = others.pop(changed[found.start() : found.end()], -1)
        if number < 0:
            return None
        v = variables[number]
        if message[found.start() : found.end()] != v.patch(text[v.start : v.stop]):
            return None
        places[number] = found.start()
    return None if others else _Stencil(text, message, variables, places)


_TRIES = 32


def _other(value: bytes, patch: Make, taken: dict[bytes, int], chance: random.Random) -> bytes | None:
    """Something as long that differs in each byte of what the message has of it, and from all that is taken."""
    now = patch(value)
    for _ in range(_TRIES):
        if patch is _varint:
            least = 10 ** (len(value) - 1) if len(value) > 1 else 0
            other = b"%d" % chance.randrange(least, 10 ** len(value))
        elif patch is _seconds:
            other = times.from_unix(chance.randrange(1 << 29, 1 << 32), 0, micro=False).encode()
        else:
            other = "".join(chance.choices(_LETTERS, k=len(value))).encode()
        made = patch(other)
        if len(made) == len(now) and made not in taken and all(map(operator.ne, made, now)):
            return other
    return None


def _xor(a: bytes, b: bytes) -> bytes:
    """Zero where they are the same."""
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")
