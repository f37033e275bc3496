"""Values of expressions that no object can have, in configurations of mutating policies: results and messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.promises.admission.cluster import Cluster
from tests.promises.admission.rig import NAME_LABEL, Rig
from tests.promises.api.client import Client, claim
from tests.promises.api.target import Target

CASE = "case.sluice.dev/value"
Object = dict[str, Any]
_NUMBERS = itertools.count()
TYPED = "error applying patch: failed to convert patch object to typed object: "
DEVICE = '.status.devices[device="d",driver="d.example.com",pool="p"]'
DEVICES = "Object{{status: Object.status{{devices: [Object.status.devices{{driver: 'd.example.com', pool: 'p', device: 'd', data: {}}}]}}}}"
NO_NUMBER = "unable to convert unstructured object to {group}/v1, Kind=ResourceClaim: error encoding "


def metadata(member: str, value: str) -> str:
    return f"Object{{metadata: Object.metadata{{{member}: {value}}}}}"


def device(value: str) -> str:
    """A device whose data, which may be any JSON, are this."""
    return DEVICES.format(value)


REFUSED: Mapping[str, tuple[str, str]] = {
    "null-anywhere": (device("null"), f"{TYPED}{DEVICE}.data: expected map, got &{{NULL_VALUE}}"),
    "unsigned-anywhere": (device("1u"), f"{TYPED}{DEVICE}.data: expected map, got &{{1}}"),
    "bytes-anywhere": (device("b'ab'"), f"{TYPED}{DEVICE}.data: expected map, got &{{[97 98]}}"),
    "null-in-a-list": (device("[null]"), f"{TYPED}{DEVICE}.data[0]: expected map, got &{{NULL_VALUE}}"),
    "unsigned-in-a-map": (device("{'a': 1u}"), f"{TYPED}{DEVICE}.data.a: expected map, got &{{1}}"),
    "no-number-anywhere": (
        device("double('NaN')"),
        f"{NO_NUMBER}runtime.RawExtension to json: json: unsupported value: NaN",
    ),
    "no-number-for-a-time": (
        metadata("creationTimestamp", "double('-Infinity')"),
        f"{NO_NUMBER}v1.Time to json: json: unsupported value: -Inf",
    ),
    "null-in-a-set": (
        metadata("finalizers", "[null]"),
        f"{TYPED}.metadata.finalizers[={{{{undefined}}}}]: expected string, got &value.valueUnstructured{{Value:0}}",
    ),
    "nothing-in-a-set": (
        metadata("finalizers", "[optional.none()]"),
        f"{TYPED}.metadata.finalizers: element 0: associative list without keys has an element that's an explicit null",
    ),
    "bytes-for-a-text": (
        metadata("generateName", "b'ab'"),
        f"{TYPED}.metadata.generateName: expected string, got &value.valueUnstructured{{Value:[]uint8{{0x61, 0x62}}}}",
    ),
    "time-for-a-text": (
        metadata("generateName", "timestamp('2026-01-02T03:04:05.006Z')"),
        (
            f"{TYPED}.metadata.generateName: expected string, got &value.valueUnstructured{{Value:"
            "time.Date(2026, time.January, 2, 3, 4, 5, 6000000, time.UTC)}"
        ),
    ),
    "quantity-for-a-number": (
        metadata("generation", "quantity('1')"),
        f"{TYPED}.metadata.generation: expected numeric (int or float), got *resource.Quantity",
    ),
    "authorizer": (metadata("labels", "authorizer"), f"{TYPED}.metadata.labels: expected map, got &{{no such overload}}"),
    "patch-in-a-patch": (
        "[JSONPatch{op: 'add', path: '/spec/x', value: JSONPatch{}}]",
        "JSONPath valueExpression evaluated to a type that could not marshal to JSON: cannot convert to native type: *structpb.Value",
    ),
}  # fmt: skip
NOTHING = ("Object{spec: optional.none()}", metadata("generation", "optional.none()"), device("optional.none()"))
KINDLESS: Mapping[str, str] = {
    "[]": "array into Go struct field .kind of type string",
    "{'a': 'b'}": "object into Go struct field .kind of type string",
    "7": "number into Go struct field .kind of type string",
}
ABSENT_IS_NULL = (
    "[JSONPatch{op: 'test', path: '/metadata/ownerReferences', value: null},"
    " JSONPatch{op: 'add', path: '/metadata/generateName', value: 'x-'}]"
)
NUMBERS = (
    "[JSONPatch{op: 'add', path: '/spec/devices/config', value: [{'opaque': {'driver': dyn('d.example.com'),"
    " 'parameters': dyn({'a': 1e300, 'b': 1.5e-7, 'c': 2.0, 'd': 1e21})}}]}]"
)
EXPRESSIONS = {
    "absent-is-null": ABSENT_IS_NULL,
    "numbers": NUMBERS,
    **{name: expression for name, (expression, _) in REFUSED.items()},
    **{f"nothing-{at}": expression for at, expression in enumerate(NOTHING)},
    **{
        f"kindless-{at}": f"[JSONPatch{{op: 'add', path: '/kind', value: {value}}}]"
        for at, value in enumerate(KINDLESS)
    },
}


@pytest.fixture(scope="module")
def standing(cluster: Cluster) -> Iterator[Callable[[Target], Rig]]:
    """A policy for each expression, on a target; each concerns the objects that carry its name as a label."""
    made: dict[str, Rig] = {}

    def of(target: Target) -> Rig:
        if target.name not in made:
            api = Client(target)
            rig = made[target.name] = Rig(cluster, target, api, api.namespace(f"values{next(_NUMBERS)}"))
            for name, expression in EXPRESSIONS.items():
                patches = expression.startswith("[")
                sort, member = ("JSONPatch", "jsonPatch") if patches else ("ApplyConfiguration", "applyConfiguration")
                constraints = {
                    "resourceRules": [rig.rule("resourceclaims")],
                    "namespaceSelector": {"matchLabels": {NAME_LABEL: rig.mine}},
                    "objectSelector": {"matchLabels": {CASE: name}},
                }
                mutations = [{"patchType": sort, member: {"expression": expression}}]
                spec = {"mutations": mutations, "matchConstraints": constraints}
                rig.policy("mutating", spec, name=f"{rig.mine}-{name}", wait=False)
            rig.wait_until_in_force("policies", "mutating")
        return made[target.name]

    yield of
    for rig in made.values():
        rig.leave()
        rig.api.leave()
        rig.api.close()


@pytest.fixture
def stage(standing: Callable[[Target], Rig], target: Target) -> Rig:
    return standing(target)


def example(name: str) -> Object:
    return claim(name, labels={CASE: name})


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_no_object_can_have_refuses_the_write(stage: Rig, name: str) -> None:
    refusal = stage.api.refusal("POST", stage.claims, example(name))

    policy, said = f"{stage.mine}-{name}", REFUSED[name][1].replace("{group}", stage.group)
    assert (refusal.code, refusal.message) == (403, f"policy '{policy}' with binding '{policy}' denied request: {said}")


@pytest.mark.parametrize("at", range(len(NOTHING)))
def test_a_member_that_is_an_optional_without_a_value_changes_nothing(stage: Rig, at: int) -> None:
    made = stage.api.create(stage.claims, example(f"nothing-{at}"))
    assert made["spec"]["devices"]["requests"][0]["name"] == "gpu"
    assert "generation" not in made["metadata"]


@pytest.mark.parametrize("at", range(len(KINDLESS)))
def test_kind_that_is_no_text_is_reported(stage: Rig, at: int) -> None:
    refusal = stage.api.refusal("POST", stage.claims, example(f"kindless-{at}"))

    said = f"couldn't get version/kind; json parse error: json: cannot unmarshal {list(KINDLESS.values())[at]}"
    assert (refusal.code, refusal.message) == (500, f"Internal error occurred: {said}")


def test_absent_member_is_not_null_for_a_patch_test(stage: Rig) -> None:
    made = stage.api.create(stage.claims, example("absent-is-null"))
    assert "generateName" not in made["metadata"]


def test_numbers_of_a_patch_are_spelled_as_go_spells_them(stage: Rig) -> None:
    reply = stage.api.ask("POST", stage.claims, example("numbers"))
    assert '"parameters":{"a":1e+300,"b":1.5e-7,"c":2,"d":1e+21}' in reply.text
