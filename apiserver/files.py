"""Notice changes of files that an operator replaces while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

State = tuple[int, int, int]
"""Modification time, size and inode of a file."""
ABSENT: State = (0, 0, 0)
Look = TypeVar("Look")


def state(path: Path) -> State:
    """Return the state of a file, or of the target of a link; ABSENT for none."""
    try:
        found = path.stat()
    except OSError:
        return ABSENT
    return found.st_mtime_ns, found.st_size, found.st_ino


async def changes(look: Callable[[], Look], known: Look, seconds: float) -> AsyncIterator[Look]:
    """Yield each state that differs from the former one once two looks in a row find it, so that no half-written file counts.

    `look` runs in a thread, with a pause of `seconds` between two looks. `known` is the first state.
    """
    seen = known
    while True:
        await asyncio.sleep(seconds)
        before, seen = seen, await asyncio.to_thread(look)
        if seen == before and seen != known:
            known = seen
            yield seen
