"""Decisions of quotas, and usage that is claimed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver import metrics
from apiserver.admission.quota import controller
from apiserver.admission.quota.limited import Limited
from apiserver.admission.quota.surroundings import Surroundings
from apiserver.apimachinery.errors import GroupResource, StatusError
from apiserver.cluster.errors import ClusterError
from tests.unit.admission.quota.plane import (
    CONFLICT,
    COUNT,
    DRA,
    OWN,
    Held,
    Memory,
    Plane,
    Rig,
    claim,
    forbidden,
    gates,
    quota,
    refused,
)

TEMPLATES = f"count/resourceclaimtemplates.{DRA}"


async def test_fitting_usage_is_claimed_and_excess_reported_with_numbers() -> None:
    plane = Plane(quota({COUNT: "2", "pods": "3", TEMPLATES: "0"}, {COUNT: "1", "pods": "1k", TEMPLATES: "0"}))
    rig = Rig(plane)
    assert await rig.verdict() == ""
    told = f"exceeded quota: q, requested: {COUNT}=1, used: {COUNT}=2, limited: {COUNT}=2"
    assert await rig.verdict() == forbidden(told)
    assert await rig.verdict(version="v1beta1") == forbidden(told)
    assert plane.writes == [{COUNT: "2", "pods": "1k", TEMPLATES: "0"}]
    told = f"exceeded quota: q, requested: {TEMPLATES}=1, used: {TEMPLATES}=0, limited: {TEMPLATES}=0"
    text = await rig.verdict(plural="resourceclaimtemplates")
    assert text == f'resourceclaimtemplates.{DRA} "c" is forbidden: {told}'


async def test_a_refusal_is_a_403_with_the_details_of_the_object() -> None:
    with pytest.raises(StatusError) as caught:
        await Rig(Plane(quota({COUNT: "0"}))).ask()
    status = caught.value.status()
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["details"] == {"name": "c", "group": DRA, "kind": "resourceclaims"}


@pytest.mark.parametrize(
    "spec",
    [{"scopes": ["NotTerminating"]}, {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}}],
)
async def test_a_quota_with_scopes_is_about_other_kinds(spec: Any) -> None:
    plane = Plane(quota({COUNT: "0"}, **spec))
    assert await Rig(plane).verdict() == ""
    assert plane.asked == []


async def test_empty_scope_selector_restricts_nothing() -> None:
    assert "exceeded quota" in await Rig(Plane(quota({COUNT: "0"}, scopeSelector={}))).verdict()


async def test_nothing_is_asked_where_no_quota_is_about_the_change() -> None:
    plane = Plane(quota({"pods": "0", "count/resourceclaims": "0", f"count/resourceclaims.{OWN}.": "0"}))
    rig = Rig(plane, group=OWN)
    assert [await rig.verdict(namespace=namespace) for namespace in ("ns", "other")] == ["", ""]
    assert await rig.verdict(plural="deviceclasses", namespace="") == ""
    assert plane.asked == []


async def test_only_what_makes_objects_counts() -> None:
    rig = Rig(Plane(quota({f"count/resourceclaims.{OWN}": "0"})), group=OWN)
    assert await rig.verdict("UPDATE") == ""
    assert await rig.verdict("DELETE") == ""
    assert await rig.verdict("UPDATE", subresource="status") == ""
    assert "exceeded quota" in await rig.verdict()


async def test_limits_hold_once_the_controller_knows_what_is_used() -> None:
    fresh = quota({COUNT: "2"})
    del fresh["status"]
    assert await Rig(Plane(fresh)).verdict() == ""
    unknown = quota({COUNT: "2", "x.deviceclass.resource.k8s.io/devices": "1", "pods": "4"}, {})
    names = f"{COUNT},x.deviceclass.resource.k8s.io/devices"
    assert await Rig(Plane(unknown)).verdict() == forbidden(f"status unknown for quota: q, resources: {names}")


async def test_every_quota_of_the_namespace_has_to_allow_it() -> None:
    plane = Plane(quota({COUNT: "5"}, name="a"), quota({COUNT: "1"}, name="b"), quota({"pods": "1"}, name="c"))
    rig = Rig(plane)
    assert await rig.verdict() == ""
    assert "exceeded quota: b" in await rig.verdict()
    assert [plane.used(name) for name in "abc"] == [{COUNT: "1"}, {COUNT: "1"}, {"pods": "0"}]
    assert len(plane.writes) == 2


async def test_a_dry_run_is_judged_and_claims_nothing() -> None:
    plane = Plane(quota({COUNT: "1"}))
    rig = Rig(plane)
    assert await rig.verdict(dry_run=True) == ""
    assert plane.writes == []
    assert await rig.verdict() == ""
    assert "exceeded quota" in await rig.verdict(dry_run=True)


async def test_those_that_wait_are_claimed_in_one_write() -> None:
    plane = Plane(quota({COUNT: "20"}))
    plane.held = asyncio.Event()
    rig = Rig(plane)
    verdicts = [asyncio.create_task(rig.verdict()) for _ in range(50)]
    await asyncio.sleep(0)
    plane.held.set()
    found = [await verdict for verdict in verdicts]
    assert found.count("") == 20
    assert {text.partition("requested")[0] for text in found if text} == {forbidden("exceeded quota: q, ")}
    assert (plane.used(), len(plane.writes) <= 2) == ({COUNT: "20"}, True)


async def test_replicas_that_claim_at_the_same_time_never_exceed_the_quota() -> None:
    plane = Plane(quota({COUNT: "20"}))
    rigs = [Rig(plane) for _ in range(3)]
    found = await asyncio.gather(*(rigs[number % 3].verdict() for number in range(60)))
    assert (found.count(""), plane.used()) == (20, {COUNT: "20"})
    assert plane.conflicts > 0


async def test_own_write_counts_before_the_watch_has_shown_it() -> None:
    plane = Plane(quota({COUNT: "2"}))
    rig = Rig(plane)
    assert [await rig.verdict(), await rig.verdict()] == ["", ""]
    assert plane.conflicts == 0
    plane.live["q"]["status"]["used"] = {COUNT: "1"}  # the controller has counted again
    plane.live["q"]["metadata"]["resourceVersion"] = "200"
    assert "exceeded" in await rig.verdict()
    plane.show()
    assert await rig.verdict() == ""


async def test_quota_under_constant_change_is_given_up_after_three_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = Plane(quota({COUNT: "2"}))

    async def changed(written: Any) -> Any:
        plane.asked.append("update q")
        raise refused(409, CONFLICT, "Conflict")

    monkeypatch.setattr(plane, "update_status", changed)
    with pytest.raises(StatusError) as caught:
        await Rig(plane).ask()
    error = caught.value
    assert (error.code, error.reason, error.message) == (409, "Conflict", CONFLICT)
    assert plane.asked == ["update q", *["get ns/q", "update q"] * 3]


async def test_quota_deleted_meanwhile_limits_nothing() -> None:
    plane = Plane(quota({COUNT: "2"}))
    plane.live.clear()
    assert await Rig(plane).verdict() == ""
    assert plane.asked == ["update q", "get ns/q"]


async def test_a_failed_write_is_tried_again() -> None:
    plane = Plane(quota({COUNT: "2"}))
    plane.failures = [ClusterError('Put "https://…": connection refused')]
    assert await Rig(plane).verdict() == ""
    assert plane.used() == {COUNT: "1"}


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (ClusterError('Put "https://…": no route'), (500, "", 'Put "https://…": no route')),
        (refused(403, "resourcequotas is forbidden", "Forbidden"), (403, "Forbidden", "resourcequotas is forbidden")),
        (refused(429, "slow down", "TooManyRequests"), (429, "TooManyRequests", "slow down")),
    ],
)
async def test_errors_of_kube_apiserver_are_passed_on(failure: ClusterError, status: tuple[int, str, str]) -> None:
    plane = Plane(quota({COUNT: "2"}))
    plane.failures = [failure] * 8
    with pytest.raises(StatusError) as caught:
        await Rig(plane).ask()
    assert (caught.value.code, caught.value.reason, caught.value.message) == status
    plane.failures = []
    assert await Rig(plane).verdict() == ""


async def test_slow_verdict_is_an_error_and_no_other_request_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "SECONDS", 0.05)
    plane = Plane(quota({COUNT: "2"}))
    plane.held = asyncio.Event()
    rig = Rig(plane)
    told = "Internal error occurred: resource quota evaluation timed out"
    assert [await rig.verdict(), await rig.verdict()] == [told, told]
    monkeypatch.undo()
    plane.held.set()
    assert await rig.verdict() == ""
    # The first was being written; the second had gone before it was looked at.
    assert plane.used() == {COUNT: "2"}


async def test_cancelled_request_claims_nothing() -> None:
    plane = Plane(quota({COUNT: "5"}))
    plane.held = asyncio.Event()
    rig = Rig(plane)
    first = asyncio.create_task(rig.verdict())
    await plane.writing.wait()
    second = asyncio.create_task(rig.verdict())
    await asyncio.sleep(0)
    second.cancel()
    plane.held.set()
    assert await first == ""
    assert await rig.verdict() == ""
    assert plane.used() == {COUNT: "2"}


async def test_quotas_are_looked_up_before_the_first_list_and_cached_briefly() -> None:
    plane = Plane(quota({COUNT: "1"}), ready=False)
    rig = Rig(plane)
    assert await rig.verdict() == ""
    assert "exceeded" in await rig.verdict()
    assert [await rig.verdict(namespace="other") for _ in range(3)] == ["", "", ""]
    assert plane.asked == ["list ns", "update q", "list other"]


async def test_failing_lookup_is_reported() -> None:
    plane = Plane(ready=False)
    plane.failures = [refused(403, "no right to list", "Forbidden")]
    rig = Rig(plane)
    assert [await rig.verdict(), await rig.verdict()] == ["no right to list", ""]


async def test_limited_resources_need_a_covering_quota() -> None:
    limited = [Limited(GroupResource(DRA, "resourceclaims"), ("count/", ".nothing"))]
    assert await Rig(Plane(), limited=limited).verdict() == forbidden(f"insufficient quota to consume: {COUNT}")
    assert await Rig(Plane(quota({COUNT: "1"})), limited=limited).verdict() == ""
    rig = Rig(Plane(quota({"pods": "1"})), limited=limited)
    assert await rig.verdict() == forbidden(f"insufficient quota to consume: {COUNT}")
    assert await rig.verdict("UPDATE") == ""
    assert await rig.verdict(plural="resourceclaimtemplates") == ""


async def test_a_namespace_without_quotas_costs_a_look_and_no_task() -> None:
    rig = Rig(Plane())
    before = len(asyncio.all_tasks())
    assert await rig.verdict(obj=claim(name="d")) == ""
    assert len(asyncio.all_tasks()) == before


async def test_waiting_and_running_work_is_measured_under_upstreams_names() -> None:
    name = "admission_quota_controller"
    adds, waited = metrics.WORKQUEUE_ADDS.labels(name), metrics.WORKQUEUE_QUEUE_SECONDS.labels(name)
    worked, depth = metrics.WORKQUEUE_WORK_SECONDS.labels(name), metrics.WORKQUEUE_DEPTH.labels(name)
    unfinished, longest = metrics.WORKQUEUE_UNFINISHED.labels(name), metrics.WORKQUEUE_LONGEST.labels(name)
    plane = Plane(quota({COUNT: "9"}))
    plane.held = asyncio.Event()
    rig = Rig(plane)
    before = adds.value, waited.count, worked.count

    verdicts = [asyncio.create_task(rig.verdict())]
    await plane.writing.wait()
    assert (depth.value, unfinished.value > 0, longest.value > 0) == (0, True, True)
    verdicts += [asyncio.create_task(rig.verdict()) for _ in range(3)]
    await asyncio.sleep(0)
    assert depth.value == 1
    plane.held.set()
    await asyncio.gather(*verdicts)

    assert (depth.value, unfinished.value, longest.value) == (0, 0, 0)
    assert (adds.value, waited.count, worked.count) == tuple(count + 2 for count in before)


async def test_objects_with_lone_surrogates_are_read_like_others() -> None:
    memory = Memory({"ns/a": Held("a", rb'{"name":"a","raw":"\ud800"}'), "ns/b": Held("b", b'{"name":"b"}')})
    around = Surroundings({"things": memory}, gates())

    assert await around.facts("things", lambda obj: str(obj.get("raw", obj["name"]))) == {"a": "\ufffd", "b": "b"}
    assert await around.mentioning("things", "ns", "raw") == [{"name": "a", "raw": "\ufffd"}]
