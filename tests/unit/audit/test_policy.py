"""Selection of the requests that are recorded, and of the level."""

from __future__ import annotations

import itertools
import json
import logging
import pathlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from apiserver.apimachinery.request import Level, RequestInfo, User
from apiserver.audit import policy
from apiserver.audit.event import Stage

JANE = User("jane", groups=("dev", "system:authenticated"))
STAGES = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"
URL = "rules[0].nonResourceURLs"
SLASH = "non-resource URL rules must begin with a '/' character"
STAR = "non-resource URL wildcards '*' must be the final character of the rule"
LEVELS = {"None": Level.NONE, "Metadata": Level.METADATA, "Request": Level.REQUEST}
HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def about(
    verb: str = "get",
    resource: str = "deviceclasses",
    *,
    sub: str = "",
    name: str = "",
    namespace: str = "",
    group: str = "g",
) -> RequestInfo:
    return RequestInfo(
        "/apis/…", verb, "GET", is_resource=True, group=group, version="v1", namespace=namespace, resource=resource,
        subresource=sub, name=name,
    )  # fmt: skip


def path(path: str, verb: str = "get") -> RequestInfo:
    return RequestInfo(path, verb, verb.upper())


def fits(info: RequestInfo, user: User | None = JANE, **rule: Any) -> bool:
    made = policy.Policy({"rules": [{"level": "Metadata", **rule}]})
    return made.ruling(info, user).level is Level.METADATA


PODS_LOG, PODS = about(resource="pods", sub="log"), about(resource="pods")


@pytest.mark.parametrize(
    ("rule", "info", "expected"),
    [
        ({}, about(), True),
        ({}, path("/livez"), True),
        ({"users": ["bob", "jane"]}, about(), True),
        ({"users": ["bob"]}, about(), False),
        ({"userGroups": ["ops", "dev"]}, about(), True),
        ({"userGroups": ["ops"]}, about(), False),
        ({"users": ["jane"], "userGroups": ["ops"]}, about(), False),
        ({"verbs": ["get", "list"]}, about("list"), True),
        ({"verbs": ["get"]}, about("watch"), False),
        ({"verbs": ["get"]}, path("/metrics"), True),
        ({"namespaces": ["a"]}, about(namespace="a"), True),
        ({"namespaces": ["a"]}, about(namespace="b"), False),
        ({"namespaces": [""]}, about(), True),
        ({"namespaces": [""]}, about(namespace="a"), False),
        ({"namespaces": [""]}, path("/livez"), False),
        ({"resources": [{"group": "g"}]}, about(), True),
        ({"resources": [{"group": "h"}]}, about(), False),
        ({"resources": [{"group": "*"}]}, about(), True),
        ({"resources": [{}]}, about(), False),
        ({"resources": [{}]}, about(group=""), True),
        ({"resources": [{"group": "g"}]}, path("/apis"), False),
        ({"resources": [{"group": "g", "resources": ["pods"]}]}, PODS, True),
        ({"resources": [{"group": "g", "resources": ["pods"]}]}, PODS_LOG, False),
        ({"resources": [{"group": "g", "resources": ["pods/log"]}]}, PODS_LOG, True),
        ({"resources": [{"group": "g", "resources": ["pods/log"]}]}, PODS, False),
        ({"resources": [{"group": "g", "resources": ["*"]}]}, PODS_LOG, True),
        ({"resources": [{"group": "g", "resources": ["pods/*"]}]}, PODS_LOG, True),
        ({"resources": [{"group": "g", "resources": ["pods/*"]}]}, PODS, True),
        ({"resources": [{"group": "g", "resources": ["*/log"]}]}, PODS_LOG, True),
        ({"resources": [{"group": "g", "resources": ["*/log"]}]}, PODS, False),
        ({"resources": [{"group": "g", "resources": ["pods"], "resourceNames": ["x"]}]}, about(resource="pods", name="x"), True),
        ({"resources": [{"group": "g", "resources": ["pods"], "resourceNames": ["x"]}]}, about(resource="pods", name="y"), False),
        ({"resources": [{"group": "h"}, {"group": "g"}], "namespaces": ["a"]}, about(namespace="a"), True),
        ({"resources": [{"group": "g"}], "namespaces": ["b"]}, about(namespace="a"), False),
        ({"nonResourceURLs": ["/livez"]}, path("/livez"), True),
        ({"nonResourceURLs": ["/livez"]}, path("/livez/ping"), False),
        ({"nonResourceURLs": ["/livez*"]}, path("/livez/ping"), True),
        ({"nonResourceURLs": ["*"]}, path("/x"), True),
        ({"nonResourceURLs": ["*"]}, about(), False),
    ],
)  # fmt: skip
def test_a_rule_fits_what_is_all_that_it_says(rule: dict[str, Any], info: RequestInfo, expected: bool) -> None:
    assert fits(info, **rule) is expected


def test_anonymous_caller_is_neither_a_user_nor_in_a_group() -> None:
    assert fits(about(), None)
    assert not fits(about(), None, users=["jane"])
    assert not fits(about(), None, userGroups=["dev"])


def test_first_matching_rule_decides_and_without_one_nothing_is_recorded() -> None:
    made = policy.Policy({
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "verbs": ["watch"]},
            {"level": "Request", "verbs": ["watch", "get"], "omitStages": ["Panic"], "omitManagedFields": False},
            {"level": "RequestResponse", "verbs": ["get", "update"]},
        ],
    })  # fmt: skip
    received = frozenset({Stage.REQUEST_RECEIVED})
    assert made.ruling(about("watch"), JANE).level is Level.NONE
    assert made.ruling(about("get"), JANE) == (Level.REQUEST, received | {Stage.PANIC}, False)
    assert made.ruling(about("update"), JANE) == (Level.REQUEST_RESPONSE, received, True)
    assert made.ruling(about("delete"), JANE) == (Level.NONE, received, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        ("rules: []", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"),
        (
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy",
            'failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        (
            "apiVersion: v1\nkind: Policy",
            'failed decoding: no kind "Policy" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        (HEAD, "loaded illegal policy with 0 rules"),
        (
            HEAD + "rules: {a: b}",
            "failed decoding: json: cannot unmarshal object into Go struct field Policy.rules of type []v1.PolicyRule",
        ),
        (HEAD + "rules: [{users: [a]}]", "rules[0].level: Required value"),
        (
            HEAD + "rules: [{level: Foo}]",
            'rules[0].level: Unsupported value: "Foo": supported values: "None", "Metadata", "Request", "RequestResponse"',
        ),
        (
            HEAD + "omitStages: [Foo]\nrules: [{level: None, omitStages: [RequestReceived, Bar]}]",
            f'[omitStages[0]: Invalid value: "Foo": {STAGES}, rules[0].omitStages[1]: Invalid value: "Bar": {STAGES}]',
        ),
        (
            HEAD + "rules: [{level: None, nonResourceURLs: ['foo','/a*b','*','','/x*']}]",
            f'[{URL}[0]: Invalid value: "foo": {SLASH}, {URL}[1]: Invalid value: "/a*b": {STAR}, {URL}[3]: Invalid value: "": {SLASH}]',
        ),
        (
            HEAD + "rules: [{level: None, nonResourceURLs: ['/foo'], namespaces: [a]}]",
            'rules[0].nonResourceURLs: Invalid value: ["/foo"]: rules cannot apply to both regular resources and non-resource URLs',
        ),
        (
            HEAD + "rules: [{level: None, resources: [{group: '', resourceNames: [a]}]}]",
            'rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource',
        ),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_used_is_refused_in_kube_apiservers_words(
    text: str, expected: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(policy.InvalidPolicy) as caught:
        policy.load(str(file))
    assert str(caught.value) == f"{expected}: from file {file}"


def test_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    missing = tmp_path / "policy.yaml"
    with pytest.raises(
        policy.InvalidPolicy, match=rf'^failed to read file path "{missing}": open {missing}: no such file'
    ):
        policy.load(str(missing))


def test_unknown_and_repeated_members_get_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = policy.read(f"{HEAD}foo: 1\nrules: []\nrules: [{{level: None, bar: 2}}]\n".encode())
    assert found["rules"] == [{"level": "None"}]
    (said,) = caplog.messages
    assert said.startswith("Audit policy contains errors, falling back to lenient decoding: strict decoding error: ")
    assert 'key "rules" already set in map' in said
    assert 'unknown field "foo", unknown field "rules[0].bar"' in said


def test_a_policy_may_have_metadata_and_be_json(tmp_path: pathlib.Path) -> None:
    document = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "metadata": {"name": "x"},
        "rules": [{"level": "Request"}],
    }
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(document))
    assert policy.load(str(file)).ruling(about(), JANE).level is Level.REQUEST


# The prepared policy decides as upstream's checker does, which looks at one rule after the other.

VERBS, GROUPS = ("get", "list", "update"), ("", "g", "h")
RESOURCES = ("pods", "pods/log", "*", "*/log", "pods/*", "nodes", "*/*")
URLS = ("*", "/livez", "/livez*", "/metrics", "/m*", "/")


def _one_by_one(rule: Mapping[str, Any], info: RequestInfo, user: User | None) -> bool:
    """kubernetes/apiserver `pkg/audit/policy/checker.go`, its checks as they stand there."""
    if rule.get("users") and (user is None or user.name not in rule["users"]):
        return False
    if rule.get("userGroups") and (user is None or not any(group in rule["userGroups"] for group in user.groups)):
        return False
    if rule.get("verbs") and info.verb not in rule["verbs"]:
        return False
    if rule.get("namespaces") or rule.get("resources"):
        in_place = not rule.get("namespaces") or info.namespace in rule["namespaces"]
        wanted = rule.get("resources") or [{"group": "*"}]
        return info.is_resource and in_place and any(_is_meant(one, info) for one in wanted)
    if rule.get("nonResourceURLs"):
        paths = (
            url == info.path or (url[-1] == "*" and info.path.startswith(url[:-1])) for url in rule["nonResourceURLs"]
        )
        return not info.is_resource and any(paths)
    return True


def _is_meant(one: Mapping[str, Any], info: RequestInfo) -> bool:
    if one.get("group", "") not in (info.group, "*"):
        return False
    if not one.get("resources"):
        return True
    if one.get("resourceNames") and info.name not in one["resourceNames"]:
        return False
    sub = info.subresource
    whole = f"{info.resource}/{sub}" if sub else info.resource
    return any(
        text in (whole, "*") or (sub and text == f"*/{sub}") or text == f"{info.resource}/*"
        for text in one["resources"]
    )


def _drawn(draw: random.Random) -> dict[str, Any]:
    def some(values: Sequence[str], odds: float = 0.4) -> list[str]:
        return draw.sample(values, draw.randint(1, 2)) if draw.random() < odds else []

    def resources() -> dict[str, Any]:
        found = some(RESOURCES, 0.8)
        return {"group": draw.choice((*GROUPS, "*")), "resources": found, "resourceNames": some("xy") if found else []}

    rule: dict[str, Any] = {"level": draw.choice(("None", "Metadata", "Request")), "verbs": some(VERBS)}
    rule |= {"users": some(("jane", "bob"), 0.3), "userGroups": some(("dev", "ops", "qa"), 0.3)}
    if draw.random() < 0.3:
        return rule | {"nonResourceURLs": some(URLS, 1)}
    every = [resources() for _ in range(draw.randint(0, 2))]
    return rule | {"namespaces": some(("", "a", "b"), 0.3), "resources": every}


def _requests() -> Iterator[RequestInfo]:
    for verb, group, resource, sub in itertools.product(VERBS, GROUPS, ("pods", "nodes", "*"), ("", "log")):
        for name, namespace in (("", ""), ("x", "a"), ("z", "b")):
            yield about(verb, resource, sub=sub, name=name, namespace=namespace, group=group)
    yield from itertools.starmap(path, itertools.product(("/", "/livez", "/livez/ping", "/metrics", "/m*"), VERBS))


@pytest.mark.parametrize("seed", range(40))
def test_random_policies_decide_as_if_rules_were_checked_one_by_one(seed: int) -> None:
    draw = random.Random(seed)
    rules = [{**_drawn(draw), "omitStages": draw.sample([*Stage], 1)} for _ in range(draw.randint(1, 6))]
    nothing: Mapping[str, Any] = {"level": "None", "omitStages": ()}
    made = policy.Policy({"rules": rules})
    for info, user in itertools.product(_requests(), (JANE, User("bob", groups=("qa",)), None)):
        first = next((rule for rule in rules if _one_by_one(rule, info, user)), nothing)
        assert made.ruling(info, user)[:2] == (LEVELS[first["level"]], frozenset(first["omitStages"]))


class _Counted(tuple[str, ...]):  # noqa: SLOT001 - what is counted belongs to the class
    """Groups that count how often somebody looks at all of them."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        type(self).looks += 1
        return super().__iter__()


def test_groups_of_a_user_are_read_once_for_any_number_of_rules() -> None:
    many = _Counted(f"g{n}" for n in range(10_000))
    made = policy.Policy({"rules": [{"level": "None", "userGroups": [f"h{n}"]} for n in range(20)]})
    assert made.ruling(about(), User("jane", groups=many)).level is Level.NONE
    assert _Counted.looks == 1


def test_policy_without_groups_does_not_read_those_of_a_user() -> None:
    looks = _Counted.looks
    made = policy.Policy({"rules": [{"level": "Metadata"}]})
    assert made.ruling(about(), User("jane", groups=_Counted(["a"]))).level is Level.METADATA
    assert _Counted.looks == looks
