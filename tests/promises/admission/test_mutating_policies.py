"""Results of mutating policies, and the messages of those that fail.

The policies of most promises stand for the whole file: each concerns the objects of the test's namespace that carry its name as a label.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.e2e.controlplane import bed
from tests.e2e.controlplane.plane import until
from tests.promises.admission.cluster import Cluster
from tests.promises.admission.hooks import patch
from tests.promises.admission.rig import NAME_LABEL, Rig
from tests.promises.api.client import ALLOCATED, MERGE, Client, claim, device_class
from tests.promises.api.target import Target

CASE = "case.sluice.dev/name"
Object = dict[str, Any]
_NUMBERS = itertools.count()
LABELS = "Object{{metadata: Object.metadata{{labels: {{{}}}}}}}"


def mutation(expression: str) -> Object:
    """A configuration that is applied, or if it is a list a JSON patch."""
    if expression.lstrip().startswith("["):
        return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def labels(**expressions: str) -> str:
    """A configuration with these labels, each the expression of its value."""
    return LABELS.format(", ".join(f"'{name}': {value}" for name, value in expressions.items()))


def annotation(name: str, value: str) -> str:
    return f"Object{{metadata: Object.metadata{{annotations: {{'{name}': {value}}}}}}}"


LOOP = "[0,1,2,3,4,5,6,7,8,9]"
ENDLESS = f"{LOOP}.all(a, {LOOP}.all(b, {LOOP}.all(c, {LOOP}.all(d, {LOOP}.all(e, {LOOP}.all(f, a + b + c + d + e + f >= 0))))))"
BOTH_WAYS = "Object{spec: Object.spec{devices: Object.spec.devices{"
REQUEST = "[Object.spec.devices.requests{name: 'two'}]"
TWO = "Object.spec.devices.requests{name: 'two', exactly: Object.spec.devices.requests.exactly{deviceClassName: 'x'}}"
APPLY, TYPED = "error applying patch: ", "error applying patch: failed to convert patch object to typed object: "
PLACE = ", which matches field name path from root Object type"
UNMARSHALLED = "JSONPath valueExpression evaluated to a type that could not marshal to JSON: "

MADE: Mapping[str, tuple[list[str], Callable[[Object], Any], Any]] = {
    # ApplyConfiguration
    "merge": ([labels(new="'1'", kept="'2'")], lambda o: o["metadata"]["labels"], {"mine": "0", "new": "1", "kept": "2"}),
    "nothing": (["Object{}"], lambda o: o["metadata"]["labels"], {"mine": "0", "kept": "0"}),
    "order": ([labels(one="'1'"), labels(two="object.metadata.labels.one + '2'")], lambda o: o["metadata"]["labels"]["two"], "12"),
    "type-meta": (["Object{kind: 'Pod', apiVersion: 'v9'}"], lambda o: o["kind"], "ResourceClaim"),
    "set": (["Object{metadata: Object.metadata{finalizers: ['a.b/z', 'a.b/a']}}"],
        lambda o: o["metadata"]["finalizers"], ["a.b/z", "a.b/a"]),
    "optional": ([f"{BOTH_WAYS}?requests: optional.none()}}}}}}"], lambda o: len(o["spec"]["devices"]["requests"]), 1),
    "request": ([annotation("a", "request.operation + request.resource.resource + request.userInfo.username")],
        lambda o: o["metadata"]["annotations"]["a"], "CREATEresourceclaimskubernetes-admin"),
    "namespace": ([annotation("a", f"namespaceObject.metadata.labels['{NAME_LABEL}'] + string(oldObject == null)")],
        lambda o: o["metadata"]["annotations"]["a"], "{mine}true"),
    "authorizer": ([annotation("a", "string(authorizer.requestResource.check('create').allowed())")],
        lambda o: o["metadata"]["annotations"]["a"], "true"),
    "variables": ([annotation("a", "variables.both")], lambda o: o["metadata"]["annotations"]["a"], "xy"),
    "name": (["Object{metadata: Object.metadata{generateName: 'other-'}}"], lambda o: o["metadata"]["generateName"], "other-"),
    # JSONPatch
    "escaped": (["[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: '1'}]"],
        lambda o: o["metadata"]["labels"]["a.b/c"], "1"),
    "steps": ([("[JSONPatch{op: 'copy', from: '/metadata/labels/mine', path: '/metadata/labels/copy'},"
        " JSONPatch{op: 'move', from: '/metadata/labels/kept', path: '/metadata/labels/moved'},"
        " JSONPatch{op: 'remove', path: '/metadata/labels/mine'}]")], lambda o: o["metadata"]["labels"], {"copy": "0", "moved": "0"}),
    "tested": ([("[JSONPatch{op: 'add', path: '/metadata/labels/a', value: '1'},"
        " JSONPatch{op: 'test', path: '/metadata/labels/a', value: '2'}]"), labels(b="'3'")],
        lambda o: o["metadata"]["labels"], {"mine": "0", "kept": "0", "b": "3"}),
    "passed": ([("[JSONPatch{op: 'test', path: '/metadata/labels/mine', value: '0'},"
        " JSONPatch{op: 'add', path: '/metadata/labels/a', value: '1'}]")], lambda o: o["metadata"]["labels"]["a"], "1"),
    "defaulted": ([f"[JSONPatch{{op: 'add', path: '/spec/devices/requests/-', value: {TWO}}}]"],
        lambda o: o["spec"]["devices"]["requests"][1]["exactly"], {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}),
    "number": (["[JSONPatch{op: 'add', path: '/spec/devices/requests/0/exactly/count', value: 2}]"],
        lambda o: o["spec"]["devices"]["requests"][0]["exactly"]["count"], 2),
    "double": (["[JSONPatch{op: 'add', path: '/spec/devices/requests/0/exactly/count', value: 2.0}]"],
        lambda o: o["spec"]["devices"]["requests"][0]["exactly"]["count"], 2),
    "null": (["[JSONPatch{op: 'add', path: '/metadata/labels/mine', value: null}]"], lambda o: o["metadata"]["labels"]["mine"], ""),
    "typed-values": ([("[JSONPatch{op: 'add', path: '/metadata/annotations', value:"
        " {'bytes': dyn(b'x'), 'duration': dyn(duration('90s')), 'time': dyn(timestamp('2026-01-02T03:04:05Z')),"
        " 'large': dyn(9007199254740992)}}]")],
        lambda o: o["metadata"]["annotations"],
        {"bytes": "eA==", "duration": "90s", "time": "2026-01-02T03:04:05Z", "large": "9007199254740992"}),
    "raw": ([("[JSONPatch{op: 'add', path: '/spec/devices/config', value: [{'opaque': {'driver': dyn('d.example.com'),"
        " 'parameters': dyn({'q': dyn(1.5), 'a': dyn({'z': 2.0, 'b': 1.0})})}}]}]"), labels(x="'1'")],
        lambda o: json.dumps(o["spec"]["devices"]["config"][0]["opaque"]["parameters"]), '{{"a": {{"b": 1, "z": 2}}, "q": 1.5}}'),
    "patches-in-turn": (["[JSONPatch{op: 'add', path: '/metadata/labels/a', value: '1'}]",
        "[JSONPatch{op: 'add', path: '/metadata/labels/b', value: object.metadata.labels.a + '2'}]"],
        lambda o: o["metadata"]["labels"]["b"], "12"),
    "missing-replaced": (["[JSONPatch{op: 'replace', path: '/metadata/labels/none', value: '1'}]"],
        lambda o: o["metadata"]["labels"]["none"], "1"),
    "fields": ([("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'op': JSONPatch{op: 'x'}.op,"
        " 'set': string(has(JSONPatch{}.op))}}]")],
        lambda o: o["metadata"]["labels"], {"op": "x", "set": "false"}),
}  # fmt: skip
"""By name: the mutations, what of the object is looked at, and what that is."""

REFUSED: Mapping[str, tuple[list[str], str]] = {
    "atomic-list": ([f"{BOTH_WAYS}requests: {REQUEST}}}}}}}"],
        f"{APPLY}invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.devices.requests"),
    "managed": (["Object{metadata: Object.metadata{managedFields: [Object.metadata.managedFields{manager: 'x'}]}}"],
        f"{APPLY}invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .metadata.managedFields"),
    "undeclared": (["Object{spec: Object.spec{nope: 1}}"], f"{TYPED}.spec.nope: field not declared in schema"),
    "no-text": ([labels(a="1")], f"{TYPED}.metadata.labels.a: expected string, got &value.valueUnstructured{{Value:1}}"),
    "no-map": (["Object{spec: 'x'}"], f"{TYPED}.spec: expected map, got &{{x}}"),
    "no-list": (["Object{metadata: Object.metadata{finalizers: 'x'}}"], f"{TYPED}.metadata.finalizers: expected list, got &{{x}}"),
    "no-number": (["Object{metadata: Object.metadata{generation: 'x'}}"],
        f"{TYPED}.metadata.generation: expected numeric (int or float), got string"),
    "null-text": (["Object{metadata: Object.metadata{generateName: null}}"],
        f"{TYPED}.metadata.generateName: expected string, got &value.valueUnstructured{{Value:0}}"),
    "null-map": (["Object{spec: null}"], f"{TYPED}.spec: expected map, got &{{NULL_VALUE}}"),
    "null-number": (["Object{metadata: Object.metadata{generation: null}}"],
        f"{TYPED}.metadata.generation: expected numeric (int or float), got structpb.NullValue"),
    "unsigned": (["Object{metadata: Object.metadata{generation: 1u}}"],
        f"{TYPED}.metadata.generation: expected numeric (int or float), got uint64"),
    "duration": (["Object{spec: duration('1s')}"], f"{TYPED}.spec: expected map, got &{{1s}}"),
    "twice": (["Object{metadata: Object.metadata{finalizers: ['a.b/c', 'a.b/c']}}"],
        f'{TYPED}.metadata.finalizers: duplicate entries for key [="a.b/c"]'),
    "misnamed": (["Object{metadata: Object.spec{}}"],
        f'type mismatch: unexpected type name "Object.spec", expected "Object.metadata"{PLACE}'),
    "key-no-text": (["Object{metadata: Object.metadata{labels: {1: 'x'}}}"],
        f"{TYPED}.metadata: expected map, got &{{fail to convert field \"labels\": map key '\\x01' is of type types.Int, not string}}"),
    "first-key-no-text": (["Object{spec: {1: 'x'}}"], "invalid return type: *dynamic.ObjectVal"),
    "division": (["Object{metadata: Object.metadata{generation: 1 / 0}}"],
        "expression 'Object{metadata: Object.metadata{generation: 1 / 0}}' resulted in error: division by zero"),
    "missing-key": ([annotation("a", "object.metadata.labels.none")],
        f"expression '{annotation('a', 'object.metadata.labels.none')}' resulted in error: no such key: none"),
    "no-way": (["[JSONPatch{op: 'add', path: '/spec/nope/x', value: 1}]"],
        'JSON Patch: add operation does not apply: doc is missing path: "/spec/nope/x": missing value'),
    "not-there": (["[JSONPatch{op: 'remove', path: '/metadata/labels/none'}]"],
        "JSON Patch: error in remove for path: '/metadata/labels/none': Unable to remove nonexistent key: none: missing value"),
    "no-index": (["[JSONPatch{op: 'replace', path: '/spec/devices/requests/-', value: 1}]"],
        "JSON Patch: replace operation does not apply: doc is missing key: /spec/devices/requests/-: missing value"),
    "bad-index": (["[JSONPatch{op: 'add', path: '/spec/devices/requests/x', value: 1}]"],
        ("JSON Patch: error in add for path: '/spec/devices/requests/x': value was not a proper array index: 'x':"
        ' strconv.Atoi: parsing "x": invalid syntax')),
    "far-index": (["[JSONPatch{op: 'add', path: '/spec/devices/requests/9', value: 1}]"],
        "JSON Patch: error in add for path: '/spec/devices/requests/9': Unable to access invalid index: 9: invalid index referenced"),
    "no-operation": (["[JSONPatch{op: 'nope', path: '/x'}]"], "JSON Patch: Unexpected kind: nope"),
    "no-path": (["[JSONPatch{op: 'add', value: 1}]"], 'JSON Patch: add operation does not apply: doc is missing path: "": missing value'),
    "no-source": (["[JSONPatch{op: 'move', path: '/a'}]"],
        "JSON Patch: move operation failed to decode from: operation, missing from field: missing value"),
    "no-json": (["[JSONPatch{op: 'add', path: '/spec/x', value: type(1)}]"], f"{UNMARSHALLED}type conversion not supported for 'type'"),
    "misnamed-value": (["[JSONPatch{op: 'add', path: '/spec/x', value: Object.spec{a: Object.b{}}}]"],
        f'type mismatch: unexpected type name "Object.b", expected "Object.spec.a"{PLACE}'),
    "budget": ([annotation("a", f"string({ENDLESS})")],
        f"expression '{annotation('a', f'string({ENDLESS})')}' resulted in error: operation cancelled: actual cost limit exceeded"),
}  # fmt: skip
"""By name: the mutations, and what the refusal says after the names of policy and binding."""

BROKEN: Mapping[str, tuple[list[str], str]] = {
    "unknown-field": (["[JSONPatch{op: 'add', path: '/spec/nope', value: 1}, JSONPatch{op: 'add', path: '/nope', value: 1}]"],
        'strict decoding error: unknown field "nope", unknown field "spec.nope"'),
    "wrong-type": (["[JSONPatch{op: 'replace', path: '/metadata/labels', value: 1}]"],
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type map[string]string"),
    "other-version": (["[JSONPatch{op: 'replace', path: '/apiVersion', value: 'nope/v1'}]"],
        'no kind "ResourceClaim" is registered for version "nope/v1" in scheme "pkg/runtime/scheme.go:111"'),
    "no-object": (["[JSONPatch{op: 'replace', path: '', value: []}]"],
        ("couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type"
        ' struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }')),
    "other-kind": (["[JSONPatch{op: 'replace', path: '/kind', value: 'Nope'}]"],
        'no kind "Nope" is registered for version "{group}/v1" in scheme "pkg/runtime/scheme.go:111"'),
}  # fmt: skip
"""By name: the mutations, and what is said to have been an internal error."""


@pytest.fixture(scope="module")
def standing(cluster: Cluster) -> Iterator[Callable[[Target], Rig]]:
    """The policies of the tables above, on a target."""
    made: dict[str, Rig] = {}
    clients: list[Client] = []

    def of(target: Target) -> Rig:
        if target.name not in made:
            api = Client(target)
            clients.append(api)
            rig = made[target.name] = Rig(cluster, target, api, api.namespace(f"mutating{next(_NUMBERS)}"))
            cases: dict[str, list[str]] = {
                name: case[0] for table in (MADE, REFUSED, BROKEN) for name, case in table.items()
            }
            for name, mutations in cases.items():
                constraints = {
                    "resourceRules": [rig.rule("resourceclaims")],
                    "namespaceSelector": {"matchLabels": {NAME_LABEL: rig.mine}},
                    "objectSelector": {"matchLabels": {CASE: name}},
                }
                variables = [{"name": "x", "expression": "'x'"}, {"name": "both", "expression": "variables.x + 'y'"}]
                spec = {
                    "mutations": [mutation(each) for each in mutations],
                    "matchConstraints": constraints,
                    "variables": variables,
                }
                rig.policy("mutating", spec, name=f"{rig.mine}-{name}", wait=False)
            rig.wait_until_in_force("policies", "mutating")
        return made[target.name]

    yield of
    for rig in made.values():
        rig.leave()
        rig.api.leave()
    for client in clients:
        client.close()


@pytest.fixture
def stage(standing: Callable[[Target], Rig], target: Target) -> Rig:
    return standing(target)


def example(name: str) -> Object:
    return claim(name, labels={CASE: name, "mine": "0", "kept": "0"})


def denied(name: str, said: str) -> str:
    return f"policy '{name}' with binding '{name}' denied request: {said}"


@pytest.mark.parametrize("name", MADE)
def test_a_mutation_makes_of_an_object(stage: Rig, name: str) -> None:
    _, look, expected = MADE[name]
    made = stage.api.create(stage.claims, example(name))
    made["metadata"]["labels"].pop(CASE, None)
    found = look(made)
    assert found == (expected.format(mine=stage.mine) if isinstance(expected, str) else expected)


@pytest.mark.parametrize("name", REFUSED)
def test_a_mutation_that_cannot_be_made_refuses_the_write(stage: Rig, name: str) -> None:
    refusal = stage.api.refusal("POST", stage.claims, example(name))
    message = denied(f"{stage.mine}-{name}", REFUSED[name][1])
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Invalid", message)
    assert refusal.details == {
        "name": name, "group": stage.group, "kind": "resourceclaims", "causes": [{"message": message}]
    }  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_mutation_that_leaves_no_object_is_an_internal_error(stage: Rig, name: str) -> None:
    refusal = stage.api.refusal("POST", stage.claims, example(name))
    message = f"Internal error occurred: {BROKEN[name][1].replace('{group}', stage.group)}"
    assert (refusal.code, refusal.reason, refusal.message) == (500, "InternalError", message)


CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


ROLES = "/apis/rbac.authorization.k8s.io/v1/{}"


@pytest.fixture
def readable(rig: Rig) -> None:
    """Sluice may follow the kinds that these policies take as parameters. Nobody fills its aggregated role here."""
    kind, name = "ClusterRole", f"params-{rig.mine}"
    rules = [{"apiGroups": ["", rig.group], "resources": ["configmaps", "deviceclasses"], "verbs": ["list", "watch"]}]
    metadata = {"metadata": {"name": name}}
    rig.api.create(ROLES.format("clusterroles"), {**metadata, "rules": rules})
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": bed.SERVICE, "namespace": bed.NAMESPACE}],
    }
    rig.api.create(ROLES.format("clusterrolebindings"), {**metadata, **bound})
    for resource in ("clusterroles", "clusterrolebindings"):
        rig.later(f"{ROLES.format(resource)}/{name}")


def config_map(rig: Rig, name: str, **data: str) -> None:
    rig.api.create(CONFIG_MAPS.format(rig.mine), {"metadata": {"name": name, "labels": rig.label}, "data": data})


def until_made(rig: Rig, body: Object) -> Object:
    """A dry run of it once its params are followed: until then it is refused."""
    found: list[Object] = []

    def made() -> bool:
        reply = rig.api.ask("POST", rig.claims, body, dryRun="All")
        if reply.status == 201:
            found.append(reply.json)
        else:
            assert reply.status == 403, reply.text
        return bool(found)

    until(made, "the params of a policy are followed")
    return found[0]


@pytest.mark.usefixtures("readable")
def test_params_are_those_that_the_binding_names(rig: Rig) -> None:
    config_map(rig, "one", value="1")
    expression = annotation("a", "params.data.value + string(has(params.kind)) + params.metadata.name")
    spec = {"mutations": [mutation(expression)], "paramKind": CONFIG_MAP}
    deny = {"name": "one", "parameterNotFoundAction": "Deny"}
    name = rig.policy("mutating", spec, binding={"paramRef": deny})
    assert until_made(rig, claim("c"))["metadata"]["annotations"] == {"a": "1falseone"}

    rig.api.patch(f"{CONFIG_MAPS.format(rig.mine)}/one", {"data": {"value": "2"}}, kind=MERGE)
    until(
        lambda: until_made(rig, claim("c"))["metadata"]["annotations"] == {"a": "2falseone"},
        "a change of the params is seen",
    )
    rig.api.delete(f"{CONFIG_MAPS.format(rig.mine)}/one")
    until(lambda: rig.api.ask("POST", rig.claims, claim("c"), dryRun="All").status == 403, "the params are gone")
    missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Forbidden", denied(name, missing))


@pytest.mark.usefixtures("readable")
def test_each_of_the_selected_params_makes_its_own_mutation(rig: Rig) -> None:
    for name in ("one", "two"):
        config_map(rig, name, value=name)
    expression = "Object{metadata: Object.metadata{annotations: {params.data.value: params.data.value}}}"
    selected = {"selector": {"matchLabels": rig.label}, "parameterNotFoundAction": "Deny"}
    spec = {"mutations": [mutation(expression)], "paramKind": CONFIG_MAP}
    rig.policy("mutating", spec, binding={"paramRef": selected})
    assert until_made(rig, claim("c"))["metadata"]["annotations"] == {"one": "one", "two": "two"}


@pytest.mark.usefixtures("readable")
def test_params_may_be_of_a_kind_of_the_same_server(rig: Rig) -> None:
    rig.api.create(rig.classes, device_class(rig.mine))
    rig.later(f"{rig.classes}/{rig.mine}")
    kind = {"apiVersion": f"{rig.group}/v1", "kind": "DeviceClass"}
    spec = {"mutations": [mutation(annotation("a", "params.metadata.name"))], "paramKind": kind}
    rig.policy("mutating", spec, binding={"paramRef": {"name": rig.mine, "parameterNotFoundAction": "Deny"}})
    assert until_made(rig, claim("c"))["metadata"]["annotations"] == {"a": rig.mine}


def test_policy_with_params_of_an_unknown_kind_refuses_without_a_binding(rig: Rig) -> None:
    kind = {"apiVersion": "nothing.example.com/v1", "kind": "Nothing"}
    spec = {"mutations": [mutation("Object{}")], "paramKind": kind}
    named = {"paramRef": {"name": "x", "parameterNotFoundAction": "Allow"}}
    name = rig.policy("mutating", spec, binding=named)
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    why = "failed to find resource referenced by paramKind: 'nothing.example.com/v1, Kind=Nothing'"
    message = f'policy "{name}" denied request: failed to configure policy: {why}'
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Forbidden", message)


def test_mutations_that_fail_are_skipped_if_failures_are_ignored(rig: Rig) -> None:
    expressions = labels(a="'1'"), labels(b="object.metadata.labels.none"), "Object{spec: null}", labels(c="'3'")
    spec = {"mutations": list(map(mutation, expressions)), "failurePolicy": "Ignore"}
    rig.policy("mutating", spec)
    assert rig.api.create(rig.claims, claim("c"))["metadata"]["labels"] == {"a": "1", "c": "3"}


def test_every_policy_that_fails_is_a_cause_and_the_first_is_the_message(rig: Rig) -> None:
    names = [
        rig.policy("mutating", {"mutations": [mutation(annotation("a", "object.metadata.labels.none"))]}, wait=each)
        for each in (False, True)
    ]
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    said = f"expression '{annotation('a', 'object.metadata.labels.none')}' resulted in error: no such key: labels"
    causes = refusal.details["causes"]
    assert sorted(cause["message"] for cause in causes) == sorted(denied(name, said) for name in names)
    assert causes[0] == {"message": refusal.message}


def test_match_conditions_decide_whether_a_policy_is_asked(rig: Rig) -> None:
    for name, condition in {"yes": "object.metadata.name != 'd'", "no": "object.metadata.name == 'x'"}.items():
        spec = {
            "mutations": [mutation(labels(**{name: "'1'"}))],
            "matchConditions": [{"name": "c", "expression": condition}],
        }
        rig.policy("mutating", spec, wait=name == "no")
    assert rig.api.create(rig.claims, claim("c"))["metadata"]["labels"] == {"yes": "1"}
    assert "labels" not in rig.api.create(rig.claims, claim("d"))["metadata"]


def test_a_match_condition_that_fails_refuses(rig: Rig) -> None:
    conditions = [{"name": "c", "expression": "object.metadata.labels.none == 'x'"}]
    name = rig.policy("mutating", {"mutations": [mutation("Object{}")], "matchConditions": conditions})
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    said = "expression 'object.metadata.labels.none == 'x'' resulted in error: no such key: labels"
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Invalid", denied(name, said))


def test_every_sort_of_write_is_mutated_and_policy_fields_have_no_manager(rig: Rig) -> None:
    rig.policy("mutating", {"mutations": [mutation(labels(by="request.operation + request.?subResource.orValue('')"))]})
    path = f"{rig.claims}/c"
    dry = rig.api.create(rig.claims, claim("c"), dryRun="All")
    assert dry["metadata"]["labels"] == {"by": "CREATE"}
    made = rig.api.create(rig.claims, claim("c"), fieldManager="m")
    assert made["metadata"]["labels"] == {"by": "CREATE"}
    assert [(e["manager"], "f:metadata" in e["fieldsV1"]) for e in made["metadata"]["managedFields"]] == [("m", False)]
    patched = rig.api.patch(path, {"metadata": {"annotations": {"x": "y"}}}, kind=MERGE)
    assert patched["metadata"]["labels"] == {"by": "UPDATE"}
    assert rig.api.put(path, patched)["metadata"]["labels"] == {"by": "UPDATE"}
    # Labels are no part of the status: what is changed of them there is dropped.
    status = rig.api.patch(f"{path}/status", {"status": ALLOCATED}, kind=MERGE)
    assert status["metadata"]["labels"] == {"by": "UPDATE"}
    applied = {"apiVersion": f"{rig.group}/v1", "kind": "ResourceClaim", **claim("d")}
    reply = rig.api.ask(
        "PATCH", f"{rig.claims}/d", applied, headers={"Content-Type": "application/apply-patch+yaml"}, fieldManager="m"
    )
    assert (reply.status, reply.json["metadata"]["labels"]) == (201, {"by": "CREATE"})
    assert rig.api.get(path)["metadata"]["labels"] == {"by": "UPDATE"}


def test_deletions_are_not_mutated(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.api.create(rig.claims, claim("d"))
    rig.policy("mutating", {"mutations": [mutation(annotation("a", "object.metadata.labels.none"))]})
    assert rig.api.refusal("POST", rig.claims, claim("e")).code == 403
    rig.api.delete(f"{rig.claims}/c")
    rig.api.delete(rig.claims)


def test_results_of_mutating_policies_are_validated(rig: Rig) -> None:
    rig.policy("mutating", {"mutations": [mutation(labels(bad="'not a value'"))]})
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert 'metadata.labels: Invalid value: "not a value"' in refusal.message


def test_policies_that_may_be_asked_again_see_what_others_have_changed(rig: Rig) -> None:
    """Policies have no order among themselves."""
    for name, other in (("a", "b"), ("b", "a")):
        count = f"!object.metadata.?labels.?{name}.hasValue() ? '1' : '2'"
        seen = f"string(has(object.metadata.labels) && '{other}' in object.metadata.labels)"
        spec = {
            "mutations": [mutation(labels(**{name: count, f"{name}-saw": seen}))],
            "reinvocationPolicy": "IfNeeded",
        }
        rig.policy("mutating", spec, wait=name == "b")
    made = rig.api.create(rig.claims, claim("c"))["metadata"]["labels"]
    assert (made["a-saw"], made["b-saw"]) == ("true", "true")
    assert (made["a"], made["b"]) == ("2", "2")


def test_a_policy_that_is_not_to_be_asked_again_is_asked_once(rig: Rig) -> None:
    count = "!object.metadata.?labels.?{0}.hasValue() ? '1' : '2'"
    for name in ("a", "b"):
        rig.policy("mutating", {"mutations": [mutation(labels(**{name: count.format(name)}))]}, wait=name == "b")
    assert rig.api.create(rig.claims, claim("c"))["metadata"]["labels"] == {"a": "1", "b": "1"}


def test_a_webhook_sees_what_policies_have_made_and_policies_see_it_again(rig: Rig) -> None:
    spec = {
        "mutations": [mutation(labels(seen="string(has(object.metadata.annotations))"))],
        "reinvocationPolicy": "IfNeeded",
    }
    rig.policy("mutating", spec)
    added = {"op": "add", "path": "/metadata/annotations", "value": {"hook": "was here"}}
    rig.webhook("mutating", patch(added))
    made = rig.api.create(rig.claims, claim("c"))["metadata"]
    assert (made["labels"], made["annotations"]) == ({"seen": "true"}, {"hook": "was here"})
    assert [call.request["object"]["metadata"]["labels"] for call in rig.calls()] == [{"seen": "false"}]


def test_policy_that_names_another_version_sees_it_and_cannot_change_it(rig: Rig) -> None:
    constraints = {
        "resourceRules": [rig.rule("resourceclaims", apiVersions=["v1beta2"])],
        "namespaceSelector": {"matchLabels": {NAME_LABEL: rig.mine}},
    }
    shown = f"object.apiVersion == '{rig.group}/v1beta2' && request.kind.version == 'v1beta2'"
    condition = {"name": "c", "expression": f"{shown} && request.requestKind.version == 'v1'"}
    spec = {"mutations": [mutation("Object{}")], "matchConstraints": constraints, "matchConditions": [condition]}
    name = rig.policy("mutating", spec)
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    said = "converting (v1beta2.ResourceClaim) to (v1.ResourceClaim): unknown conversion"
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Invalid", denied(name, said))


def test_a_binding_narrows_where_a_policy_holds(rig: Rig) -> None:
    narrow = {"matchResources": {"resourceRules": [rig.rule("resourceclaims", resourceNames=["c"])]}}
    rig.policy("mutating", {"mutations": [mutation(labels(a="'1'"))]}, binding=narrow)
    assert rig.api.create(rig.claims, claim("c"))["metadata"]["labels"] == {"a": "1"}
    assert "labels" not in rig.api.create(rig.claims, claim("d"))["metadata"]
