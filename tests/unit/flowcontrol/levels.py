"""A level with a clock of the test's choice, and requests of users."""

from __future__ import annotations

from collections.abc import Callable

from apiserver.apimachinery.request import User
from apiserver.filters.request_info import parse
from apiserver.flowcontrol import meters
from apiserver.flowcontrol.estimates import ONE, Estimate
from apiserver.flowcontrol.queueset import Flow, QueueSet, Ticket
from apiserver.flowcontrol.types import FlowSchema, PriorityLevel, Queuing

V1 = "/apis/things.example.com/v1"
GET = parse("GET", f"{V1}/nodes/a")
MILLISECOND = 1_000_000


class Clock:
    """Nanoseconds, and the calls that are due later."""

    def __init__(self) -> None:
        self.now = 10**12
        self.later: list[tuple[int, Callable[[], None]]] = []

    def __call__(self) -> int:
        return self.now

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.append((self.now + round(seconds * 1e9), function))

    def pass_by(self, nanoseconds: int) -> None:
        """Let time pass, and make the calls that are due."""
        end = self.now + nanoseconds
        while due := [call for call in self.later if call[0] <= end]:
            first = min(due, key=lambda call: call[0])
            self.later.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


class Bench:
    """One level, and its flows by user."""

    def __init__(self, *, seats: int, queuing: Queuing | None, exempt: bool = False, name: str = "tested") -> None:
        self.clock = Clock()
        self.level = PriorityLevel(name=name, exempt=exempt, queuing=queuing)
        self.queues = QueueSet(
            name, queuing=queuing, exempt=exempt, clock=self.clock, later=self.clock.call_later, limit=seats
        )
        self.meter = meters.FlowMeter(name, "tests")
        self._flows: dict[str, Flow] = {}

    def ask(self, user: str, estimate: Estimate = ONE) -> Ticket:
        """Let a user send a request."""
        if user not in self._flows:
            self._flows[user] = Flow(
                FlowSchema(name="tests", level=self.level.name),
                self.level,
                queues=self.queues,
                distinguisher=user,
                meter=self.meter,
            )
        ticket = Ticket(self._flows[user], estimate, User(user), GET)
        self.queues.start(ticket)
        return ticket
