"""The release of the kube-apiserver in front: which answers count, and when a change does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release
from apiserver.cluster.client import Client
from apiserver.cluster.errors import Unreadable
from apiserver.cluster.front import AGREEING, BRIEF_SECONDS, CALM_SECONDS, DOUBTS, JITTER, PATH, Front, released
from tests.unit.cluster.plane import Clock, Plane, answer, reset, status, until

OLD, NEW = answer({"major": "1", "minor": "36"}), answer({"major": "1", "minor": "37"})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"major": "1", "minor": "37", "gitVersion": "v1.37.2"}, Release(1, 37)),
        ({"major": "1", "minor": "36+", "gitVersion": "v1.36.3-gke.100"}, Release(1, 36)),
        ({"major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "36"}, Release(1, 36)),
    ],
)
def test_release_is_the_emulated_one_where_it_is_named(document: dict[str, Any], expected: Release) -> None:
    assert released(document) == expected


@pytest.mark.parametrize(
    "document",
    [{}, {"major": "1"}, {"major": 1, "minor": 37}, {"major": "1", "minor": "9" * 40}, {"major": "1", "minor": "x"}],
)
def test_document_without_a_release_is_unreadable(document: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        released(document)


@pytest.mark.parametrize(("minor", "expected"), [("20", V1_36), ("36", V1_36), ("37", V1_37), ("99", NEWEST)])
async def test_first_answer_gives_the_nearest_supported_release(
    plane: Plane, client: Client, minor: str, expected: Release
) -> None:
    plane.on(PATH, status(500, "starting"), answer({"major": "1", "minor": minor}))
    front = Front(client)
    await front.ask()
    assert not front.ready.is_set()
    assert front.problem
    await front.ask()
    assert (front.release, front.ready.is_set(), front.problem) == (expected, True, "")


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
async def test_change_counts_after_equal_answers_in_a_row(
    plane: Plane, client: Client, before: Any, after: Any
) -> None:
    front = Front(client)
    mixed = [*[after] * (AGREEING - 1), before] * 3
    plane.on(PATH, before, *mixed, *[after] * AGREEING)
    await front.ask()
    first = front.release
    assert first is not None
    waiting = asyncio.ensure_future(front.other_than(first))
    for _ in range(len(mixed) + AGREEING - 1):
        await front.ask()
        assert front.release == first
    await front.ask()
    assert await waiting == front.release != first


async def test_failed_questions_change_nothing(plane: Plane, client: Client) -> None:
    front = Front(client)
    plane.on(PATH, OLD, *[status(403, "no")] * 20, reset, answer(b"junk"), OLD)
    for _ in range(24):
        await front.ask()
    assert front.release == V1_36
    assert front.ready.is_set()


async def test_refusals_in_a_row_end_the_wait_without_a_release(plane: Plane, client: Client) -> None:
    front = Front(client)
    plane.on(PATH, status(403, "no"), status(500, "starting"), *[status(403, "no")] * DOUBTS, OLD)
    for _ in range(DOUBTS + 1):
        await front.ask()
        assert not front.ready.is_set()
    await front.ask()
    assert (front.ready.is_set(), front.release) == (True, None)
    await front.ask()
    assert front.release == V1_36


async def test_questions_are_calm_and_closer_while_a_change_is_in_doubt(
    plane: Plane, client: Client, clock: Clock
) -> None:
    front = Front(client)
    plane.on(PATH, OLD, OLD, *[NEW] * AGREEING)
    asking = asyncio.create_task(front.run())
    await front.other_than(V1_36)
    await until(lambda: len(clock.slept) == AGREEING + 2)
    asking.cancel()
    calm, brief = CALM_SECONDS, BRIEF_SECONDS
    expected = [calm, calm, *[brief] * (AGREEING - 1), calm]
    for slept, least in zip(clock.slept, expected, strict=False):
        assert least <= slept <= least * (1 + JITTER)
