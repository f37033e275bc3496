"""The grammar of storage keys and of revisions."""

from __future__ import annotations

from apiserver.watchcache.entry import Key, Revision

N_BITS = 16
"""A revision is `epoch << N_BITS | n`, below 2^63 until 2093: continue tokens hold signed 64 bits."""
_N = (1 << N_BITS) - 1
_EPOCH_ZERO_MS = 1_735_689_600_000


def key(namespace: str, name: str) -> Key:
    """The storage key of an object; both parts must have been checked to be path segments."""
    return Key(f"{namespace}/{name}" if namespace else name)


def revision(stream_id: bytes | str) -> Revision:
    """`epoch-n` as the resourceVersion that clients see."""
    # int() reads bytes as well: decoding first would double the cost of something done several times per entry.
    epoch, n = stream_id.split(b"-") if isinstance(stream_id, bytes) else stream_id.split("-")
    return Revision(int(epoch) << N_BITS | int(n))


def stream_id(rev: int) -> str:
    """The stream ID of a revision."""
    return f"{rev >> N_BITS}-{rev & _N}"


def parts(rev: int) -> tuple[int, int]:
    """(epoch, n): apart, because a double cannot hold them together."""
    return rev >> N_BITS, rev & _N


def epoch_at(ms: int) -> int:
    """The epoch that begins at this time (ms since 1970): 65536 to the second, from 2025 on, as in `functions.lua`."""
    return (ms - _EPOCH_ZERO_MS) * 65536 // 1000
