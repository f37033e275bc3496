"""PUT and PATCH: one successor of the stored object, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_36, Release
from tests.promises.api.client import JSON_PATCH, MERGE, Client, Object, claim, device_class, version

STRATEGIC = "application/strategic-merge-patch+json"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
NOT_A_NUMBER = 'strconv.ParseUint: parsing "abc": invalid syntax'
NAMESPACE_DIFFERS = "the namespace of the provided object does not match the namespace sent on the request"


@pytest.fixture
def stored(api: Client, mine: str) -> Object:
    return api.create(api.claims(mine), claim("one", labels={"a": "1"}, annotations={"note": "x"}))


@pytest.fixture
def path(api: Client, mine: str, stored: Object) -> str:
    return f"{api.claims(mine)}/one"


def with_metadata(obj: Object, **metadata: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def without(obj: Object, *members: str) -> Object:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k not in members}}


# PUT


def test_a_put_replaces_what_the_client_owns_and_nothing_else(api: Client, stored: Object, path: str) -> None:
    after = api.put(path, claim("one", labels={"b": "2"}))

    assert after["metadata"]["labels"] == {"b": "2"}
    assert "annotations" not in after["metadata"]
    assert version(after) > version(stored)
    for member in ("uid", "creationTimestamp", "namespace", "name"):
        assert after["metadata"][member] == stored["metadata"][member]


def test_a_put_that_changes_nothing_writes_nothing(api: Client, mine: str, stored: Object, path: str) -> None:
    with api.watch(api.claims(mine), resourceVersion=version(stored)) as watch:
        for same in (stored, without(stored, "resourceVersion", "uid", "creationTimestamp"), with_metadata(stored)):
            assert version(api.put(path, same)) == version(stored)
        last = api.put(path, with_metadata(stored, labels={"a": "2"}))

        assert version(watch.next()[1]) == version(last)


@pytest.mark.parametrize("stated", [None, "", "0"])
def test_a_put_without_a_version_is_unconditional(api: Client, stored: Object, path: str, stated: str | None) -> None:
    api.patch(path, {"metadata": {"labels": {"b": "2"}}})
    sent = without(stored, "resourceVersion")
    if stated is not None:
        sent["metadata"]["resourceVersion"] = stated

    assert api.put(path, sent)["metadata"]["labels"] == {"a": "1"}


def test_a_put_from_an_older_version_is_409(api: Client, stored: Object, path: str) -> None:
    api.patch(path, {"metadata": {"labels": {"b": "2"}}})

    refusal = api.refusal("PUT", path, stored)

    claim_one = f'resourceclaims.{api.group} "one"'
    assert refusal == (409, "Conflict", f"Operation cannot be fulfilled on {claim_one}: {MODIFIED}")
    assert refusal.details == {"name": "one", "group": api.group, "kind": "resourceclaims"}
    assert api.refusal("PUT", path, with_metadata(stored, resourceVersion="99" + "0" * 17)).code == 409


def test_a_put_whose_version_is_no_number_is_a_raw_500(api: Client, stored: Object, path: str) -> None:
    assert api.refusal("PUT", path, with_metadata(stored, resourceVersion="abc")) == (500, "", NOT_A_NUMBER)


def test_a_put_of_another_name_or_namespace_is_400(api: Client, stored: Object, path: str) -> None:
    other = "the name of the object (two) does not match the name on the URL (one)"
    assert api.refusal("PUT", path, with_metadata(stored, name="two")) == (400, "BadRequest", other)
    assert api.refusal("PUT", path, without(stored, "name")) == (
        400,
        "BadRequest",
        "the name of the object (one based on URL) was undeterminable: name must be provided",
    )
    both = with_metadata(stored, name="two", namespace="other")
    assert api.refusal("PUT", path, both) == (400, "BadRequest", NAMESPACE_DIFFERS)


def test_a_put_of_another_uid_is_409(api: Client, mine: str, stored: Object, path: str) -> None:
    refusal = api.refusal("PUT", path, with_metadata(stored, uid="other"))

    assert (refusal.code, refusal.reason) == (409, "Conflict")
    tail = f"Precondition failed: UID in precondition: other, UID in object meta: {stored['metadata']['uid']}"
    assert refusal.message.endswith(tail)


@pytest.mark.parametrize("metadata", [{}, {"uid": "x"}, {"resourceVersion": "5"}, {"resourceVersion": "abc"}])
def test_a_put_never_creates(api: Client, mine: str, metadata: Object) -> None:
    refusal = api.refusal("PUT", f"{api.claims(mine)}/none", claim("none", **metadata))

    assert refusal == (404, "NotFound", f'resourceclaims.{api.group} "none" not found')


def test_creation_time_and_generation_stay_whatever_is_sent(api: Client, stored: Object, path: str) -> None:
    after = api.put(path, with_metadata(stored, creationTimestamp="2001-01-01T00:00:00Z", generation=99))

    assert after["metadata"] == stored["metadata"]


@pytest.mark.parametrize(
    ("member", "value"), [("deletionTimestamp", "2001-01-01T00:00:00Z"), ("deletionGracePeriodSeconds", 5)]
)
def test_a_client_cannot_begin_a_deletion_by_writing(
    api: Client, stored: Object, path: str, release: Release, member: str, value: Any
) -> None:
    for refusal in (
        api.refusal("PUT", path, with_metadata(stored, **{member: value})),
        api.refusal("PATCH", path, {"metadata": {member: value}}, kind=MERGE),
    ):
        assert refusal.code == 422
        assert [field for field, text in refusal.causes if text.endswith("field is immutable")] == [
            f"metadata.{member}"
        ] * (2 if release is V1_36 else 1)


def test_a_put_to_an_object_that_was_recreated_meanwhile_is_409(api: Client, stored: Object, path: str) -> None:
    api.delete(path)
    api.create(path.rpartition("/")[0], claim("one"))

    assert api.refusal("PUT", path, without(stored, "resourceVersion")).code == 409
    assert api.refusal("PUT", path, without(stored, "uid")).code == 409


def test_all_errors_of_an_object_are_reported_at_once(api: Client, stored: Object, path: str) -> None:
    bad = with_metadata(stored, labels={"a b": "c"}, finalizers=["unqualified"])
    bad["spec"] = {"devices": {}}

    fields = {field for field, _ in api.refusal("PUT", path, bad).causes}

    assert {"metadata.labels", "metadata.finalizers[0]", "spec"} <= fields


# PATCH


def test_a_merge_patch_changes_what_it_names(api: Client, stored: Object, path: str) -> None:
    after = api.patch(path, {"metadata": {"labels": {"b": "2", "a": None}, "annotations": None}})

    assert after["metadata"]["labels"] == {"b": "2"}
    assert "annotations" not in after["metadata"]
    assert after["spec"] == stored["spec"]


def test_a_json_patch_applies_its_operations_in_order(api: Client, path: str) -> None:
    operations = [
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/example.com~1b"},
        {"op": "add", "path": "/metadata/annotations/m", "value": "y"},
    ]

    after = api.patch(path, operations, kind=JSON_PATCH)

    assert after["metadata"]["labels"] == {"example.com/b": "1"}
    assert after["metadata"]["annotations"] == {"note": "x", "m": "y"}


def test_a_strategic_merge_patch_removes_an_owner_by_its_uid(api: Client, mine: str) -> None:
    """As the garbage collector does when it orphans what an object owned."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": f"u-{n}"} for n in range(3)]
    api.create(api.claims(mine), claim("one", ownerReferences=owners))
    removal = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u-1"}]}}

    after = api.patch(f"{api.claims(mine)}/one", removal, kind=STRATEGIC)

    assert after["metadata"]["ownerReferences"] == [owners[0], owners[2]]


def test_a_strategic_merge_patch_adds_takes_out_and_orders(api: Client, mine: str) -> None:
    """As kubectl writes it."""
    finalizers = ["example.com/a", "example.com/b", "example.com/c"]
    api.create(api.claims(mine), claim("one", finalizers=finalizers, labels={"other": "x"}))
    change = {
        "metadata": {
            "$setElementOrder/finalizers": ["example.com/c", "example.com/x", "example.com/a"],
            "$deleteFromPrimitiveList/finalizers": ["example.com/b"],
            "finalizers": ["example.com/x"],
            "labels": {"$patch": "replace", "only": "this"},
        }
    }

    after = api.patch(f"{api.claims(mine)}/one", change, kind=STRATEGIC)

    assert after["metadata"]["finalizers"] == ["example.com/c", "example.com/x", "example.com/a"]
    assert after["metadata"]["labels"] == {"only": "this"}


def test_a_strategic_merge_patch_that_changes_nothing_writes_nothing(api: Client, stored: Object, path: str) -> None:
    for patch in (b"null", {}, {"metadata": {"labels": {"a": "1", "z": None}, "$patch/x": None}}):
        assert api.patch(path, patch, kind=STRATEGIC) == stored
    assert api.get(path) == stored


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"$retainKeys": "spec"}, 400, "invalid patch format of retainKeys"),
        ({"metadata": {"$deleteFromPrimitiveList": ["a"]}}, 400, "invalid patch format of primitive list"),
        ({"metadata": {"$setElementOrder": ["a"]}}, 400, "invalid patch format of setElementOrder list"),
        ({"metadata": {"$patch": "bogus"}}, 500, "unknown patch type: bogus in map: map[$patch:bogus]"),
        (
            {"metadata": {"ownerReferences": [{"name": "x"}]}},
            500,
            "map: map[name:x] does not contain declared merge key: uid",
        ),
        (
            {"metadata": {"ownerReferences": [5]}},
            500,
            "list element types are not identical: [[map[apiVersion:v1 kind:Pod name:p uid:u]] [5]]",
        ),
        (
            {"spec": {"devices": []}},
            422,
            ' "" is invalid: patch: Invalid value: "map[spec:map[devices:[]]]": cannot restore struct from: slice',
        ),
        (
            {"metadata": {"labels": {"b": 1.0}}},
            422,
            ' "" is invalid: patch: Invalid value: "map[metadata:map[labels:map[b:1]]]": unrecognized type: string',
        ),
        (
            {"metadata": {"deletionTimestamp": "never"}},
            422,
            (
                ' "" is invalid: patch: Invalid value: "map[metadata:map[deletionTimestamp:never]]": parsing time "never" as '
                '"2006-01-02T15:04:05Z07:00": cannot parse "never" as "2006"'
            ),
        ),
        (
            {"$patch": "delete"},
            400,
            "the name of the object (one based on URL) was undeterminable: name must be provided",
        ),
    ],
)
def test_misfits_of_a_strategic_merge_patch_are_reported(
    api: Client, mine: str, patch: Any, code: int, message: str
) -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]
    made = api.create(api.claims(mine), claim("one", ownerReferences=owners))

    refusal = api.refusal("PATCH", f"{api.claims(mine)}/one", patch, kind=STRATEGIC)

    assert (refusal.code, refusal.message) == (code, message)
    assert api.get(f"{api.claims(mine)}/one") == made


def test_strategic_merge_patch_obeys_strict_field_validation(api: Client, stored: Object, path: str) -> None:
    patch = '{"metadata": {"foo": 1, "annotations": {"note": "y", "note": "x"}}, "bar": {}}'
    told = ['duplicate field "metadata.annotations.note"', 'unknown field "bar"', 'unknown field "metadata.foo"']

    refusal = api.refusal("PATCH", path, patch.encode(), kind=STRATEGIC, fieldValidation="Strict")
    warned = api.ask("PATCH", path, patch, headers={"Content-Type": STRATEGIC})

    assert refusal.code == 422
    assert refusal.message.endswith(f']]": strict decoding error: {", ".join(told)}')
    assert warned.headers.get_all("Warning") == [f"299 - {json.dumps(text)}" for text in told]
    assert api.patch(path, json.loads(patch), kind=STRATEGIC, fieldValidation="Ignore") == stored


@pytest.mark.parametrize(
    "patch", [{}, {"metadata": {}}, {"metadata": {"labels": {"a": "1", "z": None}}}, {"status": {}}]
)
def test_a_patch_that_changes_nothing_writes_nothing(api: Client, stored: Object, path: str, patch: Object) -> None:
    assert api.patch(path, patch) == stored
    assert api.patch(path, [], kind=JSON_PATCH) == stored
    assert api.get(path) == stored


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"metadata": {"name": "two"}}, 400, "the name of the object (two) does not match the name on the URL (one)"),
        ({"metadata": {"namespace": "other"}}, 400, NAMESPACE_DIFFERS),
        # Upstream checks the namespace before it looks at the name (kubernetes/apiserver pkg/endpoints/handlers/patch.go).
        ({"metadata": {"name": "two", "namespace": "other"}}, 400, NAMESPACE_DIFFERS),
        (
            {"metadata": None},
            400,
            "the name of the object (one based on URL) was undeterminable: name must be provided",
        ),
        ({"metadata": {"uid": "x"}}, 422, 'metadata.uid: Invalid value: "x": field is immutable'),
        ({"metadata": {"resourceVersion": "1"}}, 409, MODIFIED),
        ({"metadata": {"resourceVersion": "abc"}}, 500, NOT_A_NUMBER),
        ({"kind": "Foo"}, 422, 'no kind "Foo" is registered for version'),
        ({"kind": "DeviceClass"}, 422, "patch: Invalid value"),
        ({"apiVersion": "v9"}, 422, 'no kind "ResourceClaim" is registered for version "v9"'),
        ({"metadata": 5}, 422, "json: cannot unmarshal number into Go struct field"),
        ({"spec": {"devices": None}}, 422, "spec: Invalid value"),
        ({"metadata": {"labels": {"a b": "c"}}}, 422, "metadata.labels: Invalid value"),
    ],
)
def test_patch_cannot_turn_an_object_into_another(
    api: Client, stored: Object, path: str, patch: Any, code: int, message: str
) -> None:
    refusal = api.refusal("PATCH", path, patch, kind=MERGE)

    assert refusal.code == code, refusal
    assert message in refusal.message
    assert api.get(path) == stored


def test_members_that_the_system_keeps_survive_their_removal_by_a_patch(api: Client, stored: Object, path: str) -> None:
    kept = ("uid", "creationTimestamp", "namespace", "resourceVersion")

    assert api.patch(path, {"metadata": dict.fromkeys(kept)}) == stored


def test_a_patch_may_insist_on_a_version(api: Client, stored: Object, path: str) -> None:
    patch = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"], "labels": {"a": "2"}}}

    api.patch(path, patch)

    assert api.refusal("PATCH", path, patch, kind=MERGE).code == 409


@pytest.mark.parametrize("kind", [MERGE, JSON_PATCH, STRATEGIC])
def test_an_absent_object_is_404_before_the_patch_is_applied(api: Client, mine: str, kind: str) -> None:
    assert api.refusal("PATCH", f"{api.claims(mine)}/none", b'"no patch"', kind=kind).code == 404


@pytest.mark.parametrize("kind", [MERGE, JSON_PATCH, STRATEGIC])
def test_patch_that_is_no_json_is_400_before_the_object_is_looked_up_since_1_37(
    api: Client, mine: str, release: Release, kind: str
) -> None:
    """CHECK_JSON"""
    refusal = api.refusal("PATCH", f"{api.claims(mine)}/none", b"garbage", kind=kind)
    if release is V1_36:
        assert refusal.code == 404
    else:
        assert (refusal.code, refusal.message) == (400, "invalid JSON patch")


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
@pytest.mark.parametrize("kind", [MERGE, JSON_PATCH, STRATEGIC])
def test_a_patch_that_cannot_be_read_is_400(
    api: Client, path: str, release: Release, kind: str, validation: str
) -> None:
    refusal = api.refusal("PATCH", path, b"garbage", kind=kind, fieldValidation=validation)
    assert refusal.code == 400
    if release is not V1_36:
        assert refusal.message == "invalid JSON patch"
    elif kind != STRATEGIC and validation == "Strict":
        assert refusal.message.startswith("error decoding patch: ")


def test_a_json_patch_that_does_not_apply_is_422_without_a_cause(api: Client, stored: Object, path: str) -> None:
    for operation in (
        {"op": "test", "path": "/metadata/labels/a", "value": "9"},
        {"op": "remove", "path": "/metadata/labels/z"},
        {"op": "add", "path": "/no/such/parent", "value": 1},
        {"op": "frobnicate", "path": "/metadata"},
    ):
        refusal = api.refusal("PATCH", path, [operation], kind=JSON_PATCH)
        assert refusal == (422, "Invalid", "the server rejected our request due to an error in our request")
    assert api.get(path) == stored


def test_more_than_ten_thousand_operations_are_413(api: Client, path: str) -> None:
    operation = {"op": "test", "path": "/metadata/name", "value": "one"}

    api.patch(path, [operation] * 10_000, kind=JSON_PATCH)

    refusal = api.refusal("PATCH", path, [operation] * 10_001, kind=JSON_PATCH)
    assert refusal.code == 413
    assert "allowed maximum operations in a JSON patch is 10000, got 10001" in refusal.message


@pytest.mark.parametrize("kind", ["", "application/json", "text/plain", "application/merge-patch"])
def test_a_patch_of_no_known_type_is_415(api: Client, path: str, kind: str) -> None:
    assert api.refusal("PATCH", path, b"{}", kind=kind).code == 415


def test_force_belongs_to_apply_alone(api: Client, path: str) -> None:
    for force in ("true", "false"):
        refusal = api.refusal("PATCH", path, {}, kind=MERGE, force=force)
        assert refusal.causes == [("force", "Forbidden: may not be specified for non-apply patch")]


def test_patch_obeys_strict_field_validation(api: Client, stored: Object, path: str) -> None:
    patch = {"metadata": {"foo": 1}}

    assert "unknown field" in api.refusal("PATCH", path, patch, kind=MERGE, fieldValidation="Strict").message
    warned = api.ask("PATCH", path, json.dumps(patch), headers={"Content-Type": MERGE})
    assert warned.headers.get_all("Warning") == ['299 - "unknown field \\"metadata.foo\\""']
    assert api.patch(path, patch, fieldValidation="Ignore") == stored


def test_repeated_owners_warn_before_admission_in_put_after_it_in_patch(api: Client, path: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}
    put = api.ask("PUT", path, claim("one", ownerReferences=[owner, owner]))
    patch = {"metadata": {"ownerReferences": [owner, owner, owner]}}
    patched = api.ask("PATCH", path, json.dumps(patch), headers={"Content-Type": MERGE})

    for reply, where in ((put, ""), (patched, " after mutating admission happens")):
        assert reply.json["metadata"]["ownerReferences"] == [owner]
        (warning,) = reply.headers.get_all("Warning") or []
        assert f".metadata.ownerReferences contains duplicate entries{where}; API server dedups" in warning


def test_repeated_owners_of_a_put_warn_even_without_an_object(api: Client, mine: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}
    reply = api.ask("PUT", f"{api.claims(mine)}/none", claim("none", ownerReferences=[owner, owner]))

    (warning,) = reply.headers.get_all("Warning") or []
    assert reply.status == 404
    assert ".metadata.ownerReferences contains duplicate entries; API server dedups" in warning


def test_the_spec_of_a_claim_cannot_change(api: Client, stored: Object, path: str) -> None:
    spec = {"devices": {"requests": [{"name": "other", "exactly": {"deviceClassName": "gpu"}}]}}

    for refusal in (
        api.refusal("PUT", path, {**stored, "spec": spec}),
        api.refusal("PATCH", path, {"spec": spec}, kind=MERGE),
    ):
        assert refusal.code == 422
        assert refusal.causes[0][1].endswith("field is immutable")


def test_unicode_survives_every_way_of_writing(api: Client, mine: str) -> None:
    text = 'ä名\u2028<b>&"\\\t😀'
    made = api.create(api.classes, device_class(mine, annotations={"t": text}))
    assert made["metadata"]["annotations"]["t"] == text

    put = api.put(f"{api.classes}/{mine}", {**made, "metadata": {**made["metadata"], "annotations": {"t": text * 2}}})
    patched = api.patch(f"{api.classes}/{mine}", {"metadata": {"annotations": {"u": text}}})

    assert put["metadata"]["annotations"]["t"] == text * 2
    assert patched["metadata"]["annotations"] == {"t": text * 2, "u": text}
    assert api.get(f"{api.classes}/{mine}") == patched


def test_lone_halves_of_surrogate_pairs_become_the_replacement_character(api: Client, mine: str) -> None:
    body = b'{"metadata":{"name":"%s","annotations":{"a":"x\\ud800y","b":"\\udc00"}},"spec":{}}' % mine.encode()

    assert api.ask("POST", api.classes, body).json["metadata"]["annotations"] == {"a": "x�y", "b": "�"}
    after = api.patch(f"{api.classes}/{mine}", b'{"metadata":{"annotations":{"c":"\\ud800"}}}')
    assert after["metadata"]["annotations"]["c"] == "�"
