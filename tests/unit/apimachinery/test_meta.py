"""Metadata: times, ages, owner references and the shared checks; texts as recorded from kube-apiserver 1.36.3 and 1.37.2."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apiserver.apimachinery import meta
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release
from kubetext import names

KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


def obj(**members: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", **members}}


def texts(errors: list[Any]) -> list[str]:
    return [str(e) for e in errors]


def create(namespaced: bool = False, release: Release = NEWEST, **members: Any) -> list[str]:
    return texts(meta.validate_object_meta(obj(**members), release, namespaced=namespaced))


def update(new: dict[str, Any], old: dict[str, Any], release: Release = NEWEST) -> list[str]:
    return texts(
        meta.validate_object_meta_update(obj(resourceVersion="2", **new), obj(resourceVersion="1", **old), release)
    )


def test_times_are_written_in_whole_seconds_of_utc() -> None:
    assert meta.rfc3339(0) == "1970-01-01T00:00:00Z"
    assert meta.rfc3339(1700000000.999) == "2023-11-14T22:13:20Z"


def test_times_are_read_back() -> None:
    assert meta.instant("2023-11-14T22:13:20Z") == 1700000000
    assert meta.instant("2023-11-14T23:13:20.5+01:00") == 1700000000.5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11100, "3h5m"),
        (28799, "7h59m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (691199, "7d23h"),
        (691200, "8d"),
        (63071999, "729d"),
        (63072000, "2y"),
        (63158400, "2y1d"),
        (252287999, "7y364d"),
        (252288000, "8y"),
        (946080000, "30y"),
    ],
)
def test_duration_is_shown_in_two_or_three_figures(seconds: float, text: str) -> None:
    assert meta.human_duration(seconds) == text


DAY = 86400.0


@given(
    age=st.one_of(*(st.floats(-5, most) for most in (10.0, 700.0, DAY, 10 * DAY, 9 * 365 * DAY))),
    since=st.integers(0, 2_000_000_000).map(float),
    share=st.floats(0, 1, exclude_max=True),
)
@example(age=-1.5, since=0.0, share=0.99)
@example(age=599.9, since=0.0, share=0.99)
@example(age=8 * DAY - 1, since=0.0, share=0.99)
def test_an_age_stays_as_it_is_for_as_long_as_is_said(age: float, since: float, share: float) -> None:
    now = since + age
    until = meta.same_age_until(since, now)
    later = now + (until - now) * share
    if later < until:
        assert meta.age_at(since, later) == meta.age_at(since, now)
    assert now < until or now - since == -2.0
    assert until - now <= DAY


def test_an_age_that_is_unknown_stays_so() -> None:
    assert meta.same_age_until(None, 1.0) == math.inf


def test_the_age_of_an_object_is_unknown_without_a_creation_time() -> None:
    assert meta.age(obj(creationTimestamp="2023-11-14T22:13:20Z"), 1700000061) == "61s"
    assert meta.age(obj(), 1700000061) == "<unknown>"


def test_metadata_is_read_with_its_zero_values() -> None:
    empty: dict[str, Any] = {}
    assert (meta.name(empty), meta.namespace(empty), meta.uid(empty)) == ("", "", "")
    full = obj(namespace="n", uid="u", finalizers=["a/b"], deletionTimestamp="2023-11-14T22:13:20Z")
    assert (meta.name(full), meta.namespace(full), meta.uid(full)) == ("a", "n", "u")
    assert meta.finalizers(full) == ["a/b"]


def test_repeated_owner_references_are_removed_and_named() -> None:
    other = OWNER | {"controller": True}
    found = obj(
        ownerReferences=[dict(OWNER), other, dict(OWNER), dict(reversed(OWNER.items())), {"uid": "v"}, {"uid": "v"}]
    )
    assert meta.dedup_owner_references(found) == ["u", "u", "v"]
    assert found["metadata"]["ownerReferences"] == [OWNER, other, {"uid": "v"}]


def test_owner_references_that_differ_anywhere_are_kept() -> None:
    references = [OWNER, OWNER | {"controller": False}, OWNER | {"name": "q"}, OWNER | {"blockOwnerDeletion": True}]
    found = obj(ownerReferences=list(references))
    assert meta.dedup_owner_references(found) == []
    assert found["metadata"]["ownerReferences"] == references


def test_plain_metadata_passes_the_create_check() -> None:
    labels = {"a": "b", "ex.io/k": ""}
    assert (
        create(labels=labels, annotations={"UPPER.io/K": "any thing"}, finalizers=["a.b/c", "orphan", "kubernetes"])
        == []
    )
    assert create(namespaced=True, namespace="default", ownerReferences=[OWNER | {"controller": True}]) == []


def test_a_name_is_required() -> None:
    assert create(name="") == ["metadata.name: Required value: name or generateName is required"]


def test_a_bad_generate_name_is_an_error_beside_the_bad_name() -> None:
    found = create(generateName="Web-", name="Web-x")
    assert found == [
        f'metadata.generateName: Invalid value: "Web-": {names.NOT_SUBDOMAIN}',
        f'metadata.name: Invalid value: "Web-x": {names.NOT_SUBDOMAIN}',
    ]
    assert create(generateName="web-", name="web-x") == []


def test_the_generic_check_judges_names_as_path_segments() -> None:
    found = meta.validate_object_meta(
        obj(name="A B%", generateName=".."),
        NEWEST,
        namespaced=False,
        name_check=names.path_segment_name,
        qualified_finalizers=False,
    )
    assert texts(found) == ["metadata.name: Invalid value: \"A B%\": may not contain '%'"]


@pytest.mark.parametrize(
    ("namespaced", "namespace", "errors"),
    [
        (True, "", ["metadata.namespace: Required value"]),
        (True, "A", [f'metadata.namespace: Invalid value: "A": {names.NOT_LABEL}']),
        (True, "a.b", ['metadata.namespace: Invalid value: "a.b": must not contain dots']),
        (False, "a", ["metadata.namespace: Forbidden: not allowed on this type"]),
        (False, "", []),
    ],
)
def test_the_namespace_fits_the_kind(namespaced: bool, namespace: str, errors: list[str]) -> None:
    assert create(namespaced, namespace=namespace) == errors


def test_a_negative_generation_is_refused() -> None:
    assert create(generation=-1) == ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]


def test_labels_are_judged_on_the_maps_own_path() -> None:
    assert create(labels={"a b": "c d"}) == [
        f'metadata.labels: Invalid value: "a b": name part {KEY}',
        f'metadata.labels: Invalid value: "c d": {names.NOT_VALUE}',
    ]


def test_annotation_keys_are_judged_in_lower_case() -> None:
    assert create(annotations={"a b": ""}) == [f'metadata.annotations: Invalid value: "a b": name part {KEY}']
    assert create(annotations={"EXAMPLE.com/A": ""}) == []
    assert create(annotations={"\u0130.example.com/a": ""}) == []


def test_annotations_have_a_total_size() -> None:
    assert create(annotations={"a": "x" * (262144 - 1)}) == []
    assert create(annotations={"a": "x" * 262144}) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]
    assert create(annotations={"a": "é" * 131072}) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


def test_an_owner_reference_is_complete_in_1_36() -> None:
    path = "metadata.ownerReferences"
    assert create(release=V1_36, ownerReferences=[{"name": ""}]) == [
        f'{path}.apiVersion: Invalid value: "": version must not be empty',
        f'{path}.kind: Invalid value: "": must not be empty',
        f'{path}.name: Invalid value: "": must not be empty',
        f'{path}.uid: Invalid value: "": must not be empty',
    ]
    for version in ("a/b/c", "apps/", "/"):
        assert create(release=V1_36, ownerReferences=[OWNER | {"apiVersion": version}]) == [
            f'{path}.apiVersion: Invalid value: "{version}": version must not be empty'
        ]


def test_an_owner_reference_is_complete_since_1_37() -> None:
    """ONE_OWNER_ERRORS: the element has its index, and a missing member is a missing value."""
    path = "metadata.ownerReferences[1]"
    assert create(release=V1_37, ownerReferences=[OWNER, {"name": ""}]) == [
        f"{path}.apiVersion: Required value: must not be empty",
        f"{path}.kind: Required value: must not be empty",
        f"{path}.name: Required value: must not be empty",
        f"{path}.uid: Required value: must not be empty",
    ]
    for version in ("a/b/c", "apps/", "/"):
        assert create(release=V1_37, ownerReferences=[OWNER, OWNER | {"apiVersion": version}]) == [
            f'{path}.apiVersion: Invalid value: "{version}": must be <group>/<version> or <version>'
        ]
    assert create(release=V1_37, ownerReferences=[OWNER | {"apiVersion": "/v1"}]) == []


def test_only_one_owner_controls() -> None:
    first, second = OWNER | {"controller": True}, OWNER | {"name": "q", "controller": True}
    assert create(ownerReferences=[first, OWNER, second]) == [
        (
            'metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true},'
            '{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"},'
            '{"apiVersion":"v1","kind":"Pod","name":"q","uid":"u","controller":true}]: '
            'Only one reference can have Controller set to true. Found "true" in references for Pod/p and Pod/q'
        )
    ]


@pytest.mark.parametrize(
    ("release", "place"), [(V1_36, "metadata.ownerReferences"), (V1_37, "metadata.ownerReferences[0]")]
)
def test_an_event_owns_nothing(release: Release, place: str) -> None:
    assert create(release=release, ownerReferences=[OWNER | {"kind": "Event"}]) == [
        (
            f'{place}: Invalid value: {{"apiVersion":"v1","kind":"Event","name":"p","uid":"u"}}: '
            "/v1, Kind=Event is disallowed from being an owner"
        )
    ]
    assert create(release=release, ownerReferences=[OWNER | {"kind": "Event", "apiVersion": "events.k8s.io/v1"}]) == []


def test_finalizers_are_qualified_names() -> None:
    assert create(finalizers=["nodomain"]) == [f'metadata.finalizers[0]: Invalid value: "nodomain": {UNQUALIFIED}']
    assert create(finalizers=["a/b", "a b"]) == [
        f'metadata.finalizers: Invalid value: "a b": name part {KEY}',
        f'metadata.finalizers[1]: Invalid value: "a b": {UNQUALIFIED}',
    ]


def test_the_generic_check_does_not_ask_for_a_domain() -> None:
    found = meta.validate_object_meta(
        obj(finalizers=["nodomain"]), NEWEST, namespaced=False, qualified_finalizers=False
    )
    assert found == []


def test_orphaning_and_foreground_deletion_exclude_each_other() -> None:
    assert create(finalizers=["orphan", "foregroundDeletion"]) == [
        (
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
            "finalizer orphan and foregroundDeletion cannot be both set"
        )
    ]


def test_operation_of_managed_fields_is_one_of_two() -> None:
    """OPERATION_ERROR: the empty operation is missing since 1.37."""
    entries, path = [{"operation": "x"}, {"operation": ""}, {}], "metadata.managedFields"
    assert create(release=V1_36, managedFields=entries) == [
        f'{path}[0].operation: Invalid value: "x": must be `Apply` or `Update`',
        f'{path}[1].operation: Invalid value: "": must be `Apply` or `Update`',
        f'{path}[2].operation: Invalid value: "": must be `Apply` or `Update`',
    ]
    assert create(release=V1_37, managedFields=entries) == [
        f'{path}[0].operation: Unsupported value: "x": supported values: "Apply", "Update"',
        f"{path}[1].operation: Required value: must not be empty",
        f"{path}[2].operation: Required value: must not be empty",
    ]


def test_managed_fields_are_checked() -> None:
    entries = [
        {"operation": "Update", "fieldsType": "FieldsV1", "manager": "m"},
        {"operation": "x", "fieldsType": "FieldsV2", "manager": "a\t", "subresource": "s" * 257},
    ]
    path = "metadata.managedFields[1]"
    assert create(managedFields=entries) == [
        f'{path}.operation: Unsupported value: "x": supported values: "Apply", "Update"',
        f'{path}.fieldsType: Invalid value: "FieldsV2": must be `FieldsV1`',
        rf'{path}.manager: Invalid value: "a\t": invalid character U+0009 (at position 1)',
        f"{path}.subresource: Too long: may not be more than 256 bytes",
    ]


def test_an_unchanged_object_passes_the_update_check() -> None:
    same = {
        "namespace": "n",
        "uid": "u",
        "creationTimestamp": "2023-11-14T22:13:20Z",
        "generation": 3,
        "labels": {"a": "b"},
    }
    assert update(same, same) == []


@pytest.mark.parametrize(
    ("member", "new", "old", "shown"),
    [
        ("name", "b", "a", '"b"'),
        ("namespace", "n", "m", '"n"'),
        ("namespace", None, "m", '""'),
        ("uid", "u", "v", '"u"'),
        ("creationTimestamp", "2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z", '"2023-11-14T22:13:20Z"'),
        ("creationTimestamp", None, "2023-11-14T22:13:21Z", "null"),
        ("deletionTimestamp", "2001-01-01T00:00:00Z", None, '"2001-01-01T00:00:00Z"'),
        ("deletionGracePeriodSeconds", 9, None, "9"),
        ("deletionGracePeriodSeconds", None, 0, "null"),
    ],
)
def test_identity_and_lifecycle_are_immutable(member: str, new: Any, old: Any, shown: str) -> None:
    before, after = obj(resourceVersion="1"), obj(resourceVersion="1")
    before["metadata"][member], after["metadata"][member] = old, new
    assert texts(meta.validate_object_meta_update(after, before, NEWEST)) == [
        f"metadata.{member}: Invalid value: {shown}: field is immutable"
    ]


def test_times_are_compared_as_instants() -> None:
    assert (
        update({"creationTimestamp": "2023-11-14T22:13:20Z"}, {"creationTimestamp": "2023-11-14T23:13:20+01:00"}) == []
    )


def test_an_update_needs_a_version_and_a_generation_that_does_not_fall() -> None:
    found = meta.validate_object_meta_update(obj(generation=1), obj(generation=2), NEWEST)
    assert texts(found) == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
        "metadata.generation: Invalid value: 1: must not be decremented",
    ]


def test_no_finalizers_are_added_while_deleting() -> None:
    deleting = {"deletionTimestamp": "2023-11-14T22:13:20Z"}
    new = {"finalizers": ["ex.io/f", "ex.io/new", "ex.io/also"], **deleting}
    assert update(new, {"finalizers": ["ex.io/f", "ex.io/g"], **deleting}) == [
        (
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
            'found new finalizers []string{"ex.io/also", "ex.io/new"}'
        )
    ]
    assert update({"finalizers": ["ex.io/f"], **deleting}, {"finalizers": ["ex.io/f", "ex.io/g"], **deleting}) == []


def test_update_repeats_checks_of_labels_annotations_owners_finalizers() -> None:
    new = {
        "labels": {"a b": ""},
        "annotations": {"a b": ""},
        "ownerReferences": [OWNER | {"uid": ""}],
        "finalizers": ["x"],
    }
    assert update(new, {}) == [
        f'metadata.labels: Invalid value: "a b": name part {KEY}',
        f'metadata.annotations: Invalid value: "a b": name part {KEY}',
        "metadata.ownerReferences[0].uid: Required value: must not be empty",
        f'metadata.finalizers[0]: Invalid value: "x": {UNQUALIFIED}',
    ]
