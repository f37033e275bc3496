"""Cut texts from a client's request to the limit of an answer.

The limit counts the bytes of the longest form in which a text may be sent: JSON with everything escaped that can be, or YAML with one
indented line per line.
"""

from __future__ import annotations

import json

_LONGEST = 12
"""Bytes that one character can take: a surrogate pair, escaped."""
_STEP = 1024


def cost(text: str) -> int:
    """Return the bytes that the text may take in an answer, without quotes."""
    html = text.count("<") + text.count(">") + text.count("&")
    return len(json.dumps(text)) - 2 + 5 * html + 6 * text.count("\n")


def cut(text: str, limit: int) -> str:
    """Return the text, or the beginning that fits and the number of missing characters. The limit bounds the time."""
    if len(text) * _LONGEST <= limit:
        return text
    end = used = 0
    while end < len(text):
        used += cost(text[end : end + _STEP])
        if used > limit:
            return f"{text[:end]}… {len(text) - end} more characters"
        end += _STEP
    return text
