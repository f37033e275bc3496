"""Encode many similar texts fast, by copy and patch: the objects of a fleet differ in a few values of the same length.

    text       {"metadata":{"name":"│s000017│","creationTimestamp":"│2026-06-01T12:00:00Z│"},"spec":{…
    template   constant            │variable│ constant …    the same parts, at the places where the message has them
    message    …                   s000017  …               the varint of its seconds

How a template is made: two texts of one length have the same tokens. The values in which they differ become variables, and so do times. A
trial finds where and in which form the message has them: a third text, with another value in each of these places, is encoded the slow way.

A later text fits a template when everything else is equal byte for byte. A text of another length with the same constants has the same
variables, and gets a template of its own.

The result is exact. In a message, a string, a number or a time determines only its own bytes, and their length stays the same. Keys decide
the order of fields, so they are never variables. A text that fits no template is encoded the slow way.
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
"""Bytes of a text above which no template is made of it: making one is a single step of the event loop."""
KEPT = 512 << 10
"""Bytes of texts and messages that are kept for one shape; their templates take as many again."""
MOST_VARIABLES = 128
FEW = 4
"""Templates for texts of one length."""
SELDOM = 8
"""At most one of this many texts may become a template, so texts that resemble no others cost little."""
RECENT = 4
"""Templates with which texts of other lengths are compared."""

_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|(?<![\w.+-])(0|[1-9]\d{0,17})(?![\w.+-])', re.DOTALL)
"""A string, and whether it is a key; or a whole number that is not negative."""
_STRING, _NUMBER = re.compile(rb"[ !#-\[\]-~]+"), re.compile(rb"\d+")
"""Values that may replace a variable."""
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TIME_LENGTH = 20
_DIFFERENT = re.compile(rb"[^\0]+")
_PLAIN = bytes(c for c in range(0x20, 0x7F) if c not in b'"\\')
"""Characters that stand for themselves in JSON and are one byte long."""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Make = Callable[[bytes], bytes]


class _Variable(NamedTuple):
    """A place of a text. Its value must pass `fits`; `patch` returns the bytes that the message has for it."""

    start: int
    stop: int
    patch: Make


def _same(text: bytes) -> bytes:
    return text


def _patch_of(value: bytes, message: bytes) -> Make:
    """Return how the message has a string: as seconds if it looks like a time and the message has its seconds, otherwise as it is."""
    try:
        seconds = _seconds(value)
    except ValueError:
        return _same
    return _seconds if seconds in message else _same


@functools.lru_cache(maxsize=1024)
def _seconds(text: bytes) -> bytes:
    """Return the varint of a time. Raises ValueError for text that is not a time, and for year 1, because Go's zero time is absent."""
    if not _TIME.fullmatch(text) or text.startswith(b"0001-"):
        raise ValueError(text)
    return protowire.varint(times.unix(text.decode())[0])


@functools.lru_cache(maxsize=1024)
def _varint(text: bytes) -> bytes:
    found = _TOKEN.fullmatch(text)
    if found is None or found[3] is None:
        raise ValueError(text)
    return protowire.varint(int(text))


class _Template:
    """A template, made of `text` and its `message`."""

    __slots__ = (
        "_constants", "_order", "_parts", "_patched", "_template", "message", "text", "variables"
    )  # fmt: skip

    def __init__(self, text: bytes, message: bytes, variables: Sequence[_Variable], places: Sequence[int]) -> None:
        """`variables` are in the order of the text; `places` are their offsets in the message."""
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
        """Return the same variables in a text of another length; an empty list if it has other constants."""
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
        """Return the message of a text of the same length; None if the text does not fit."""
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


class Templates:
    """Return the same as `make`, faster where many texts are alike.

    `make` must encode strings, whole numbers and times independently, at a place that depends on no value. It must encode raw JSON as its
    text.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._known: dict[int, list[_Template]] = {}
        self._recent: list[_Template] = []
        """The latest templates, newest first."""
        self._size = 0
        self._made = 0
        self._learned = 0
        self._learning = threading.Lock()

    def __call__(self, text: bytes) -> bytes:
        """Return the message of a text. Raises the errors of `make`."""
        (made,) = self.all_of((text,))
        return made

    def all_of(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return the message of each text. Raises the errors of `make`. At most one text becomes a template, because that takes as long as
        twenty messages."""
        self._made += len(texts)
        known, made, learned = self._known, list[bytes](), self._learned
        for text in texts:
            for template in known.get(len(text), ()):
                filled = template.fill(text)
                if filled is not None:
                    break
            else:
                filled = self._make(text)
                if self._learned == learned:
                    self._consider(text, filled)
            made.append(filled)
        return made

    def _consider(self, text: bytes, made: bytes) -> None:
        """Make a template of a text, unless enough were made."""
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
            self._keep(self._like_others(text, message) or _Template(text, message, (), ()))

    def _like_others(self, text: bytes, message: bytes) -> _Template | None:
        """Make a template with the variables of a text of another length."""
        found = [one.variables_of(text) for one in self._recent if len(one.text) != len(text)]
        variables = max(found, key=len, default=[])
        if not variables:
            return None
        self._learned += 1
        return _cut(text, message, variables, self._make)

    def _keep(self, template: _Template) -> None:
        self._size += len(template.text) + len(template.message)
        if self._size > KEPT:
            self._known.clear()
            self._recent = []
            self._size = len(template.text) + len(template.message)
        self._known.setdefault(len(template.text), []).append(template)


def _variables(text: bytes, one: _Template, message: bytes) -> list[_Variable] | None:
    """Return the values in which two texts of one length differ, those that were variables before, and times; None if anything else
    differs."""
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


def _cut(text: bytes, message: bytes, variables: list[_Variable], make: Make) -> _Template | None:
    """Find by trial where the message has the variables; None if that is not certain."""
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
    return None if others else _Template(text, message, variables, places)


_TRIES = 32


def _other(value: bytes, patch: Make, taken: dict[bytes, int], chance: random.Random) -> bytes | None:
    """Return another value of the same length. Its message differs from that of `value` in each byte, and from all that are taken."""
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
    """Return the bytes xor each other: zero where they are equal."""
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")
