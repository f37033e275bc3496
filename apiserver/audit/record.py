"""The record of one request, stage by stage.

Upstream: kubernetes/apiserver `pkg/audit/context.go`, `pkg/endpoints/filters/audit.go`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver import metrics
from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.apimachinery.request import Annotations, Deferred, Level, Recording, RequestInfo, User
from apiserver.audit.backend import Backend
from apiserver.audit.event import LEVELS, Event, Stage
from apiserver.audit.policy import Policy, Ruling
from apiserver.codecs.objects import canonical

MOST_HELD = 256 << 20
"""The byte budget of undelivered events. Above it, requests that must be recorded wait."""
DEFERRED_BYTES = 64 << 10
"""The approximate memory of a list that is encoded later."""
CLOSED_EARLY = {"status": "Success", "message": "Connection closed early", "code": 200}
"""The status of a request whose client left before the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The facts in the request itself, known before authentication."""

    audit_id: str
    uri: str
    source_ips: Sequence[str]
    user_agent: str
    received: int


class Auditor:
    """Judges requests by a policy, and makes a record of each that must be recorded. `now` is in microseconds since the epoch."""

    def __init__(self, policy: Policy, backend: Backend, *, now: Callable[[], int]) -> None:
        self.now = now
        self._policy = policy
        self._backend = backend
        self._events = metrics.AUDIT_EVENTS
        self._levels = {level: metrics.AUDIT_LEVELS.labels(name) for level, name in LEVELS.items()}
        self._last: set[asyncio.Task[None]] = set()
        self._holding = 0
        self._waiting = deque[asyncio.Future[None]]()

    def judge_by(self, policy: Policy) -> None:
        """Judge requests by another policy from now on. Requests that have begun keep the ruling of the former one."""
        self._policy = policy

    def record(
        self, info: RequestInfo, user: User | None, origin: Callable[[], Origin], annotations: Annotations
    ) -> Record | None:
        """Make the record of a request; None if nothing is recorded. `annotations` may grow until the last stage."""
        ruling = self._policy.ruling(info, user)
        self._levels[ruling.level].inc()
        if ruling.level is Level.NONE:
            return None
        return Record(self, ruling, info, user, origin=origin(), noted=annotations)

    async def process(self, event: Event) -> bool:
        self._events.only.inc()
        held = _held(event)
        self._holding += held
        try:
            return await self._backend.process((event,))
        finally:
            self._holding -= held
            if self._waiting and self._holding <= MOST_HELD:
                self._waiting.popleft().set_result(None)

    async def turn(self) -> None:
        """Wait until the byte budget has space. Requests of disconnected clients hold their objects until these are written, and
        nothing else limits their number.
        """
        while self._holding > MOST_HELD:
            self._waiting.append(space := asyncio.get_running_loop().create_future())
            try:
                await space
            finally:
                if space in self._waiting:
                    self._waiting.remove(space)

    def reject(self) -> None:
        """Count a request that is refused because it cannot be recorded."""
        metrics.AUDIT_REJECTIONS.only.inc()

    def finish(self, last: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Record the last stage of a request, whether its client waits for it or not."""
        task = asyncio.ensure_future(last)
        self._last.add(task)
        task.add_done_callback(self._last.discard)
        return asyncio.shield(task)

    def start(self) -> None:
        self._backend.start()

    async def stop(self) -> None:
        """Wait until everything that was recorded is delivered."""
        await asyncio.gather(*self._last, return_exceptions=True)
        await self._backend.stop()


def _held(event: Event) -> int:
    answer = event.response_object
    return sum(map(len, event.request_object)) + (
        DEFERRED_BYTES if isinstance(answer, Deferred) else sum(map(len, answer))
    )


class Record:
    """The facts about one request. The handler fills `recording`. `acting` is the impersonated user, `constraint` its verb."""

    __slots__ = (
        "_auditor", "_info", "_noted", "_origin", "_ruling", "_started", "_status", "_user", "acting", "constraint", "recording",
    )  # fmt: skip

    def __init__(
        self,
        auditor: Auditor,
        ruling: Ruling,
        info: RequestInfo,
        user: User | None,
        *,
        origin: Origin,
        noted: Annotations,
    ) -> None:
        self._auditor = auditor
        self._ruling = ruling
        self._info = info
        self._user = user
        self._origin = origin
        self._noted = noted
        self._status: Mapping[str, Any] | None = None
        self._started = False
        self.acting: User | None = None
        self.constraint = ""
        self.recording = Recording(ruling.level, self.began, bare=ruling.omit_managed_fields)

    async def received(self) -> bool:
        """Record that the user is known. False: the request must not be served, because it could not be recorded."""
        await self._auditor.turn()
        return await self._record(Stage.REQUEST_RECEIVED, self._origin.received)

    async def began(self, code: int) -> None:
        """Record that the headers of a long-running answer are about to be sent."""
        self._started = True
        self._status = {"code": code}
        await self._record(Stage.RESPONSE_STARTED)

    async def refused(self, failure: StatusError | TextError, *, shown: bool) -> None:
        """Record a request that ended before authentication; it has only this stage. `shown`: the client gets a Status."""
        self._answered(failure, shown=shown)
        await self._record(Stage.RESPONSE_STARTED)

    async def failed(self, failure: StatusError | TextError, *, shown: bool) -> None:
        """Record an answer that is an error."""
        self._answered(failure, shown=shown)
        await self._complete()

    async def succeeded(self, code: int) -> None:
        """Record a complete answer."""
        self._status = {"code": code}
        await self._complete()

    async def left(self) -> None:
        """Record that the client disconnected before the end of the answer."""
        if self._status is None:
            self._status = CLOSED_EARLY
        await self._complete()

    async def panicked(self, error: BaseException) -> None:
        """Record an unexpected exception."""
        message = f"APIServer panic'd: {error}"
        self._status = {"status": "Failure", "message": message, "reason": "InternalError", "code": 500}
        await self._record(Stage.PANIC)

    def _answered(self, failure: StatusError | TextError, *, shown: bool) -> None:
        if not isinstance(failure, StatusError) or not shown:
            self._status = {"code": failure.code}
            return
        status = failure.status()
        self._status = {name: value for name, value in status.items() if name not in ("kind", "apiVersion", "metadata")}
        if self.recording.wants_answer:
            self.recording.answer = (canonical.encode_value(status),)

    async def _complete(self) -> None:
        if self._info.long_running and not self._started:
            self._started = True
            await self._record(Stage.RESPONSE_STARTED)
        await self._record(Stage.RESPONSE_COMPLETE)

    async def _record(self, stage: Stage, at: int | None = None) -> bool:
        if stage in self._ruling.omitted:
            return True
        return await self._auditor.process(self._event(stage, at))

    def _event(self, stage: Stage, at: int | None) -> Event:
        origin, level = self._origin, self._ruling.level
        return Event(
            level=level,
            audit_id=origin.audit_id,
            stage=stage,
            request_uri=origin.uri,
            verb=self._info.verb,
            user=self._user,
            acting=self.acting,
            constraint=self.constraint,
            source_ips=origin.source_ips,
            user_agent=origin.user_agent,
            object_ref=self._reference(),
            status=self._status,
            request_object=self.recording.sent,
            response_object=self.recording.answer,
            received=origin.received,
            at=self._auditor.now() if at is None else at,
            annotations=self._noted.seen_at(level),
        )

    def _reference(self) -> Mapping[str, str]:
        """Return the members of the object's reference from the path, and the others from the object."""
        info = self._info
        if not info.is_resource:
            return {}
        known = {
            "resource": info.resource,
            "namespace": info.namespace,
            "name": info.name,
            "apiGroup": info.group,
            "apiVersion": info.version,
            "subresource": info.subresource,
        }
        return {**self.recording.reference, **{name: text for name, text in known.items() if text}}
