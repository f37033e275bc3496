"""Find the error that Go's decoder reports for bytes that the fast decoder refused, and read the irregular text that Go accepts.

Works without recursion and mostly inside RE2, so size and depth are harmless.
Upstream: golang/go `src/encoding/json/{scanner,decode}.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import json_strings, rawjson
from kubetext import quoting, utf8

MAX_DEPTH = 10_000
"""Levels of nesting that Go's scanner accepts."""


class SyntaxProblem(ValueError):
    """The bytes are not JSON. The text is Go's."""


class TooBig(SyntaxProblem):
    """The bytes are JSON with a number beyond every float. The text is Go's."""


_LEVELS = 3
"""Levels of nesting that one match checks. RE2's program grows fourfold with each: this one has 7,000 instructions, compiled in 10 ms."""
_SPACES = rb"[ \t\r\n]*"
_INSIDE = rb'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*'
_TEXT = rb'"' + _INSIDE + rb'"'
_NUMERAL = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WORD_OR_NUMERAL = _NUMERAL + rb"|true|false|null"
_NAME = _TEXT + _SPACES + rb":" + _SPACES


def _list_of(opening: bytes, item: bytes, closing: bytes) -> bytes:
    """Return the pattern of a complete list of items, separated by commas."""
    return opening + _SPACES + rb"(?:" + item + _SPACES + rb"(?:," + _SPACES + item + _SPACES + rb")*)?" + closing


def _nested(levels: int) -> bytes:
    """Return the pattern of a value of at most this many levels."""
    scalar = _TEXT + rb"|" + _WORD_OR_NUMERAL
    if not levels:
        return rb"(?:" + scalar + rb")"
    inner = _nested(levels - 1)
    lists = _list_of(rb"\{", _NAME + inner, rb"\}") + rb"|" + _list_of(rb"\[", inner, rb"\]")
    return rb"(?:" + scalar + rb"|" + lists + rb")"


def _run(item: bytes, closing: bytes) -> Any:
    """Compile the rest of a list or object: items with a comma behind each, and the last one with the closing bracket."""
    whole = _SPACES + item + _SPACES
    return json_strings.linear(rb"(?:" + whole + rb",)*(?:" + whole + closing + rb")?")


_ELEMENTS = _run(_nested(_LEVELS), rb"\]")
_MEMBERS = _run(_NAME + _nested(_LEVELS), rb"\}")
_NEXT_NAME = _SPACES + rb'"[^"\\]*"' + _SPACES + rb":"
_DEEPER = re.compile(rb"(?:%b)?(?:%b(?:\[|\{%b)){%d}" % (_NEXT_NAME, _SPACES, _NEXT_NAME, _LEVELS + 1))
"""An item that neither pattern above matches. This one finds it sooner: RE2 takes some microseconds to begin."""
_STRING = json_strings.linear(_TEXT)
_PREFIX = json_strings.linear(_INSIDE)
_PLAIN_STRING = re.compile(rb'"[^"\\\x00-\x1f]*"')
"""Matches most strings."""
_SCALAR = re.compile(rb"(?P<number>" + _NUMERAL + rb")|true|false|null")
_COLON = re.compile(_SPACES + rb":")
_SPACE = re.compile(_SPACES)
_BRACKET = re.compile(json_strings.STRING + rb"|([\[{])|[\]}]")

_WORD_OF = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_HEX = b"0123456789abcdefABCDEF"

_IN_LITERAL = "in numeric literal"
_IN_FRACTION = "after decimal point in numeric literal"
_IN_EXPONENT = "in exponent of numeric literal"
_NEW_KEY = "looking for beginning of object key string"
_NEW_VALUE = "looking for beginning of value"


SMALL = 128 << 10
"""Documents up to this many bytes are not checked."""
MOST_MEMORY = 24 << 20
"""Bytes of memory that a decoded document may take, roughly: sixty thousand lists or objects, a hundred thousand members, or twice as many
elements. Admission holds three or four copies at a time."""
MEMORY_TO_BODY = 8
"""MOST_MEMORY to the bytes of the longest request body, 3 MiB. A server that takes longer bodies keeps the ratio."""
_BYTES_OF = {b"{": 320, b"[": 240, b",": 128, b":": 130}
_AT_ONCE = 64 << 10
"""Bytes that are counted at once: other threads wait meanwhile."""


def too_many_values() -> StatusError:
    """Return the 413 for a document whose values need more memory than one request may use, however small its text is."""
    return errors.request_entity_too_large("the body holds more values than this server decodes")


_DIGITS = re.compile(rb"(?<![0-9])[0-9]{300,}")
_STRIDE = 29
_SAMPLED = re.compile(rb"[0-9]{10,}")
"""Matches what remains of a number of 300 digits when every 29th byte is taken."""
MOST_DIGITS = 512 << 10
"""Digits in long numbers that a document may have: reading a number takes time with the square of its length."""


def check_memory(raw: bytes, *, size: int = 0, members: int = 0, elements: int = 0) -> None:
    """Raise 413 for a document of very many small values, before anything decodes it. Text that is not JSON is checked as well.

    `members` and `elements` count values that the document has besides the text, in `size` bytes.
    """
    beside = members * (_BYTES_OF[b","] + _BYTES_OF[b":"]) + elements * _BYTES_OF[b","]
    if len(raw) + size > SMALL and memory_estimate(raw) + beside > _limit.most:
        raise too_many_values()


class _Limit:
    """The memory that one document may take in this process."""

    most = MOST_MEMORY


_limit = _Limit()


def expect_bodies(size: int) -> None:
    """Set the limit for a process that takes request bodies of `size` bytes."""
    _limit.most = MEMORY_TO_BODY * size


def memory_estimate(raw: bytes) -> int:
    """Return about how many bytes of memory a document takes when decoded, or a higher estimate that is below the limit."""
    most = _limit.most
    if len(raw) > MOST_DIGITS and _digits(raw) > MOST_DIGITS and sum(map(_digits, _outside_strings(raw))) > MOST_DIGITS:
        return most + 1
    highest = _estimate(raw)
    if highest <= most:
        return highest
    found = 0
    for part in _outside_strings(raw):
        found += _estimate(part)
        if found > most:
            break
    return found


def _outside_strings(raw: bytes) -> Iterator[bytes]:
    """Yield the text without its strings, in pieces. One quotation mark stays for each string."""
    inside = 0
    escaped = b"\\" in raw
    at = 0
    while at < len(raw):
        part = raw[at : at + _AT_ONCE]
        if escaped:
            backslashes = len(part) - len(part.rstrip(b"\\"))
            if backslashes % 2 and at + len(part) < len(raw):
                part = part[:-1]  # it escapes the first byte of the next part
        at += len(part)
        if escaped:
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = part.split(b'"')
        yield b'"'.join(pieces[inside::2])
        inside ^= (len(pieces) - 1) & 1


def _digits(raw: bytes) -> int:
    """Return the number of digits in long numbers.

    Every 29th byte shows where they may be. A look at all bytes at once would hold the interpreter's lock for 40 ms.
    """
    return sum(
        len(run.group())
        for some in _SAMPLED.finditer(raw[::_STRIDE])
        for run in _DIGITS.finditer(raw, max(0, some.start() - 1) * _STRIDE, some.end() * _STRIDE)
    )


def _estimate(raw: bytes) -> int:
    return sum(raw.count(mark) * each for mark, each in _BYTES_OF.items())


def mended(raw: bytes) -> str:
    """Return valid JSON as text. U+FFFD replaces every byte that is not UTF-8 and every lone surrogate escape, as Go reads them."""
    return utf8.paired(utf8.decoded(raw))


def too_big(raw: bytes) -> TooBig | None:
    """Return Go's error for valid JSON with a number beyond every float; None if there is no such number."""
    literal = rawjson.beyond_floats(raw)
    return TooBig(f"json: cannot unmarshal number {literal} into Go value of type float64") if literal else None


def cut(raw: bytes, levels: int) -> bytes:
    """Return valid JSON in which null replaces every list and object that lies deeper than this many levels."""
    kept: list[bytes] = []
    depth, at = 0, 0
    for match in _BRACKET.finditer(json_strings.without_escaped_quotes(raw)):
        if match.lastindex:
            depth += 1
            if depth == levels + 1:
                kept.append(raw[at : match.start()])
        elif raw[match.start()] != ord('"'):
            if depth == levels + 1:
                kept.append(b"null")
                at = match.end()
            depth -= 1
    return b"".join([*kept, raw[at:]])


def check(raw: bytes) -> None:
    """Raise SyntaxProblem at the place where Go's scanner stops, if it does."""
    open_: list[bytes] = []
    at = 0
    while True:
        at, complete = _value(raw, _after(raw, at), open_)
        while complete and open_:
            at = _after(raw, at)
            char = raw[at : at + 1]
            if char == b",":
                at, complete = _next(raw, at + 1, open_)
            elif char == open_[-1]:
                open_.pop()
                at += 1
            else:
                raise _refused(raw, at, "after object key:value pair" if open_[-1] == b"}" else "after array element")
        if complete:
            at = _after(raw, at)
            if at < len(raw):
                raise _refused(raw, at, "after top-level value")
            return


def _value(raw: bytes, at: int, open_: list[bytes]) -> tuple[int, bool]:
    """Return the offset behind the value at `at`, or behind its opening bracket if the value does not end there. `open_` holds the brackets
    that will close."""
    opening = raw[at : at + 1]
    if opening == b'"':
        end = _string_end(raw, at)
        if not end:
            raise _bad_string(raw, at)
        return end, True
    if opening not in (b"{", b"["):
        scalar = _SCALAR.match(raw, at)
        if scalar is None:
            raise _bad_value(raw, at)
        if scalar.lastgroup:
            _check_number(raw, scalar.end(), scalar.group())
        return scalar.end(), True
    if len(open_) >= MAX_DEPTH:
        raise SyntaxProblem(f"invalid character '{opening.decode()}' exceeded max depth")
    closing = b"}" if opening == b"{" else b"]"
    inside = _after(raw, at + 1)
    if raw[inside : inside + 1] == closing:
        return inside + 1, True
    open_.append(closing)
    return _next(raw, at + 1, open_)


def _next(raw: bytes, at: int, open_: list[bytes]) -> tuple[int, bool]:
    """Return the offset where the next element or the value of the next member starts, or the offset behind the list or object and True.

    Skips valid items that are too shallow to exceed the depth limit.
    """
    is_object = open_[-1] == b"}"
    if len(open_) < MAX_DEPTH - _LEVELS and not _DEEPER.match(raw, at):
        run = (_MEMBERS if is_object else _ELEMENTS).match(raw, at)
        if run and run.end() > at:
            at = run.end()
            if raw[at - 1 : at] == open_[-1]:
                open_.pop()
                return at, True
    return (_name(raw, _after(raw, at)) if is_object else at), False


def _name(raw: bytes, at: int) -> int:
    """Return the offset behind the colon of the member at `at`."""
    if raw[at : at + 1] != b'"':
        raise _refused(raw, at, _NEW_KEY)
    end = _string_end(raw, at)
    if not end:
        raise _bad_string(raw, at)
    colon = _COLON.match(raw, end)
    if colon is None:
        raise _refused(raw, _after(raw, end), "after object key")
    return colon.end()


def _string_end(raw: bytes, at: int) -> int:
    """Return the offset behind the string at `at`; 0 if the string is invalid."""
    string = _PLAIN_STRING.match(raw, at) or _STRING.match(raw, at)
    return string.end() if string else 0


def _after(raw: bytes, at: int) -> int:
    """Return the offset of the next byte that is not white space."""
    match = _SPACE.match(raw, at)
    return match.end() if match else at


def _refused(raw: bytes, at: int, where: str) -> SyntaxProblem:
    """Return the error at `at`. Behind the end of the text Go reads a blank, which is an error only where no blank may stand."""
    if at >= len(raw):
        return SyntaxProblem("unexpected end of JSON input")
    return SyntaxProblem(f"invalid character {_quoted(raw[at])} {where}")


def _inside(raw: bytes, at: int, where: str) -> SyntaxProblem:
    """Return an error inside a token, where the blank behind the end counts as a wrong character."""
    return SyntaxProblem(f"invalid character {_quoted(raw[at]) if at < len(raw) else _quoted(32)} {where}")


def _quoted(byte: int) -> str:
    if byte == ord("'"):
        return r"'\''"
    if byte == ord('"'):
        return "'\"'"
    return f"'{quoting.go_quote(chr(byte))[1:-1]}'"


def _bad_value(raw: bytes, at: int) -> SyntaxProblem:
    first = raw[at] if at < len(raw) else 0
    if first == ord('"'):
        return _bad_string(raw, at)
    if first == ord("-"):
        return _inside(raw, at + 1, _IN_LITERAL)
    word = _WORD_OF.get(first)
    if word is None:
        return _refused(raw, at, _NEW_VALUE)
    wrong = next(i for i in range(1, len(word)) if raw[at + i : at + i + 1] != word[i : i + 1])
    return _inside(raw, at + wrong, f"in literal {word.decode()} (expecting '{chr(word[wrong])}')")


def _bad_string(raw: bytes, at: int) -> SyntaxProblem:
    """Return the error of the string at `at`, which does not end correctly."""
    match = _PREFIX.match(raw, at + 1)
    at = match.end() if match else at + 1
    if raw[at : at + 1] != b"\\":
        return _refused(raw, at, "in string literal")
    if raw[at + 1 : at + 2] != b"u":
        return _inside(raw, at + 1, "in string escape code")
    wrong = next(i for i in range(at + 2, at + 6) if raw[i : i + 1] not in _HEX or i >= len(raw))
    return _inside(raw, wrong, "in \\u hexadecimal character escape")


def _check_number(raw: bytes, at: int, found: bytes) -> None:
    """Raise SyntaxProblem if the bytes behind a number look like its continuation and are not."""
    if raw[at : at + 1] not in (b".", b"e", b"E"):
        return
    has_exponent = b"e" in found or b"E" in found
    if raw[at : at + 1] == b".":
        if b"." not in found and not has_exponent:
            raise _inside(raw, at + 1, _IN_FRACTION)
        return
    if has_exponent:
        return
    at += 1
    if raw[at : at + 1] in (b"+", b"-"):
        at += 1
    raise _inside(raw, at, _IN_EXPONENT)
