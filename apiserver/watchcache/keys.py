"""The grammar of storage keys and of revisions."""

from __future__ import annotations

from apiserver.watchcache.entry import Key, Revision

EPOCH_BITS = 32
_N = (1 << EPOCH_BITS) - 1


def key(namespace: str, name: str) -> Key:
    """The storage key of an object; both parts must have been checked to be path segments."""
    return Key(f"{namespace}/{name}" if namespace else name)


def revision(stream_id: bytes | str) -> Revision:
    """`epoch-n` as the resourceVersion that clients see."""
    # int() reads bytes as well: decoding first would double the cost of something done several times per entry.
    epoch, n = stream_id.split(b"-") if isinstance(stream_id, bytes) else stream_id.split("-")
    return Revision(int(epoch) << EPOCH_BITS | int(n))


def stream_id(rev: int) -> str:
    """The stream ID of a revision."""
    return f"{rev >> EPOCH_BITS}-{rev & _N}"


def parts(rev: int) -> tuple[int, int]:
    """(epoch, n): apart, because a double cannot hold them together."""
    return rev >> EPOCH_BITS, rev & _N
