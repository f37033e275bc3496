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
"""What has pages of its own. Pieces of lists are smaller: pages that come and go with each of them would cost more than they do."""
SPARE_BYTES = 16 << 20
"""What stays at the end of the heap for the next one who asks."""


def give_back() -> None:
    """For a process that serves. Another C library has its own ways."""
    mallopt = getattr(_C, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, SPARE_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def trim() -> None:
    """Gives back what is free between things that stay, which glibc does by itself only at the heap's end. Some milliseconds, in which
    whoever needs memory waits: for a thread, and seldom."""
    malloc_trim = getattr(_C, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
