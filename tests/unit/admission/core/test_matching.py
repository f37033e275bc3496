"""Selection of changes by rules, selectors and equivalent versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.admission.core.matching import Criteria, Matcher
from apiserver.apimachinery.errors import StatusError
from apiserver.cluster.errors import ClusterError
from tests.unit.admission.changes import GROUP, KINDS, Namespaces, change, labelled

EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
Rule = Mapping[str, Any]


def rule(*resources: str, **members: Any) -> Rule:
    return {**EVERYTHING, "resources": list(resources) or ["*/*"], **members}


def criteria(*rules: Rule, **how: Any) -> Criteria:
    members: dict[str, Any] = {"namespace_selector": None, "object_selector": None, "match_policy": None, **how}
    return Criteria.of(rules=rules, **members)


async def matched(wanted: Criteria, attributes: Attributes, namespaces: Namespaces | None = None) -> str | None:
    """The version in which the change is shown; None when it is not selected."""
    match = await Matcher(KINDS, namespaces or Namespaces({"ns": labelled(team="a")})).match(wanted, attributes)
    return match and match.resource.version


@pytest.mark.parametrize(
    ("resources", "main", "status"),
    [
        (["resourceclaims"], True, False),
        (["*"], True, False),
        (["*/*"], True, True),
        (["*/status"], False, True),
        (["resourceclaims/status"], False, True),
        (["resourceclaims/*"], True, True),
        (["resourceslices", "resourceslices/status"], False, False),
        (["resourceslices", "resourceclaims"], True, False),
        ([], False, False),
    ],
)
async def test_a_rule_names_resources_with_and_without_their_subresources(
    resources: Sequence[str], main: bool, status: bool
) -> None:
    wanted = criteria({**EVERYTHING, "resources": resources})
    assert (await matched(wanted, change("UPDATE")) is not None) is main
    assert (await matched(wanted, change("UPDATE", subresource="status")) is not None) is status


@pytest.mark.parametrize(
    ("members", "operation", "plural", "yes"),
    [
        ({"operations": ["CREATE", "DELETE"]}, "DELETE", "resourceclaims", True),
        ({"operations": ["CREATE", "DELETE"]}, "UPDATE", "resourceclaims", False),
        ({"operations": ["CONNECT", "*"]}, "UPDATE", "resourceclaims", True),
        ({"apiGroups": [GROUP]}, "CREATE", "resourceclaims", True),
        ({"apiGroups": [""]}, "CREATE", "resourceclaims", False),
        ({"apiVersions": ["v2"]}, "CREATE", "resourceclaims", False),
        ({"scope": "*"}, "CREATE", "deviceclasses", True),
        ({"scope": "Cluster"}, "CREATE", "deviceclasses", True),
        ({"scope": "Cluster"}, "CREATE", "resourceclaims", False),
        ({"scope": "Namespaced"}, "CREATE", "deviceclasses", False),
        ({"scope": "Namespaced"}, "CREATE", "resourceclaims", True),
    ],
)
async def test_a_rule_names_operations_groups_versions_and_a_scope(
    members: Rule, operation: Operation, plural: str, yes: bool
) -> None:
    assert (await matched(criteria(rule(**members)), change(operation, plural=plural)) is not None) is yes


@pytest.mark.parametrize(
    ("rules", "policy", "asked", "shown"),
    [
        ([rule()], None, "v1beta1", "v1beta1"),
        ([rule(apiVersions=["v1beta1"])], None, "v1", "v1beta1"),
        ([rule(apiVersions=["v1beta1"])], "Equivalent", "v1beta2", "v1beta1"),
        ([rule(apiVersions=["v1beta1"])], "Exact", "v1", None),
        ([rule(apiVersions=["v1beta1"])], "Exact", "v1beta1", "v1beta1"),
        ([rule(apiVersions=["v1beta1"]), rule(apiVersions=["v1beta2"])], None, "v1", "v1beta1"),
        ([rule(apiVersions=["v1beta2"]), rule(apiVersions=["v1beta1"])], None, "v1", "v1beta2"),
        ([rule(apiVersions=["v1beta1", "v1beta2"])], None, "v1", "v1beta2"),
        ([rule(apiVersions=["v1beta1"]), rule(apiVersions=["v1"])], None, "v1", "v1"),
        ([rule("resourceslices", apiVersions=["v1beta1"])], None, "v1", None),
    ],
)
async def test_a_rule_for_another_version_of_the_kind_shows_the_change_in_that(
    rules: Sequence[Rule], policy: str | None, asked: str, shown: str | None
) -> None:
    assert await matched(criteria(*rules, match_policy=policy), change(version=asked)) == shown


SELECTOR = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "off", "operator": "DoesNotExist"}]}


@pytest.mark.parametrize(
    ("operation", "new", "old", "yes"),
    [
        ("CREATE", {"team": "a"}, {}, True),
        ("CREATE", {"team": "b"}, {}, False),
        ("CREATE", {"team": "a", "off": ""}, {}, False),
        ("UPDATE", {"team": "b"}, {"team": "a"}, True),
        ("UPDATE", {"team": "a"}, {"team": "b"}, True),
        ("UPDATE", {"team": "b"}, {"team": "a", "off": ""}, False),
        ("DELETE", {}, {"team": "a"}, True),
        ("DELETE", {}, {"team": "b"}, False),
    ],
)
async def test_an_object_selector_matches_the_new_or_the_old_object(
    operation: Operation, new: Mapping[str, str], old: Mapping[str, str], yes: bool
) -> None:
    attributes = change(operation, new=labelled(**new), old=labelled(**old))
    assert (await matched(criteria(rule(), object_selector=SELECTOR), attributes) is not None) is yes


@pytest.mark.parametrize(
    ("expression", "yes"),
    [
        ({"key": "team", "operator": "In", "values": ["b", "a"]}, True),
        ({"key": "team", "operator": "NotIn", "values": ["b", "a"]}, False),
        ({"key": "other", "operator": "NotIn", "values": ["b"]}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "operator": "DoesNotExist"}, False),
    ],
)
async def test_a_namespace_selector_matches_the_labels_of_the_namespace(expression: Rule, yes: bool) -> None:
    wanted = criteria(rule(), namespace_selector={"matchExpressions": [expression]})
    assert (await matched(wanted, change()) is not None) is yes
    assert await matched(wanted, change(plural="deviceclasses")) is not None, "what is in no namespace always matches"


async def test_unknown_namespace_is_looked_up_only_if_the_rules_match() -> None:
    wanted = criteria(rule("resourceclaims"), namespace_selector={"matchLabels": {"team": "a"}})
    live = Namespaces({}, {"ns": labelled(team="a")})
    assert await matched(wanted, change(), live) == "v1"
    assert live.asked == ["ns"]
    assert await matched(wanted, change(plural="resourceclaimtemplates"), live) is None
    assert live.asked == ["ns"]


@pytest.mark.parametrize(
    ("error", "object_labels", "code"),
    [
        (None, {"team": "a"}, 404),
        (ClusterError("dial tcp: refused"), {"team": "a"}, 500),
        (None, {"team": "b"}, None),
    ],
)
async def test_missing_namespace_counts_only_where_everything_else_matches(
    error: ClusterError | None, object_labels: Mapping[str, str], code: int | None
) -> None:
    wanted = criteria(rule(), namespace_selector={"matchLabels": {"team": "a"}}, object_selector=SELECTOR)
    nowhere = Namespaces()
    nowhere.error = error
    attributes = change(new=labelled(**object_labels))
    if code is None:
        assert await matched(wanted, attributes, nowhere) is None
        return
    with pytest.raises(StatusError) as caught:
        await matched(wanted, attributes, nowhere)
    assert caught.value.code == code
    assert caught.value.message == (
        'namespaces "ns" not found' if code == 404 else "Internal error occurred: dial tcp: refused"
    )


async def test_unreadable_selector_is_an_error_for_changes_that_rules_select() -> None:
    wanted = criteria(rule("resourceclaims"), object_selector={"matchExpressions": [{"key": "a", "operator": "Is"}]})
    assert await matched(wanted, change(plural="deviceclasses")) is None
    with pytest.raises(StatusError) as caught:
        await matched(wanted, change())
    assert caught.value.message == 'Internal error occurred: "Is" is not a valid label selector operator'


@pytest.mark.parametrize(
    ("rules", "exclude", "name", "yes"),
    [
        ([], [], "c", True),
        ([rule(resourceNames=["c"])], [], "c", True),
        ([rule(resourceNames=["c"])], [], "d", False),
        ([rule(resourceNames=["c"])], [], "", False),
        ([], [rule(resourceNames=["c"])], "c", False),
        ([], [rule(resourceNames=["c"])], "d", True),
        ([rule()], [rule("resourceclaims")], "c", False),
        ([rule()], [rule("resourceclaims", apiVersions=["v1beta1"])], "c", False),
    ],
)
async def test_rules_of_policies_exclude_and_name_objects(
    rules: Sequence[Rule], exclude: Sequence[Rule], name: str, yes: bool
) -> None:
    wanted = criteria(*rules, exclude=exclude, names=True)
    assert (await matched(wanted, change(name=name)) is not None) is yes


async def test_outcome_of_rules_is_cached_for_each_endpoint_and_operation() -> None:
    wanted, matcher = criteria(rule("resourceclaims", operations=["CREATE"])), Matcher(KINDS, Namespaces())
    for _ in range(2):
        found = [await matcher.match(wanted, change(operation)) is not None for operation in ("CREATE", "UPDATE")]
        assert found == [True, False]
    assert wanted.outcomes is not None
    assert len(wanted.outcomes) == 2


async def test_namespace_of_a_change_is_the_cached_or_the_live_object() -> None:
    namespaces = Namespaces({"ns": labelled(team="a")}, {"new": labelled(team="b")})
    matcher = Matcher(KINDS, namespaces)
    assert await matcher.namespace(change()) == labelled(team="a")
    assert await matcher.namespace(change(namespace="new")) == labelled(team="b")
    assert await matcher.namespace(change(plural="deviceclasses")) is None
