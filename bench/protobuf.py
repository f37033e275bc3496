"""`python -m bench.protobuf`: messages alone: to make one of the stored JSON of a slice, and to make an object of one.

CPU of this process per operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from apiserver.codecs.objects import canonical, decoding
from apiserver.codecs.protobuf import messages as protobuf
from apiserver.resources.resourceslice import RESOURCE
from bench.accounting import operation_line
from bench.workloads import slice_body

FLEET = 1000
"""Slices that are read and written in turn: each with names and serial numbers of its own, all of the same make."""


def stored(number: int) -> bytes:
    """A slice as memory holds it."""
    document = canonical.decode(RESOURCE.shape, slice_body(RESOURCE.group, f"s{number:06}", f"node-{number:06}"))
    given = {name: document[name] for name in ("metadata", "spec")}
    given["metadata"] |= {
        "uid": f"5f3c1f1e-0000-4000-8000-{number:012}",
        "resourceVersion": str(1 << 46 | number),
        "generation": 1,
        "creationTimestamp": "2026-06-01T12:00:00Z",
    }
    return canonical.encode_served(RESOURCE.shape, decoding.decode(RESOURCE.shape, given).object)


def lines() -> Iterator[str]:
    """Measure each operation and yield a line for it."""
    shape = RESOURCE.shape
    slices = [stored(number) for number in range(FLEET)]
    messages = [protobuf.encode(shape, canonical.decode(shape, text)) for text in slices]
    next_slice, next_message = itertools.cycle(slices).__next__, itertools.cycle(messages).__next__
    yield operation_line(
        f"protobuf: a message of {len(slices[0])} bytes of JSON",
        lambda: protobuf.encode(shape, canonical.decode(shape, next_slice())),
    )
    yield operation_line("protobuf: the same where others are alike", lambda: protobuf.of_stored(shape, next_slice()))
    yield operation_line(
        f"protobuf: an object of {len(messages[0])} bytes", lambda: protobuf.decode(shape, next_message())
    )


def main() -> None:
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
