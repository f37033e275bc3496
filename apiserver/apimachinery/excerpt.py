"""Texts that repeat what a client sent, cut to what an answer has room for.

Room is counted in bytes of the longest form in which a text may be sent: JSON with everything escaped that can be, or YAML with an
indented line per line.
"""

from __future__ import annotations

import json

_LONGEST = 12
"""Bytes that one character can take: a surrogate pair, escaped."""
_STEP = 1024


def cost(text: str) -> int:
    """Bytes that the text may take in an answer, without quotes."""
    html = text.count("<") + text.count(">") + text.count("&")
    return len(json.dumps(text)) - 2 + 5 * html + 6 * text.count("\n")


def cut(text: str, room: int) -> str:
    """The text, or as much of its beginning as fits and how many characters are missing. Time is bounded by the room."""
    if len(text) * _LONGEST <= room:
        return text
    end = used = 0
    while end < len(text):
        used += cost(text[end : end + _STEP])
        if used > room:
            return f"{text[:end]}… {len(text) - end} more characters"
        end += _STEP
    return text
