"""Maps as long as a request may bring, in whatever order: nothing that is made of them lets other threads wait for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical
from structuredmerge import values
from tests.fixtures import steps
from tests.fixtures.calls import Longest
from tests.unit.codecs.protobuf.test_protobuf_bounds import CALL_SECONDS, TIMES

SHAPES = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES)}
MANY = 20_000
_ORDERED = sorted(f"example.com/k{i}" for i in range(MANY))

ORDERS: dict[str, Sequence[str]] = {
    "backwards": _ORDERED[::-1],
    "sorted, but for the last": [*_ORDERED, "a"],
    "up and down again": [*_ORDERED[::2], *_ORDERED[:0:-2]],
}


def annotated(members: dict[str, str]) -> bytes:
    obj = {"metadata": {"name": "a", "annotations": members}, "spec": {}}
    return canonical.encode(SHAPES["ResourceClaim"], obj)


WORK: dict[str, Callable[[dict[str, str]], Any]] = {
    "annotations as they are stored": annotated,
    "raw JSON made of values": rawjson.made,
    "a comparison": lambda members: values.equal(members, dict(reversed(members.items()))),
    "a key": values.key,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("work", WORK)
def test_no_order_of_its_members_makes_a_map_hold_the_interpreter(work: str, order: str) -> None:
    members, longest = dict.fromkeys(ORDERS[order], "v"), Longest()
    with longest:
        WORK[work](members)
    assert longest.seconds <= CALL_SECONDS * TIMES * steps.slowness(), longest.where


@pytest.mark.parametrize("order", ORDERS)
def test_long_maps_are_written_in_order(order: str) -> None:
    members = dict.fromkeys(ORDERS[order], "v")
    stored = msgspec.json.decode(annotated(members))["metadata"]["annotations"]
    assert list(stored) == list(msgspec.json.decode(bytes(rawjson.made(members)))) == sorted(members)
