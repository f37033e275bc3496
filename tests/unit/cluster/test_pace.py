from __future__ import annotations

from collections import Counter

import pytest

from apiserver.cluster.pace import BURST, FLOW_WAITING, REQUESTS_PER_SECOND, WAITING, Throttle, Turn


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(clock)


def enter(throttle: Throttle, flow: str) -> Turn:
    turn = throttle.enter(flow)
    assert turn is not None
    return turn


def exhaust(throttle: Throttle) -> None:
    for _ in range(BURST):
        with enter(throttle, "first") as turn:
            assert turn.seconds() == 0
    with enter(throttle, "first") as turn:
        assert turn.seconds() > 0


def served(throttle: Throttle, clock: Clock, waiting: list[Turn], *, seconds: float) -> list[str]:
    """The flows whose turn comes within that time, in their order."""
    found = []
    for _ in range(round(seconds * REQUESTS_PER_SECOND)):
        clock.now += 1 / REQUESTS_PER_SECOND + 1e-9
        for turn in waiting:
            if not turn.seconds():
                found.append(turn.flow)
                turn.throttle.leave(turn)
                waiting.remove(turn)
                break
    return found


def test_a_burst_goes_at_once_and_then_one_after_another(throttle: Throttle, clock: Clock) -> None:
    exhaust(throttle)
    waiting = [enter(throttle, "a") for _ in range(3)]
    assert [turn.seconds() * REQUESTS_PER_SECOND for turn in waiting] == pytest.approx([1, 2, 3])
    clock.now += 2 / REQUESTS_PER_SECOND
    for turn in waiting[:2]:
        with turn:
            assert turn.seconds() == 0
    assert waiting[2].seconds() * REQUESTS_PER_SECOND == pytest.approx(1)


def test_single_request_does_not_wait_for_a_busy_client(throttle: Throttle, clock: Clock) -> None:
    exhaust(throttle)
    waiting = [enter(throttle, "flood") for _ in range(FLOW_WAITING)]
    assert served(throttle, clock, waiting, seconds=0.1) == ["flood"] * 20
    waiting.append(enter(throttle, "kubelet"))
    assert "kubelet" in served(throttle, clock, waiting, seconds=0.01)


def test_busy_flows_share_evenly(throttle: Throttle, clock: Clock) -> None:
    exhaust(throttle)
    waiting = [enter(throttle, flow) for flow in "abc" for _ in range(100)]
    assert Counter(served(throttle, clock, waiting, seconds=0.3)) == {"a": 20, "b": 20, "c": 20}


def test_one_client_cannot_fill_the_queue_for_the_others(throttle: Throttle) -> None:
    exhaust(throttle)
    waiting = [enter(throttle, "flood") for _ in range(FLOW_WAITING)]
    assert throttle.enter("flood") is None
    other = enter(throttle, "other")
    assert other.seconds() <= 2 / REQUESTS_PER_SECOND + 1e-6
    for turn in waiting:
        throttle.leave(turn)
    assert throttle.enter("flood") is not None


def test_queue_is_bounded_and_forgets_cancelled_waiters(throttle: Throttle) -> None:
    waiting = [turn for number in range(WAITING + 10) if (turn := throttle.enter(f"flow-{number}")) is not None]
    assert len(waiting) == WAITING
    for turn in waiting:
        throttle.leave(turn)
    assert not throttle._waiting
    assert not throttle._last
