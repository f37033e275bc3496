"""Build the backends of a configuration, one inside the other.

Upstream: kubernetes/apiserver `pkg/server/options/audit.go` (ApplyTo), `pkg/audit/union.go`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from apiserver.audit import rotation
from apiserver.audit.backend import Backend
from apiserver.audit.buffered import Buffered
from apiserver.audit.event import Event
from apiserver.audit.log import Log, json_line, legacy_line
from apiserver.audit.rotation import FileError, Keeping, Plain, Rotated, Stdout
from apiserver.audit.truncate import Truncating
from apiserver.audit.webhook import Webhook
from apiserver.cluster import credentials
from apiserver.config import auditing
from apiserver.config.config import Audit, ConfigError

logger = logging.getLogger(__name__)

STDOUT = "-"
MEBIBYTE = 1 << 20
CONCURRENT = 32
"""Concurrent batches to the webhook. Upstream has no limit while the webhook is slow."""


class Union:
    """Several backends; each gets every event, one after the other."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends

    async def process(self, events: Sequence[Event]) -> bool:
        done = [await backend.process(events) for backend in self._backends]
        return all(done)

    def start(self) -> None:
        for backend in self._backends:
            backend.start()

    async def stop(self) -> None:
        await asyncio.gather(*(backend.stop() for backend in self._backends))


class IgnoringErrors:
    """The mode `blocking`: a request waits for its events, and goes on whether they were delivered or not."""

    def __init__(self, delegate: Backend) -> None:
        self._delegate = delegate

    async def process(self, events: Sequence[Event]) -> bool:
        await self._delegate.process(events)
        return True

    def start(self) -> None:
        self._delegate.start()

    async def stop(self) -> None:
        await self._delegate.stop()


def errors(audit: Audit, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors in the files of log and webhook. Creates the log file if it is missing."""
    if audit.log.path not in ("", STDOUT):
        try:
            rotation.ensure(Path(audit.log.path))
        except FileError as error:
            yield f"--audit-log-path: {error}"
    if audit.policy_file and audit.webhook.config_file:
        for text in credentials.errors((audit.webhook.config_file,), environ):
            yield f"--audit-webhook-config-file: {text}"


def open_backend(audit: Audit, environ: Mapping[str, str]) -> Backend | None:
    """Build the backend; None without a policy or without log and webhook. Raises ConfigError.

    The caller starts it on the event loop that uses it.
    """
    found = list(errors(audit, environ))
    if found:
        raise ConfigError(found)
    if not audit.policy_file:
        for plugin, named in ((auditing.LOG, audit.log.path), (auditing.WEBHOOK, audit.webhook.config_file)):
            if named:
                logger.warning("No audit policy file provided, no events will be recorded for %s backend", plugin)
        return None
    backends = [*_log(audit.log), *_webhook(audit.webhook, environ)]
    return Union(backends) if len(backends) > 1 else next(iter(backends), None)


def _log(log: auditing.Log) -> Iterator[Backend]:
    if log.path:
        lines = legacy_line if log.format == auditing.LEGACY else json_line
        yield _wrapped(Log(_target(log), lines), log, concurrent=1)


def _target(log: auditing.Log) -> rotation.Target:
    if log.path == STDOUT:
        return Stdout()
    if not log.max_size:
        return Plain(Path(log.path))
    keeping = Keeping(size=log.max_size * MEBIBYTE, days=log.max_age, backups=log.max_backup, compress=log.compress)
    return Rotated(Path(log.path), keeping)


def _webhook(webhook: auditing.Webhook, environ: Mapping[str, str]) -> Iterator[Backend]:
    if webhook.config_file:
        if webhook.former_backoff is not None:
            logger.warning(
                "Flag --audit-webhook-batch-initial-backoff has been deprecated, use --audit-webhook-initial-backoff instead"
            )
        yield _wrapped(Webhook(webhook.config_file, environ, backoff=webhook.backoff), webhook, concurrent=CONCURRENT)


def _wrapped(backend: Backend, sink: auditing.Sink, *, concurrent: int) -> Backend:
    """Wrap a backend: events are truncated first, then batched."""
    if sink.mode == auditing.BATCH:
        backend = Buffered(backend, sink.batch, concurrent=concurrent)
    elif sink.mode == auditing.BLOCKING:
        backend = IgnoringErrors(backend)
    return Truncating(backend, sink.truncate) if sink.truncate.enabled else backend
