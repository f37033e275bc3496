"""Pods that do not run, as a kubelet reports them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.doctor.checks.workload import CHECKS, SHOWN
from tests.unit.doctor.recorded import (
    DEPLOYMENT,
    PLACE,
    PODS,
    SERVICE,
    Object,
    Recorded,
    codes,
    deployment,
    findings,
    pod,
    service,
)

RUNS, SECRETS = CHECKS


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "sluice", "image": "sluice", "state": state, **more}]}


KILLED: dict[str, Any] = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
UNSCHEDULED = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
]

PODS_AND_CODES = [
    (pod(**waiting("ImagePullBackOff", 'Back-off pulling image "sluice"')), ["pod-image"]),
    (pod(**waiting("ErrImageNeverPull")), ["pod-image"]),
    (pod(**waiting("CreateContainerConfigError", 'secret "sluice-store" not found')), ["pod-config"]),
    (pod(**waiting("CrashLoopBackOff", "back-off 5m0s")), ["pod-crash-loop"]),
    (pod(**waiting("CrashLoopBackOff", **KILLED)), ["pod-out-of-memory", "pod-crash-loop"]),
    (pod(phase="Pending", conditions=UNSCHEDULED), ["pod-unschedulable"]),
    (pod(), ["pod-not-ready"]),
    (pod(ready=True, containerStatuses=[{"name": "sluice", **KILLED}]), ["pod-out-of-memory"]),
    (pod(ready=True), []),
]


@pytest.mark.parametrize(("one", "expected"), PODS_AND_CODES)
async def test_doctor_says_why_a_pod_does_not_run(one: Object, expected: list[str]) -> None:
    answers = {SERVICE: service(), DEPLOYMENT: deployment(availableReplicas=1), PODS: {"items": [one]}}
    assert await codes(RUNS, Recorded(answers)) == expected


async def test_doctor_shows_a_few_of_many_pods() -> None:
    answers = {SERVICE: service(), DEPLOYMENT: deployment(), PODS: {"items": [pod() for _ in range(50)]}}
    assert await codes(RUNS, Recorded(answers)) == ["pod-not-ready"] * SHOWN


FORBIDDEN = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "violates PodSecurity"}
STUCK = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


@pytest.mark.parametrize(
    ("found", "pods", "expected"),
    [
        ({}, [], ["deployment-missing"]),
        (deployment(replicas=0), [], ["deployment-scaled-to-zero"]),
        (deployment(), [], ["pods-missing"]),
        (deployment(conditions=[FORBIDDEN]), [], ["pods-refused"]),
        (deployment(conditions=[STUCK]), [pod(ready=True)], ["deployment-rollout"]),
        (deployment(replicas=2, availableReplicas=1), [pod(ready=True)], ["deployment-rollout"]),
    ],
)
async def test_doctor_names_what_a_deployment_lacks(found: Object, pods: list[Object], expected: list[str]) -> None:
    assert await codes(RUNS, Recorded({SERVICE: service(), DEPLOYMENT: found, PODS: {"items": pods}})) == expected


async def test_doctor_names_each_secret_that_is_missing() -> None:
    variable = {"name": "SLUICE_REDIS_URL", "valueFrom": {"secretKeyRef": {"name": "sluice-store", "key": "redis-url"}}}
    made = deployment()
    made["spec"]["template"]["spec"] = {
        "containers": [{"name": "sluice", "env": [variable]}],
        "volumes": [{"name": "serving", "secret": {"secretName": "sluice-serving"}}],
    }
    answers: dict[str, Object | None] = {SERVICE: service(), DEPLOYMENT: made}
    first, second = await findings(SECRETS, Recorded(answers))
    assert (first.code, second.code) == ("secret-missing", "secret-missing")
    assert "sluice-serving" in first.text
    assert "sluice-store" in second.text
    answers |= {f"{PLACE}/secrets/{name}": {"metadata": {}} for name in ("sluice-serving", "sluice-store")}
    assert await codes(SECRETS, Recorded(answers)) == []
