"""Check changes against the quotas of their namespace, and claim their usage. All waiting changes share one write per quota.

One task at a time works on a namespace: while it asks kube-apiserver, further changes gather. Concurrent replicas conflict at the
resourceVersion of a quota: the later writer reads it again and checks once more. Upstream: kubernetes/apiserver
`pkg/admission/plugin/resourcequota/controller.go`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from apiserver.admission.quota.accessor import Accessor
from apiserver.admission.quota.check import Change, Quota, check
from apiserver.admission.quota.limited import Limited
from apiserver.admission.quota.workqueue import Workqueue
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.cluster.errors import ClusterError, Refused

SECONDS = 10.0
"""How long a change waits for its verdict."""
RETRIES = 3
"""How often quotas whose write failed are read and checked again."""
PAUSE_SECONDS = 0.05
"""The longest pause before that: random, and longer each time, so that replicas do not conflict again."""
STEP_SECONDS = 0.005
"""How long changes are checked before other tasks get their turn on the event loop."""


class Controller:
    """Call `evaluate` for each change. `limited` are the resources that need a quota."""

    def __init__(
        self,
        accessor: Accessor,
        *,
        limited: Sequence[Limited] = (),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._accessor = accessor
        self._limited = limited
        self._pause = pause
        self._waiting: dict[str, list[_Waiter]] = {}
        """Waiting changes by namespace, while a task works on it."""
        self._tasks = set[asyncio.Task[None]]()
        self._queue = Workqueue(time.monotonic)

    async def evaluate(self, change: Change) -> None:
        """Wait until the change fits and its usage is claimed. Raises the StatusError that forbids it: of a quota, of kube-apiserver,
        or a timeout.
        """
        namespace, waiter = change.attributes.namespace, _Waiter(change)
        waiting = self._waiting.get(namespace)
        self._queue.add(namespace)
        if waiting is None:
            self._waiting[namespace] = [waiter]
            task = asyncio.create_task(self._work(namespace), name=f"quota of {namespace}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            waiting.append(waiter)
        try:
            async with asyncio.timeout(SECONDS):
                await waiter.verdict
        except TimeoutError:
            raise errors.internal("resource quota evaluation timed out") from None

    async def _work(self, namespace: str) -> None:
        """Judge changes until none waits. Changes without a verdict at the end are refused."""
        taken: list[_Waiter] = []
        try:
            while taken := self._waiting[namespace]:
                self._waiting[namespace] = []
                with self._queue.work(namespace):
                    await self._judge(namespace, taken)
        finally:
            for waiter in (*taken, *self._waiting.pop(namespace)):
                waiter.refuse(errors.raw("DEFAULT DENY"))

    async def _judge(self, namespace: str, waiters: Sequence[_Waiter]) -> None:
        try:
            quotas: Sequence[Quota] = await self._accessor.quotas(namespace)
            for left in reversed(range(RETRIES + 1)):
                claimed, waiters = await self._check(quotas, waiters)
                failed, error = await self._write(namespace, quotas, claimed)
                if error is None:
                    break
                if not left:
                    raise error
                await self._pause(random.uniform(0, PAUSE_SECONDS) * (RETRIES + 1 - left))
                quotas = await self._read_again(namespace, failed, error)
        except ClusterError as error:
            refusal = status_error(error)
            for waiter in waiters:
                waiter.refuse(refusal.again())
        for waiter in waiters:
            waiter.admit()

    async def _check(
        self, quotas: Sequence[Quota], waiters: Sequence[_Waiter]
    ) -> tuple[Sequence[Quota], list[_Waiter]]:
        """Return the quotas to write, and the changes that wait for the writes. All other changes have their verdict."""
        clock = asyncio.get_running_loop().time
        waiting, until = [], clock() + STEP_SECONDS
        for waiter in waiters:
            if clock() > until:
                await asyncio.sleep(0)
                until = clock() + STEP_SECONDS
            if waiter.verdict.done():
                continue  # nobody waits for it: nothing is claimed
            try:
                claimed = check(quotas, waiter.change, self._limited)
            except StatusError as error:
                waiter.refuse(error.again())
                continue
            if claimed is quotas or waiter.change.attributes.dry_run:
                waiter.admit()
                continue
            quotas = claimed
            waiting.append(waiter)
        return quotas, waiting

    async def _write(
        self, namespace: str, before: Sequence[Quota], after: Sequence[Quota]
    ) -> tuple[list[Quota], ClusterError | None]:
        """Write changed quotas. Return those that failed, and the last error."""
        failed, error = [], None
        for old, new in zip(before, after, strict=True):
            if new is not old:
                try:
                    await self._accessor.write(namespace, new)
                except ClusterError as e:
                    error = e
                    failed.append(new)
        return failed, error

    async def _read_again(self, namespace: str, failed: Sequence[Quota], error: ClusterError) -> list[Quota]:
        try:
            return await self._accessor.again(namespace, failed)
        except ClusterError:
            raise error from None


class _Waiter:
    """One change, and the future of its verdict."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.verdict = asyncio.get_running_loop().create_future()

    def admit(self) -> None:
        if not self.verdict.done():
            self.verdict.set_result(None)

    def refuse(self, error: StatusError) -> None:
        if not self.verdict.done():
            self.verdict.set_exception(error)


def status_error(error: ClusterError) -> StatusError:
    """Turn kube-apiserver's error into one for the client, as upstream does. Without a Status it is 500 with the bare text."""
    status = error.status if isinstance(error, Refused) else {}
    if not status:
        return errors.raw(str(error))
    details = status.get("details")
    return StatusError(
        int(status.get("code") or 500),
        str(status.get("reason") or ""),
        str(error),
        details=details if isinstance(details, dict) else None,
    )
