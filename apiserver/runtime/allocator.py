"""How the C library gives memory back. Knows nothing of what is kept in it.

glibc moves its own bounds up to the largest buffer that was ever freed: from then on buffers of a mebibyte, which a client may make us
take, lie among everything else, and what is free between small things that stay is never given back. With bounds that stand, whatever is
large has pages of its own, which go when it is freed. And each thread would get a heap of its own, though the interpreter lets one at
a time allocate: what one thread has freed could not serve another.
glibc: `malloc/malloc.c` (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX).
"""

from __future__ import annotations

import ctypes

_C = ctypes.CDLL(None)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 1 << 20
"""Blocks from this size on get pages of their own. Pieces of lists are smaller: to map and unmap pages for each would cost more."""
SPARE_BYTES = 16 << 20
"""Free bytes that stay at the end of the heap for the next allocation."""


def give_back() -> None:
    """For a process that serves. Another C library has its own ways."""
    mallopt = getattr(_C, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, SPARE_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Return free memory between live objects to the system. glibc does this by itself only at the end of the heap.

    It takes some milliseconds, and every allocation waits meanwhile. Call it in a thread, and seldom."""
    malloc_trim = getattr(_C, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
