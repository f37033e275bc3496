"""Decide which work leaves the event loop. A call with a large input runs in a thread; one with a small input runs at once.

Each kind of work is one `Work` below, with the time that an input of its limit takes (CPython 3.11, one core of a cloud machine). The
limits keep one piece of work on the event loop to about 5 ms, a quarter of the budget of a step (`serving/steps.py`): a core may be
slower, and a step may hold several pieces.

Three limits have another place, because pure packages apply them or because they do not count bytes:
`apimachinery/selectors.py` (`AT_ONCE`), the forms of answers (`wire/forms`, `reach`), and `verbs/lifecycle.py` (`MANY_OWNERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, TypeVar

from apiserver.runtime.workers import AUDIT, BODIES, EXPRESSIONS, OWNERS, POLICIES, RENDERING, Workers

P = ParamSpec("P")
T = TypeVar("T")


class Work(NamedTuple):
    """One kind of work. An input of more than `limit` bytes goes to a thread of `pool`.

    `refuses`: a full pool raises Busy, and the client gets 429. Other work waits for a thread: the limit of requests in flight bounds it.
    """

    limit: int
    pool: Workers
    refuses: bool = False

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Call in a thread, whatever the size. Raises Busy if this work `refuses`."""
        run = self.pool.run if self.refuses else self.pool.run_patiently
        return run(call, *args, **kwargs)


DECODE = Work(64 << 10, BODIES, refuses=True)
"""Decode a JSON body that is in order: 3.2 ms for a ResourceSlice."""
DECODE_PROTOBUF = Work(8 << 10, BODIES, refuses=True)
"""Decode a protobuf body: 1.7 ms for full devices, 5.3 ms for the worst message, which has a value in every few bytes."""
DECODE_SLOWLY = Work(1 << 10, BODIES, refuses=True)
"""Decode YAML, or JSON with an error or a suspicious member: 1.0 ms, twenty times as long as JSON that is in order."""
PATCH = Work(16 << 10, BODIES, refuses=True)
"""Apply a patch. The size is that of the patch and of the object together. It decodes, encodes and checks both."""
DENSE_PATCH = Work(6 << 10, BODIES, refuses=True)
"""Apply a patch. The size is that of the patch alone: it may hold a value in every two bytes, and each is merged, checked and reported."""
CHANGE = Work(16 << 10, BODIES)
"""Work on an object on its way to the store: 0.3 ms to find its managers, 1.1 ms to prepare and check it, 0.2 ms to encode it. Admission
plugins see it in other forms, which takes as long again."""
CHECK_UPDATE = Work(2 * CHANGE.limit, BODIES)
"""Prepare and check an update. The size is that of both objects, and each may have the limit of CHANGE."""
READ_STORED = Work(64 << 10, BODIES)
"""Decode a stored object, or compare two: 0.9 and 0.4 ms. A stored object is in order."""
RECORD = Work(64 << 10, BODIES)
"""Write an object or a patch for the audit log: 0.7 ms."""
WRITE_EVENTS = Work(8 << 10, AUDIT)
"""Write events of the audit log. The size is that of their texts."""
EVALUATE = Work(32 << 10, POLICIES)
"""Evaluate expressions of admission policies. No single function of the language takes long with an object and parameters of this size
together; between functions the evaluation watches the clock."""
READ_REVIEW = Work(4 << 10, BODIES)
"""Decode a webhook's answer, or its patch. An error is found byte by byte, in a hundred times the time of JSON that is in order."""
CONVERT = Work(8 << 10, BODIES)
"""Make objects of a conversion webhook's answer. The size is that of the larger of both: it is decoded, checked, pruned and encoded."""
SHARD_SELECTOR = Work(256, EXPRESSIONS, refuses=True)
"""Parse a shard selector. The size is in characters: 256 take some milliseconds, whatever they say."""
COMPRESS = Work(128 << 10, RENDERING)
"""Compress events of a watch: 128 KiB take 1 ms."""
READ_OWNERS = Work(64 << 10, OWNERS)
"""Read the owners of a stored object: 20,000 owners take 15 ms."""
FREE = Work(16 << 10, RENDERING)
"""Free what was made of a body or of an object."""


async def run_sized(work: Work, size: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `call` returns, or raise what it raises. It runs in a thread if `size` is above the limit of this work.

    `size` is the size of the input, in bytes unless the work says otherwise. Work that `refuses` raises Busy.
    """
    return call(*args, **kwargs) if size <= work.limit else await work.run(call, *args, **kwargs)


def free(held: list[Any]) -> None:
    """Empty this list in a thread. The caller must have no other reference to what it holds.

    To free the values of a large object may take as long as a step of the event loop may. In a thread it is not added to the step that
    also answers the request. The event loop still waits for it: Python frees a value in one go, without letting other threads run.
    Measured: 100,000 small dicts take 12 ms. To take them apart piece by piece, so that other threads run meanwhile, takes 59 ms.
    """
    if held:
        FREE.pool.submit(held.clear)
