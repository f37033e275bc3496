"""Backends that a configuration opens, one inside the other, and errors of the files that it names."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from apiserver.audit.backend import Backend
from apiserver.audit.backends import IgnoringErrors, Union, open_backend
from apiserver.config import config
from tests.unit.audit.sinks import Recording, event, events, lost, until
from tests.unit.cluster.plane import Plane, answer, hang

POLICY = "--audit-policy-file=/policy.yaml"


def opening(*flags: str) -> Backend | None:
    return open_backend(config.parse(["dev", *flags], {}).audit, {})


@asynccontextmanager
async def opened(*flags: str) -> AsyncIterator[Backend]:
    backend = opening(POLICY, *flags)
    assert backend is not None
    backend.start()
    yield backend
    await backend.stop()


def read(path: Path) -> list[str]:
    return [json.loads(line)["auditID"] for line in path.read_text().splitlines()]


async def test_every_backend_gets_every_event_also_after_one_that_fails() -> None:
    first, second = Recording(), Recording()
    both = Union([first, second])
    both.start()
    assert await both.process(events(1, 2))
    first.answer = False
    assert not await both.process(events(3))
    assert first.batches == second.batches == [["1", "2"], ["3"]]
    await both.stop()
    assert first.calls == second.calls == ["start", "stop"]


async def test_blocking_backend_that_ignores_errors_waits_all_the_same() -> None:
    delegate = Recording()
    delegate.answer = False
    delegate.open.clear()
    backend = IgnoringErrors(delegate)
    coming = asyncio.create_task(backend.process(events(1)))
    await until(lambda: delegate.inside)
    assert not coming.done()
    delegate.open.set()
    assert await coming


def test_nothing_is_recorded_without_a_policy_or_a_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.log"
    assert opening() is None
    assert opening(POLICY) is None
    assert caplog.text == ""
    assert opening(f"--audit-log-path={path}", "--audit-webhook-config-file=/nowhere") is None
    assert path.exists(), "as upstream makes it"
    for plugin in ("log", "webhook"):
        assert f"No audit policy file provided, no events will be recorded for {plugin} backend" in caplog.text


def test_all_files_that_cannot_be_used_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError) as caught:
        opening(POLICY, f"--audit-log-path={tmp_path}", "--audit-webhook-config-file=/nowhere")
    assert caught.value.errors == [
        f"--audit-log-path: open {tmp_path}: is a directory",
        "--audit-webhook-config-file: /nowhere cannot be read: No such file or directory",
    ]


async def test_a_log_is_rotated_by_its_size_and_without_one_it_is_not(tmp_path: Path) -> None:
    large = [event(response=[b"1" * (600 << 10)])]
    for size, files in ((1, 2), (0, 1)):
        path = tmp_path / str(size) / "audit.log"
        async with opened(f"--audit-log-path={path}", f"--audit-log-maxsize={size}") as backend:
            for _ in range(2):
                assert await backend.process(large)
        assert len(os.listdir(path.parent)) == files  # noqa: PTH208


@pytest.mark.parametrize(("mode", "said"), [("blocking", True), ("blocking-strict", False)])
async def test_a_disk_that_fails_refuses_requests_only_in_the_strict_mode(mode: str, *, said: bool) -> None:
    before = lost("log")
    async with opened("--audit-log-path=/dev/full", f"--audit-log-mode={mode}") as backend:
        assert await backend.process(events(1)) is said
    assert lost("log") == before + 1


async def test_the_mode_batch_writes_what_is_left_when_it_stops(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    flags = (f"--audit-log-path={path}", "--audit-log-mode=batch", "--audit-log-format=legacy")
    async with opened(*flags) as backend:
        for n in range(20):
            assert await backend.process(events(n))
    assert path.read_text().count(" AUDIT: id=") == 20


async def test_events_are_cut_before_they_wait(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with opened(
        f"--audit-log-path={path}", "--audit-log-mode=batch", "--audit-log-truncate-enabled", "--audit-log-truncate-max-event-size=1000"
    ) as backend:  # fmt: skip
        assert await backend.process([event(response=[b"1" * 5000])])
    assert json.loads(path.read_text())["annotations"] == {"audit.k8s.io/truncated": "true"}


async def test_log_and_webhook_get_the_same(tmp_path: Path) -> None:
    path, plane = tmp_path / "audit.log", await Plane(tmp_path).start()
    plane.on("/", answer({}))
    kubeconfig = plane.kubeconfig({"token": "ours"})
    async with opened(f"--audit-log-path={path}", f"--audit-webhook-config-file={kubeconfig}") as backend:
        assert await backend.process(events(1, 2))
        assert read(path) == ["1", "2"], "the log's mode is blocking"
    (seen,) = plane.seen
    assert [item["auditID"] for item in seen.body["items"]] == ["1", "2"], "the webhook's is batch"
    await plane.stop()


async def test_interrupted_stop_loses_unsent_webhook_events_and_says_so(tmp_path: Path) -> None:
    path, plane = tmp_path / "audit.log", await Plane(tmp_path).start()
    plane.on("/", hang)
    kubeconfig = plane.kubeconfig({"token": "ours"})
    before = lost("webhook") + lost("buffered")
    backend = opening(
        POLICY, f"--audit-log-path={path}", f"--audit-webhook-config-file={kubeconfig}", "--audit-webhook-batch-max-size=2"
    )  # fmt: skip
    assert backend is not None
    backend.start()
    assert await backend.process(events(*range(200)))
    await until(lambda: plane.seen)
    stopping = asyncio.create_task(backend.stop())
    await until(lambda: len(plane.seen) > 5)
    stopping.cancel()
    await asyncio.wait((stopping,))
    await until(
        lambda: lost("webhook") + lost("buffered") == before + 200
    )  # calls in progress end in later steps of the loop
    assert len(read(path)) == 200
    await plane.stop()


async def test_the_former_name_of_the_backoff_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plane = await Plane(tmp_path).start()
    kubeconfig = plane.kubeconfig({"token": "ours"})
    opening(POLICY, f"--audit-webhook-config-file={kubeconfig}", "--audit-webhook-batch-initial-backoff=1s")
    assert "--audit-webhook-batch-initial-backoff has been deprecated" in caplog.text
    await plane.stop()
