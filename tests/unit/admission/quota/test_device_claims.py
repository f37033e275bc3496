"""Usage of device-class quotas by claims, in the group in which kube-apiserver has its own."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.admission.quota import pods
from apiserver.apimachinery.releases import V1_36
from apiserver.schema.resource import Object
from tests.unit.admission.quota.plane import COUNT, OWN, Plane, Rig, claim, device_class, exactly, forbidden, quota

GOLD, SILVER = (f"{name}.deviceclass.resource.k8s.io/devices" for name in ("gold", "silver"))
IMPLICIT, EXTENDED = "requests.deviceclass.resource.kubernetes.io/gold", "requests.example.com/gpu"
HARD = dict.fromkeys((COUNT, GOLD, SILVER, IMPLICIT, EXTENDED), "100")


def first_available(*alternatives: Object) -> Object:
    return {"name": "f", "firstAvailable": [exactly(**how)["exactly"] | {"name": "s"} for how in alternatives]}


def rig(hard: dict[str, str] | None = None, *classes: Object, **how: Any) -> Rig:
    made = Rig(Plane(quota(hard or HARD)), **how)
    for item in classes:
        made.memories["resource.k8s.io/deviceclasses"].put(item)
    return made


async def used(made: Rig, obj: Object) -> dict[str, str]:
    """Usage of the quota after the claim, without zeros."""
    assert await made.verdict(obj=obj) == ""
    return {name: amount for name, amount in made.plane.used().items() if amount != "0"}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([], {}),
        ([exactly("gold")], {GOLD: "1"}),
        ([exactly("gold", 2), exactly("gold", 3), exactly("silver")], {GOLD: "5", SILVER: "1"}),
        ([exactly("gold", mode="All")], {GOLD: "32"}),
        ([exactly("gold", mode="Later")], {}),
        (
            [
                first_available(
                    {"device_class": "gold", "count": 2},
                    {"device_class": "gold", "count": 3},
                    {"device_class": "silver", "mode": "All"},
                ),
                exactly("gold"),
            ],
            {GOLD: "4", SILVER: "32"},
        ),
        ([{"name": "unknown"}], {}),
    ],
)
async def test_each_request_counts_as_the_most_it_can_be_given(requests: list[Object], expected: Any) -> None:
    expected = {COUNT: "1", **expected}
    implicit = {IMPLICIT: expected[GOLD]} if GOLD in expected else {}
    assert await used(rig(), claim(*requests)) == expected | implicit


async def test_devices_count_under_the_names_by_which_pods_ask_for_them() -> None:
    made = rig(None, device_class("gold", "example.com/gpu"), device_class("silver"))
    assert await used(made, claim(exactly("gold", 2))) == {COUNT: "1", GOLD: "2", IMPLICIT: "2", EXTENDED: "2"}


async def test_quota_names_of_classes_and_extended_resources_concern_claims() -> None:
    refused = "exceeded quota: q, requested: {0}=2, used: {0}=0, limited: {0}=1"
    for name, classes in [(IMPLICIT, [device_class("gold")]), (EXTENDED, [device_class("gold", "example.com/gpu")])]:
        made = rig({name: "1"})
        memory = made.memories["resource.k8s.io/deviceclasses"]
        obj = claim(exactly("gold", 2))
        assert await made.verdict(obj=obj) == ""
        assert made.plane.writes == []
        memory.put(classes[0])
        assert await made.verdict(obj=obj) == forbidden(refused.format(name))
        memory.remove("gold")
        assert await made.verdict(obj=obj) == ""


async def test_without_the_feature_only_classes_count() -> None:
    gold, off = device_class("gold", "example.com/gpu"), {"DRAExtendedResource": False}
    made = rig(None, gold, release=V1_36, on=off)
    assert await used(made, claim(exactly("gold", 2))) == {COUNT: "1", GOLD: "2"}
    made = rig({EXTENDED: "0"}, gold, release=V1_36, on=off)
    assert await made.verdict(obj=claim(exactly("gold", 2))) == ""


async def test_in_another_group_only_the_number_counts() -> None:
    plane = Plane(quota({GOLD: "0", f"count/resourceclaims.{OWN}": "1"}))
    assert await Rig(plane, group=OWN).verdict(obj=claim(exactly("gold"))) == ""
    assert plane.writes == [{GOLD: "0", f"count/resourceclaims.{OWN}": "1"}]


async def test_update_claims_its_growth_and_fails_when_usage_is_unknown() -> None:
    made = rig({GOLD: "3"})
    one, three = claim(exactly("gold")), claim(exactly("gold", 3))
    assert await made.verdict("UPDATE", obj=three, old=one) == ""
    assert made.plane.used() == {GOLD: "2"}
    assert await made.verdict("UPDATE", obj=one, old=three) == ""
    assert await made.verdict("UPDATE", obj=one, old=one, subresource="status") == ""
    assert len(made.plane.writes) == 1
    assert "exceeded" in await made.verdict("UPDATE", obj=three, old=one)
    unknown = Rig(Plane(quota({GOLD: "3"}, {})))
    assert "status unknown" in await unknown.verdict("UPDATE", obj=one, old=one)


async def test_a_number_below_zero_is_refused() -> None:
    text = await rig().verdict(obj=claim(exactly("gold", -1)))
    assert text == forbidden(f"quota usage is negative for resource(s): {GOLD}")


async def test_classes_are_read_once_for_each_of_their_versions() -> None:
    made = rig(None, device_class("gold", "example.com/gpu"))
    memory = made.memories["resource.k8s.io/deviceclasses"]
    for _ in range(3):
        await made.ask(obj=claim(exactly("gold")))
    assert memory.scans == 1
    memory.objects["broken"] = memory.objects["gold"].__class__("broken", b"{", readable=False)
    memory.put(device_class("gold", "example.com/other"))
    await made.ask(obj=claim(exactly("gold")))
    assert (memory.scans, made.plane.used()[EXTENDED]) == (2, "3")


# ---------------------------------------------------------------------------------------------------------------- pods

CONTAINER = {"name": "c", "resources": {"requests": {"example.com/gpu": "2", "cpu": "1"}}}


def pod(*containers: Object, uid: str = "u", status: Object | None = None, **metadata: Any) -> Object:
    spec = {"containers": list(containers or [CONTAINER])}
    return {"metadata": {"name": "p", "uid": uid, **metadata}, "spec": spec, "status": status or {}}


def of_pod(*requests: Object, name: str = "c", created: str = "2026-01-01T00:00:01Z", **owner: Any) -> Object:
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u", "controller": True, **owner}
    return claim(
        *requests,
        name=name,
        creationTimestamp=created,
        annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
        ownerReferences=[{"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "j"}, reference],
    )


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        (pod(), "1"),
        (pod(status={"extendedResourceClaimStatus": {"resourceClaimName": "c"}}), "1"),
        (pod(status={"extendedResourceClaimStatus": {"resourceClaimName": "other"}}), "3"),
        (pod(status={"phase": "Succeeded"}), "3"),
        (pod(deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=30), "3"),
        (pod(uid="another"), "3"),
        (None, "3"),
    ],
)
async def test_usage_counted_for_the_pod_of_a_claim_does_not_count_twice(found: Object | None, counts: str) -> None:
    made = rig(None, device_class("gold", "example.com/gpu"))
    if found is not None:
        made.plane.pods["p"] = found
    assert await used(made, of_pod(exactly("gold", 3))) == {COUNT: "1", GOLD: "3", IMPLICIT: "3", EXTENDED: counts}


@pytest.mark.parametrize("owner", [{"kind": "Job"}, {"apiVersion": "v2"}, {"controller": False}])
async def test_no_pod_is_asked_about_unless_it_controls_the_claim(owner: Any) -> None:
    made = rig(None, device_class("gold", "example.com/gpu"))
    assert (await used(made, of_pod(exactly("gold"), **owner)))[EXTENDED] == "1"
    assert made.plane.asked == ["update q"]


async def test_first_of_several_claims_of_a_pod_is_the_one_it_asked_for() -> None:
    made = rig(None, device_class("gold", "example.com/gpu"))
    made.plane.pods["p"] = pod()
    others = made.memories["resource.k8s.io/resourceclaims"]
    others.put(of_pod(name="b", created="2026-01-01T00:00:02Z"))
    others.put(of_pod(name="d"))
    others.put(claim(name="mentions", labels={"a": "u"}))
    assert EXTENDED not in await used(made, of_pod(exactly("gold", 2)))
    others.put(of_pod(name="a"))
    assert (await used(made, of_pod(exactly("gold", 2))))[EXTENDED] == "2"


def _container(amount: str, *, name: str = "c", **more: Any) -> Object:
    return {"name": name, "resources": {"requests": {"example.com/gpu": amount}}, **more}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"containers": [_container("1"), _container("2", name="d")]}, {}, "3"),
        ({"containers": [_container("1")], "initContainers": [_container("4"), _container("2")]}, {}, "4"),
        (
            {
                "containers": [_container("1")],
                "initContainers": [_container("2", restartPolicy="Always"), _container("4")],
            },
            {},
            "6",
        ),
        ({"containers": [_container("1")], "overhead": {"example.com/gpu": "1"}}, {}, "2"),
        (
            {"containers": [_container("1")]},
            {"containerStatuses": [{**_container("3"), "allocatedResources": {"example.com/gpu": "4"}}]},
            "4",
        ),
        (
            {"containers": [_container("9")]},
            {
                "containerStatuses": [_container("3")],
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
            },
            "3",
        ),
    ],
)
def test_a_pod_uses_what_its_containers_need_at_the_same_time(spec: Object, status: Object, expected: str) -> None:
    assert pods.requests({"spec": spec, "status": status})["example.com/gpu"].canonical() == expected
