"""Texts that match a regular expression."""

from __future__ import annotations

import random
import re
import string
from typing import Any

_PRINTABLE = list(map(chr, range(32, 127)))
_CLASSES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": string.ascii_letters + string.digits + "_",
    "CATEGORY_SPACE": " ",
}
_MOST = 3
"""Repetitions above the least number."""


def matching(pattern: str, draw: random.Random) -> str | None:
    """Return a text that the pattern matches, None if none was found. `pattern` is one of Go's."""
    try:
        compiled = re.compile(_translated(pattern))
        tree = re._parser.parse(_translated(pattern))  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError):
        return None
    for _ in range(20):
        text = _sequence(tree, draw, {})
        if compiled.search(text):
            return text
    return None


def fits(pattern: str, text: str) -> bool:
    """Whether the pattern matches a part of the text. A pattern that Python cannot read matches nothing."""
    try:
        return re.search(_translated(pattern), text) is not None
    except (re.error, OverflowError, RecursionError):
        return False


def _translated(pattern: str) -> str:
    """Return the pattern as Python reads it. The end of a text is the end of a line in Python."""
    for posix, members in (("[:alnum:]", "a-zA-Z0-9"), ("[:alpha:]", "a-zA-Z"), ("[:digit:]", "0-9")):
        pattern = pattern.replace(posix, members)
    return pattern.replace(r"\z", r"\Z")


def _sequence(tree: Any, draw: random.Random, groups: dict[int, str]) -> str:
    return "".join(_one(str(code), argument, draw, groups) for code, argument in tree)


def _one(code: str, argument: Any, draw: random.Random, groups: dict[int, str]) -> str:
    match code:
        case "LITERAL":
            return chr(argument)
        case "NOT_LITERAL":
            return draw.choice([character for character in "aZ0" if ord(character) != argument])
        case "ANY":
            return draw.choice("abz09-")
        case "IN":
            return _member(argument, draw)
        case "BRANCH":
            return _sequence(draw.choice(argument[1]), draw, groups)
        case "SUBPATTERN":
            text = _sequence(argument[3], draw, groups)
            if argument[0] is not None:
                groups[argument[0]] = text
            return text
        case "GROUPREF":
            return groups.get(argument, "")
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, repeated = argument
            count = draw.randint(least, min(int(most), least + _MOST))
            return "".join(_sequence(repeated, draw, groups) for _ in range(count))
    return ""  # anchors


def _member(items: Any, draw: random.Random) -> str:
    members: list[str] = []
    negated = False
    for code, argument in items:
        match str(code):
            case "NEGATE":
                negated = True
            case "LITERAL":
                members.append(chr(argument))
            case "RANGE":
                low, high = argument
                members += [chr(low), chr(high), chr(draw.randint(low, high))]
            case "CATEGORY":
                members += _CLASSES.get(str(argument), "-")
    if negated:
        members = [character for character in _PRINTABLE if character not in _whole(items)]
    return draw.choice(members) if members else ""


def _whole(items: Any) -> set[str]:
    found = set[str]()
    for code, argument in items:
        match str(code):
            case "LITERAL":
                found.add(chr(argument))
            case "RANGE":
                found |= {chr(number) for number in range(argument[0], min(argument[1], 0x250) + 1)}
            case "CATEGORY":
                found |= set(_CLASSES.get(str(argument), ""))
    return found
