"""The grammar of storage keys and of revisions."""

from __future__ import annotations

from apiserver.watchcache.entry import Key, Revision

SMALL_N_BITS = 12
LARGE_N_BITS = 16
SMALL_EPOCHS = 1 << 41
"""Epochs below this one have n of SMALL_N_BITS, so their revisions are below 2^53 and exact as doubles. A store of schema 2 counts its
epochs in 1024ths of a second since 2026, and reaches this limit in 2094. A store of schema 1 counts 65536ths since 2025, and has been
above the limit since 24 January 2026. So an epoch or a revision says by itself in which form it is.
"""
EXACT_DOUBLES = SMALL_EPOCHS << SMALL_N_BITS
"""2^53: revisions below it are exact as doubles, which is how JavaScript reads them."""
_SMALL_N = (1 << SMALL_N_BITS) - 1
_LARGE_N = (1 << LARGE_N_BITS) - 1
_SMALL_ZERO_MS = 1_767_225_600_000
_LARGE_ZERO_MS = 1_735_689_600_000


def key(namespace: str, name: str) -> Key:
    """The storage key of an object; both parts must have been checked to be path segments."""
    return Key(f"{namespace}/{name}" if namespace else name)


def revision(stream_id: bytes | str) -> Revision:
    """`epoch-n` as the resourceVersion that clients see: `epoch << 12 | n`, or `epoch << 16 | n` from SMALL_EPOCHS on."""
    # int() reads bytes as well: decoding first would double the cost of something done several times per entry.
    first, second = stream_id.split(b"-") if isinstance(stream_id, bytes) else stream_id.split("-")
    epoch, n = int(first), int(second)
    # Only another program makes a small epoch with a large n; its entry must still lie above the log's own.
    if epoch < SMALL_EPOCHS and n <= _SMALL_N:
        return Revision(epoch << SMALL_N_BITS | n)
    return Revision(epoch << LARGE_N_BITS | n)


def stream_id(rev: int) -> str:
    """The stream ID of a revision."""
    epoch, n = parts(rev)
    return f"{epoch}-{n}"


def parts(rev: int) -> tuple[int, int]:
    """(epoch, n)."""
    if rev < EXACT_DOUBLES:
        return rev >> SMALL_N_BITS, rev & _SMALL_N
    return rev >> LARGE_N_BITS, rev & _LARGE_N


def epoch_at(ms: int, *, like: int) -> int:
    """The epoch that begins at this time (ms since 1970), in the form of the epoch `like`. The same as in `functions.lua`."""
    if like < SMALL_EPOCHS:
        return (ms - _SMALL_ZERO_MS) * 1024 // 1000
    return (ms - _LARGE_ZERO_MS) * 65536 // 1000


def alike(one: int, other: int) -> bool:
    """Whether two epochs have the same form. A log keeps its form, so epochs of different forms belong to different stores."""
    return (one < SMALL_EPOCHS) is (other < SMALL_EPOCHS)
