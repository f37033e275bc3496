"""The queues of a level: who is served next, who waits, who is refused."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from apiserver import metrics
from apiserver.flowcontrol.estimates import ONE, Estimate
from apiserver.flowcontrol.queueset import KEPT_QUEUES, Ticket, Verdict
from apiserver.flowcontrol.types import Queuing
from tests.unit.flowcontrol.levels import MILLISECOND, Bench

FEW = Queuing(queues=64, hand=6, length=50)


def serve(bench: Bench, tickets: list[Ticket], *, requests: int, milliseconds: int = 3) -> list[str]:
    """Serve one request after the other, and return whose requests they were."""
    order: list[str] = []
    waiting = list(tickets)
    while len(order) < requests:
        served = [ticket for ticket in waiting if ticket.verdict is Verdict.SERVED]
        assert served
        waiting = [ticket for ticket in waiting if ticket not in served]
        bench.clock.pass_by(milliseconds * MILLISECOND)
        for ticket in served:
            order.append(ticket.user.name)
            bench.queues.finish(ticket)
    return order


def test_request_is_served_at_once_while_there_are_seats() -> None:
    bench = Bench(seats=2, queuing=FEW)
    assert [bench.ask("jane").verdict for _ in range(3)] == [Verdict.SERVED, Verdict.SERVED, Verdict.WAITS]
    assert bench.queues.state == (2, 1, 2, 1)


def test_waiting_request_is_served_when_a_seat_is_free() -> None:
    bench = Bench(seats=1, queuing=FEW)
    first, second = bench.ask("jane"), bench.ask("jane")
    told: list[bool] = []
    second.decided = lambda: told.append(True)
    bench.queues.finish(first)
    assert (second.verdict, told) == (Verdict.SERVED, [True])
    bench.queues.finish(second)
    bench.queues.finish(second)
    assert bench.queues.state == (0, 0, 0, 0)


@pytest.mark.parametrize("storm", [10, 300])
@pytest.mark.parametrize("hand", [1, 6])
def test_storm_of_one_flow_delays_another_flow_by_its_hand(storm: int, hand: int) -> None:
    bench = Bench(seats=1, queuing=Queuing(queues=64, hand=hand, length=500))
    tickets = [bench.ask("storm") for _ in range(storm)]
    tickets += [bench.ask("jane") for _ in range(3)]
    order = serve(bench, tickets, requests=10)
    assert order.index("jane") <= 1 + hand
    assert order.count("jane") == 3


def test_flows_that_always_want_more_share_the_seats_evenly() -> None:
    bench, served = Bench(seats=4, queuing=Queuing(queues=1024, hand=5, length=50)), Counter[str]()
    users = {"many": 40, "some": 12, "few": 6}
    running = [bench.ask(user) for user, number in users.items() for _ in range(number)]
    for _ in range(400):
        bench.clock.pass_by(3 * MILLISECOND)
        for ticket in [ticket for ticket in running if ticket.verdict is Verdict.SERVED]:
            bench.queues.finish(ticket)
            served[ticket.user.name] += 1
            running.remove(ticket)
            running.append(bench.ask(ticket.user.name))
    # A flow with many requests uses its whole hand, and the others use as many queues as they have requests waiting.
    shares = {user: number / served.total() for user, number in served.items()}
    assert shares["few"] > 0.2
    assert shares["many"] < 0.5


def test_wide_requests_count_by_their_seats() -> None:
    bench, work = Bench(seats=10, queuing=Queuing(queues=512, hand=1, length=500)), Counter[str]()
    kinds = {"lists": Estimate(10), "gets": ONE}
    running = [bench.ask(user, estimate) for _ in range(100) for user, estimate in kinds.items()]
    for _ in range(400):
        bench.clock.pass_by(3 * MILLISECOND)
        for ticket in [ticket for ticket in running if ticket.verdict is Verdict.SERVED]:
            bench.queues.finish(ticket)
            work[ticket.user.name] += ticket.estimate.seats
            running.remove(ticket)
            running.append(bench.ask(ticket.user.name, ticket.estimate))
    assert 0.4 < work["lists"] / work.total() < 0.6


def test_full_queue_refuses_only_while_no_seat_is_free() -> None:
    bench = Bench(seats=1, queuing=Queuing(queues=1, hand=1, length=2))
    verdicts = [bench.ask("jane").verdict for _ in range(4)]
    assert verdicts == [Verdict.SERVED, Verdict.WAITS, Verdict.WAITS, Verdict.REFUSED]
    assert (bench.queues.rejected, bench.queues.waiting) == (1, 2)


def test_level_without_queues_refuses_what_finds_no_seat() -> None:
    bench = Bench(seats=1, queuing=None)
    first = bench.ask("jane")
    assert bench.ask("jane").verdict is Verdict.REFUSED
    bench.queues.finish(first)
    assert bench.ask("jane").verdict is Verdict.SERVED


def test_exempt_level_serves_everything_at_once() -> None:
    bench = Bench(seats=0, queuing=None, exempt=True)
    assert {bench.ask("root").verdict for _ in range(1000)} == {Verdict.SERVED}
    assert bench.queues.state == (1000, 0, 1000, 0)


def test_request_with_more_seats_than_there_are_is_served_alone() -> None:
    bench = Bench(seats=4, queuing=FEW)
    narrow, wide, behind = bench.ask("jane"), bench.ask("lists", Estimate(10)), bench.ask("kim", Estimate(10))
    assert wide.verdict is Verdict.WAITS
    bench.queues.finish(narrow)
    assert (wide.verdict, behind.verdict) == (Verdict.SERVED, Verdict.WAITS)
    bench.queues.finish(wide)
    assert behind.verdict is Verdict.SERVED


def test_request_that_leaves_gives_its_place_to_the_next() -> None:
    bench = Bench(seats=4, queuing=FEW)
    bench.ask("jane")
    wide = bench.ask("lists", Estimate(10))
    bench.clock.pass_by(100 * MILLISECOND)
    behind = bench.ask("kim", Estimate(3))
    assert behind.verdict is Verdict.WAITS
    bench.queues.leave(wide)
    assert (wide.verdict, behind.verdict, bench.queues.cancelled) == (Verdict.REFUSED, Verdict.SERVED, 1)
    bench.queues.leave(wide)
    bench.queues.leave(behind)
    assert (bench.queues.cancelled, behind.verdict) == (1, Verdict.SERVED)


def test_seats_of_a_write_are_kept_while_its_events_are_sent() -> None:
    bench = Bench(seats=5, queuing=FEW)
    write = bench.ask("jane", Estimate(1, 5, 20 * MILLISECOND))
    waiting = bench.ask("kim")
    bench.queues.finish(write)
    assert (bench.queues.executing, bench.queues.seats, waiting.verdict) == (0, 5, Verdict.WAITS)
    bench.clock.pass_by(20 * MILLISECOND)
    assert (bench.queues.seats, waiting.verdict) == (1, Verdict.SERVED)


def test_final_seats_are_never_more_than_the_level_has() -> None:
    bench = Bench(seats=2, queuing=FEW)
    write = bench.ask("jane", Estimate(1, 10, 4 * MILLISECOND))
    assert (write.estimate, bench.queues.seats) == (Estimate(1, 2, 20 * MILLISECOND), 2)


def test_higher_limit_serves_waiting_requests() -> None:
    bench = Bench(seats=0, queuing=FEW)
    tickets = [bench.ask("jane") for _ in range(3)]
    bench.queues.configure(FEW, 2)
    assert [ticket.verdict for ticket in tickets] == [Verdict.SERVED, Verdict.SERVED, Verdict.WAITS]


def test_millions_of_configured_queues_cost_nothing() -> None:
    bench = Bench(seats=1, queuing=Queuing(queues=10_000_000, hand=2, length=50))
    tickets = [bench.ask(f"user {number}") for number in range(2000)]
    assert len(bench.queues.queues) <= 2 * 2000
    for ticket in tickets:
        bench.queues.leave(ticket)
        bench.queues.finish(ticket)
    assert bench.queues.state == (0, 0, 0, 0)
    assert all(index < KEPT_QUEUES for index in bench.queues.queues)


def test_counts_return_to_zero_after_any_order_of_requests() -> None:
    draw = random.Random(36)
    bench = Bench(seats=7, queuing=Queuing(queues=8, hand=3, length=5), name="drawn")
    running: list[Ticket] = []
    for _ in range(5000):
        bench.clock.pass_by(draw.randrange(4 * MILLISECOND))
        if draw.random() < 0.5 or not running:
            estimate = draw.choice([ONE, Estimate(3), Estimate(10), Estimate(1, 4, 5 * MILLISECOND)])
            running.append(bench.ask(f"user {draw.randrange(20)}", estimate))
        else:
            ticket = running.pop(draw.randrange(len(running)))
            bench.queues.leave(ticket)
            bench.queues.finish(ticket)
        queues = bench.queues.queues.values()
        assert bench.queues.waiting == sum(len(queue.waiting) for queue in queues)
        assert bench.queues.seats == sum(queue.seats for queue in queues)
        assert bench.queues.seats < 7 + 10
        if bench.queues.waiting and bench.queues.seats < bench.queues.limit:
            heads = [next(iter(queue.waiting)) for queue in queues if queue.waiting]
            assert any(head.estimate.seats + bench.queues.seats > bench.queues.limit for head in heads)
    for ticket in running:
        bench.queues.leave(ticket)
        bench.queues.finish(ticket)
    bench.clock.pass_by(1000 * MILLISECOND)
    assert bench.queues.state == (0, 0, 0, 0)
    meter = bench.meter
    assert (meter.waiting, meter.waiting_seats, meter.executing, meter.executing_seats) == (0, 0, 0, 0)
    shown = metrics.FLOW_DISPATCHED.labels("drawn", "tests").value
    assert shown == bench.queues.dispatched


def test_demand_is_averaged_over_time() -> None:
    bench = Bench(seats=1, queuing=FEW, name="averaged")
    first, _ = bench.ask("jane"), bench.ask("jane")
    bench.clock.pass_by(500 * MILLISECOND)
    bench.queues.finish(first)
    bench.clock.pass_by(500 * MILLISECOND)
    bench.queues.advance()
    bench.queues.occupancy.add_up("averaged", bench.queues.state)
    demand = bench.queues.occupancy.demand(bench.queues.state)
    assert (demand.seconds, demand.average, demand.most) == (1.0, 1.5, 2)
    assert math.isclose(demand.deviation, 0.5)
    seats = metrics.LEVEL_SEATS.labels("averaged", "executing")
    assert (seats.count, seats.sum) == (10**9, 10**9)
    assert bench.queues.occupancy.demand(bench.queues.state).most == 1
