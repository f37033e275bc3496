"""Hands of queues, and the seats that levels get, are those of kube-apiserver."""

from __future__ import annotations

import json
import pathlib

import pytest

from apiserver.flowcontrol import allocation, shufflesharding
from apiserver.flowcontrol.allocation import Claim, Impossible

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize(
    ("schema", "distinguisher", "queues", "hand"),
    [
        ("global-default", "jane", 128, [24, 0, 86, 104, 74, 31]),
        ("global-default", "jane", 64, [24, 43, 60, 49, 28, 55]),
        ("global-default", "jane", 16, [8, 1, 0, 14]),
        ("global-default", "jane", 512, [280, 185, 273, 265]),
        ("service-accounts", "system:serviceaccount:a:b", 128, [55, 113, 71, 36, 27, 19]),
        ("service-accounts", "system:serviceaccount:a:b", 16, [7, 11, 8, 0]),
        ("x", "", 128, [20, 46, 44, 106, 87, 108]),
        ("x", "", 512, [20, 8, 292, 158]),
    ],
)
def test_flow_gets_the_queues_that_upstream_deals(
    schema: str, distinguisher: str, queues: int, hand: list[int]
) -> None:
    value = shufflesharding.flow_hash(schema, distinguisher)
    assert list(shufflesharding.deal(value, queues, len(hand))) == hand


@pytest.mark.parametrize(
    ("queues", "hand", "expected"),
    [
        (64, 6, ""),
        (1, 1, ""),
        (0, 1, "deckSize 0 or handSize 1 is not positive"),
        (4, 5, "handSize 5 is greater than deckSize 4"),
        (1 << 27, 1, "deckSize 134217728 is impractically large"),
        (1024, 7, "required entropy bits of deckSize 1024 and handSize 7 is greater than 60"),
    ],
)
def test_queues_that_cannot_be_dealt_are_an_error(queues: int, hand: int, expected: str) -> None:
    assert shufflesharding.error(queues, hand) == expected


def test_seats_are_divided_as_upstream_divides_them() -> None:
    cases = [json.loads(line) for line in (HERE / "go_allocations.jsonl").read_text().splitlines()]
    assert len(cases) > 50
    for case in cases:
        claims = [Claim(*item) for item in case["items"]]
        if case["seats"] is None:
            with pytest.raises(Impossible):
                allocation.divide(case["sum"], claims)
            continue
        seats, share = allocation.divide(case["sum"], claims)
        assert seats == pytest.approx(case["seats"])
        assert share == pytest.approx(case["share"])


def test_contradicting_bounds_are_impossible() -> None:
    with pytest.raises(Impossible):
        allocation.divide(3, [Claim(1, 2, 1)])
