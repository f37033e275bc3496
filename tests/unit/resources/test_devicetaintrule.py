"""Writes of DeviceTaintRules get the errors of kube-apiserver, letter by letter, in the releases that have the kind."""

from __future__ import annotations

import copy
import pathlib
import re
from typing import Any

import pytest
import yaml

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import SUPPORTED, V1_36, V1_37, Release, at
from apiserver.codecs.objects import canonical, decoding, defaults
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES, devicetaintrule
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle
from tests.fixtures.cases import each_case

Case = dict[str, Any]

THEN, NOW = "2026-01-01T00:00:00Z", "2026-06-01T12:00:00Z"
GROUP = "resource.k8s.io"
TABLE = pathlib.Path(__file__).resolve().parents[2] / "cases" / "device-taint-rules.yaml"
CASES: list[Case] = yaml.safe_load(TABLE.read_text())
SPEC: Object = {"taint": {"key": "example.com/unhealthy", "effect": "NoExecute", "timeAdded": THEN}}


def expanded(value: Any) -> Any:
    """Return the value with every `${text*count}` written out."""
    match value:
        case str():
            return re.sub(r"\$\{(.+?)\*(\d+)\}", lambda macro: macro[1] * int(macro[2]), value)
        case dict():
            return {name: expanded(x) for name, x in value.items()}
        case list():
            return [expanded(x) for x in value]
    return value


def context_of(release: Release) -> Context:
    return Context(gates=Gates(release=release), now=NOW)


def rule(release: Release) -> Resource:
    return at(release, devicetaintrule.RESOURCE)


def decoded(resource: Resource, members: Object, *, now: str = NOW) -> Object:
    obj = decoding.decode(resource.shape, copy.deepcopy(members)).object
    defaults.apply(resource.shape, obj, now=now)
    return obj


def stored(resource: Resource, spec: Object, status: Object | None = None) -> Object:
    metadata = {"name": "r", "uid": "u", "creationTimestamp": THEN, "generation": 1, "resourceVersion": "7"}
    return decoded(resource, {"metadata": metadata, "spec": spec, "status": status or {}}, now=THEN)


def errors_of(case: Case, release: Release) -> list[str]:
    """Return the causes of the answer; none for an accepted write."""
    resource, context = rule(release), context_of(release)
    members = {"spec": case["spec"], "status": case.get("status", {})}
    if case["operation"] == "create":
        old, new = None, decoded(resource, {"metadata": {"name": "r"}, **members})
    else:
        old = stored(resource, case["old"])
        new = decoded(resource, {"metadata": dict(old["metadata"]), **members})
    sub = resource.subresource("status") if case["operation"] == "status" else None
    if lifecycle.prepare_and_judge(context, resource, new, old, sub=sub).acceptable:
        return []
    refusal: StatusError = lifecycle.refusal(context, resource, new, old, sub=sub)
    causes = refusal.status()["details"]["causes"]
    return [f"{cause['reason']} {cause['field']}: {cause['message']}" for cause in causes]


@each_case(
    "case, release",
    [(expanded(case), release) for case in CASES for release in SUPPORTED],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(value),
)
def test_writes_get_the_errors_of_the_release(case: Case, release: Release) -> None:
    expected = case["errors"]
    assert errors_of(case, release) == (expected[str(release)] if isinstance(expected, dict) else expected)


def changed(release: Release, old: Object, new: Object) -> Object:
    """Return what is stored after an update of the spec."""
    resource = rule(release)
    before = stored(resource, old)
    after = decoded(resource, {"metadata": dict(before["metadata"]), "spec": new})
    assert lifecycle.prepare_and_judge(context_of(release), resource, after, before, sub=None).acceptable
    return after


def taint(**members: str) -> Object:
    return {"taint": {**SPEC["taint"], **members}}


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
@pytest.mark.parametrize(
    ("spec", "time"),
    [
        (taint(effect="None"), NOW),
        (taint(effect="None", timeAdded="2026-02-01T00:00:00Z"), "2026-02-01T00:00:00Z"),
        (taint(key="other", value="x"), THEN),
        (taint(timeAdded="2026-02-01T00:00:00Z"), "2026-02-01T00:00:00Z"),
        ({"taint": {"key": "example.com/unhealthy", "effect": "NoExecute"}}, NOW),
    ],
    ids=["effect", "effect and time", "key and value", "time", "time left out"],
)
def test_the_time_of_a_taint_follows_a_change_of_its_effect(release: Release, spec: Object, time: str) -> None:
    after = changed(release, SPEC, spec)
    assert after["spec"]["taint"]["timeAdded"] == time
    assert after["metadata"]["generation"] == 2


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
def test_an_update_without_a_change_keeps_generation_and_time(release: Release) -> None:
    after = changed(release, SPEC, SPEC)
    assert after["spec"] == SPEC
    assert after["metadata"]["generation"] == 1


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
def test_a_new_rule_has_the_time_of_its_creation_and_no_status(release: Release) -> None:
    resource = rule(release)
    sent = {
        "metadata": {"name": "r"},
        "spec": {"taint": {"key": "a", "effect": "None"}},
        "status": {"conditions": [{}]},
    }
    made = decoded(resource, sent)
    assert lifecycle.prepare_and_judge(context_of(release), resource, made, None, sub=None).acceptable
    assert made["spec"]["taint"]["timeAdded"] == NOW
    assert made["metadata"]["generation"] == 1
    assert "status" not in made


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
def test_preparing_an_update_leaves_the_sent_taint_as_it_is(release: Release) -> None:
    """A PUT is prepared again after a conflict, from the same decoded body."""
    resource = rule(release)
    before = stored(resource, SPEC)
    sent = decoded(resource, {"metadata": dict(before["metadata"]), "spec": taint(effect="None")})
    lifecycle.prepare_update(context_of(release), resource, {**sent, "spec": dict(sent["spec"])}, before, sub=None)
    assert sent["spec"]["taint"]["timeAdded"] == THEN


@pytest.mark.parametrize(
    ("release", "runtime_config", "versions"),
    [
        (V1_36, {}, ["v1beta2"]),
        (V1_36, {f"{GROUP}/v1alpha3": "true"}, ["v1beta2", "v1alpha3"]),
        (V1_36, {f"{GROUP}/v1beta2": "false"}, []),
        (V1_37, {}, ["v1", "v1beta2"]),
        (V1_37, {"api/alpha": "true"}, ["v1", "v1beta2", "v1alpha3"]),
    ],
)
def test_a_release_serves_its_versions(release: Release, runtime_config: dict[str, str], versions: list[str]) -> None:
    kinds = Kinds(RESOURCES, group=GROUP, runtime_config=runtime_config, release=release)
    assert [kind.version for kind in kinds if kind.kind == "DeviceTaintRule"] == versions


def test_other_groups_serve_the_stable_version_alone() -> None:
    for release, versions in ((V1_36, []), (V1_37, ["v1"])):
        kinds = Kinds(RESOURCES, group="resource.example.com", release=release)
        assert [kind.version for kind in kinds if kind.kind == "DeviceTaintRule"] == versions


@pytest.mark.parametrize(("writer", "reader"), [(V1_36, V1_37), (V1_37, V1_36)], ids=["upgrade", "rollback"])
def test_another_release_reads_what_one_has_stored(writer: Release, reader: Release) -> None:
    selector = {"driver": "gpu.example.com", "pool": "p", "device": "d"}
    condition = {"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": THEN}
    obj = stored(rule(writer), {"deviceSelector": selector, **SPEC}, {"conditions": [condition]})
    value = canonical.encode(rule(writer).shape, obj)
    read = canonical.decode(rule(reader).shape, value)
    assert (read["spec"], read["status"]) == (obj["spec"], obj["status"])
    assert canonical.encode(rule(reader).shape, read) == value
