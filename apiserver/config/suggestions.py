"""Suggest the name that a user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 64
"""Characters of a name that are compared; no flag is longer. The time grows with the square of this number."""
SIMILARITY = 0.6


def meant(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar, "" if none is similar."""
    found = difflib.get_close_matches(name[:LONGEST], [*known], n=1, cutoff=SIMILARITY)
    return found[0] if found else ""


def question(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: a question, or ""."""
    found = meant(name, known)
    return f": did you mean {found}?" if found else ""
