"""Preparation of a policy before a request needs it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from apiserver.admission.core.chain import Chain
from apiserver.admission.policies import preparation
from tests.unit.admission.changes import change
from tests.unit.admission.policies import test_mutating
from tests.unit.admission.policies.clusters import Cluster, binding, policy


async def test_compile_error_is_reported_once_with_its_consequence(caplog: pytest.LogCaptureFixture) -> None:
    variables = [{"name": "v", "expression": "1 +"}]
    bad = policy("bad", "object.x ==", "true", variables=variables)
    ignored = policy("ignored", "nothing", failurePolicy="Ignore")
    unbound = policy("unbound", "nothing")
    cluster = Cluster(
        [bad, ignored, unbound, policy("good", "true")], [binding(n, n) for n in ("bad", "ignored", "good")]
    )
    for _ in range(2):
        await cluster.plugin.prepare()
    told = [(record.message, record.__dict__["policy"], record.__dict__["expression"]) for record in caplog.records]
    assert told == [
        (preparation.REFUSING, "bad", "1 +"),
        (preparation.REFUSING, "bad", "object.x =="),
        (preparation.IGNORED, "ignored", "nothing"),
    ]
    assert "compilation failed: ERROR: <input>:1:4: Syntax error" in caplog.records[0].__dict__["problem"]


async def test_mutating_policies_are_prepared_as_well(caplog: pytest.LogCaptureFixture) -> None:
    plugin = test_mutating.plugin(test_mutating.policy("bad", "Object{"), test_mutating.policy("good", "Object{}"))
    for _ in range(2):
        await plugin.prepare()
    [told] = caplog.records
    assert (told.message, told.__dict__["policy"]) == (preparation.REFUSING, "bad")


async def test_preparation_runs_again_and_again() -> None:
    class Preparing:
        times = 0

        async def prepare(self) -> None:
            self.times += 1

        async def validate(self, attributes: object) -> None: ...

    async def sleep(seconds: float) -> None:
        assert seconds > 0
        if plugin.times == 3:
            raise asyncio.CancelledError

    plugin, cluster = Preparing(), Cluster([policy("p", "true")])
    with contextlib.suppress(asyncio.CancelledError):
        await Chain([plugin, cluster.plugin]).prepare(sleep)
    assert plugin.times == 3
    await cluster.plugin.validate(change())
