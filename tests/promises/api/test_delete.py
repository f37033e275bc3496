"""DELETE of one object and of many: preconditions, finalizers, the two phases."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_36, Release
from tests.promises.api.client import (
    MERGE,
    Client,
    Object,
    claim,
    content,
    device_class,
    names,
    resource_slice,
    told,
    version,
)

FINALIZER = "example.com/f"
UID_DIFFERS = "does not match the UID in record"
VERSION_DIFFERS = "does not match the ResourceVersion in record"


def options(**members: Any) -> Object:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **members}


def test_a_deletion_answers_with_the_last_state_at_its_own_version(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine), claim("one", labels={"a": "b"}))

    with api.watch(api.claims(mine), resourceVersion=version(made)) as watch:
        gone = api.delete(f"{api.claims(mine)}/one")
        kind, seen = watch.next()

    assert version(gone) > version(made)
    assert (kind, seen) == ("DELETED", gone)
    assert content(gone) == content(made)
    assert api.refusal("GET", f"{api.claims(mine)}/one").code == 404
    assert api.refusal("DELETE", f"{api.claims(mine)}/one") == (
        404,
        "NotFound",
        f'resourceclaims.{api.group} "one" not found',
    )


@pytest.mark.parametrize("way", ["body", "query"])
@pytest.mark.parametrize("member", ["uid", "resourceVersion"])
def test_failed_precondition_is_409_and_a_fulfilled_one_deletes(api: Client, mine: str, way: str, member: str) -> None:
    path = f"{api.claims(mine)}/one"
    made = api.create(api.claims(mine), claim("one"))

    def arguments(value: str) -> dict[str, Any]:
        return {member: value} if way == "query" else {"body": options(preconditions={member: value})}

    refusal = api.refusal("DELETE", path, **arguments("7"))
    assert (refusal.code, refusal.reason) == (409, "Conflict")
    assert (UID_DIFFERS if member == "uid" else VERSION_DIFFERS) in refusal.message
    assert refusal.details == {"name": "one", "group": api.group, "kind": "ResourceClaim"}
    assert api.get(path) == made

    assert api.ask("DELETE", path, **arguments(made["metadata"][member])).status == 200


def test_an_empty_precondition_counts_in_a_body_and_not_in_a_query(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))
    path = f"{api.claims(mine)}/one"

    assert api.refusal("DELETE", path, options(preconditions={"uid": ""})).code == 409
    assert api.refusal("DELETE", path, options(preconditions={"resourceVersion": ""})).code == 409
    api.delete(path, uid="", resourceVersion="")


def test_the_query_is_not_looked_at_when_there_is_a_body(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))

    api.delete(f"{api.claims(mine)}/one", options(), dryRun="nonsense", uid="7", propagationPolicy="Bogus")

    assert api.refusal("GET", f"{api.claims(mine)}/one").code == 404


def test_object_modified_meanwhile_is_deleted_unless_preconditions_fail(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    made = api.create(api.claims(mine), claim("one"))
    api.patch(path, {"metadata": {"labels": {"a": "b"}}})

    before = made["metadata"]["resourceVersion"]
    assert api.refusal("DELETE", path, options(preconditions={"resourceVersion": before})).code == 409
    assert api.delete(path, uid=made["metadata"]["uid"])["metadata"]["labels"] == {"a": "b"}


def test_finalizers_turn_a_deletion_into_a_mark(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    made = api.create(api.claims(mine), claim("one", finalizers=[FINALIZER]))

    with api.watch(api.claims(mine), resourceVersion=version(made)) as watch:
        marked = api.delete(path)
        again = api.delete(path)
        metadata = marked["metadata"]
        assert metadata["deletionTimestamp"] >= metadata["creationTimestamp"]
        assert metadata["deletionGracePeriodSeconds"] == 0
        assert again == marked, "the second deletion is a no-op"

        submitted = api.patch(path, {"metadata": {"finalizers": None, "labels": {"last": "words"}}})
        assert version(submitted) == version(marked), "the answer is the object as submitted"
        assert submitted["metadata"]["labels"] == {"last": "words"}
        first, second = watch.take(2)

    assert first == ("MODIFIED", marked)
    assert (second[0], version(second[1]) > version(marked)) == ("DELETED", True)
    assert api.refusal("GET", path).code == 404


def test_a_put_that_removes_the_last_finalizer_deletes_too(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one", finalizers=[FINALIZER, "example.com/g"]))
    marked = api.delete(path)
    marked["metadata"]["finalizers"] = [FINALIZER]
    fewer = api.put(path, marked)
    assert version(fewer) > version(marked)

    del fewer["metadata"]["finalizers"]
    api.put(path, fewer)

    assert api.refusal("GET", path).code == 404


def test_a_deleting_object_takes_no_new_finalizer_and_cannot_be_revived(
    api: Client, mine: str, release: Release
) -> None:
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one", finalizers=[FINALIZER]))
    marked = api.delete(path)

    refusal = api.refusal("PATCH", path, {"metadata": {"finalizers": [FINALIZER, "example.com/g"]}}, kind=MERGE)
    text = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/g"}'
    )
    assert refusal.causes == [("metadata.finalizers", text)] * (2 if release is V1_36 else 1)  # REPORTED
    removed = {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
    assert api.patch(path, removed) == marked
    later = {"metadata": {"deletionTimestamp": "2099-01-01T00:00:00Z"}}
    assert content(api.patch(path, later)) == content(marked)


def test_a_live_object_that_loses_its_finalizers_lives_on(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one", finalizers=[FINALIZER]))

    api.patch(f"{api.claims(mine)}/one", {"metadata": {"finalizers": []}})

    assert "finalizers" not in api.get(f"{api.claims(mine)}/one")["metadata"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"propagationPolicy": "Orphan"}, ["orphan"]),
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"orphanDependents": "true"}, ["orphan"]),
    ],
)
def test_a_propagation_policy_becomes_a_finalizer(
    api: Client, mine: str, query: dict[str, Any], expected: list[str]
) -> None:
    """A garbage collector may remove it at once."""
    api.create(api.claims(mine), claim("one"))

    marked = api.delete(f"{api.claims(mine)}/one", **query)

    assert marked["metadata"]["finalizers"] == expected


@pytest.mark.only("aggregated", "upstream", reason="the garbage collector of dev removes the finalizer at once")
def test_last_state_lists_the_finalizer_that_a_new_policy_removes(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))
    api.delete(f"{api.claims(mine)}/one", propagationPolicy="Orphan")

    gone = api.delete(f"{api.claims(mine)}/one", propagationPolicy="Background")

    assert gone["metadata"]["finalizers"] == ["orphan"]
    assert api.refusal("GET", f"{api.claims(mine)}/one").code == 404


def test_the_policy_of_a_deletion_that_has_begun_can_change(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one", finalizers=[FINALIZER]))

    first = api.delete(path, propagationPolicy="Foreground")["metadata"]
    second = api.delete(path, propagationPolicy="Orphan")["metadata"]
    third = api.delete(path, propagationPolicy="Background")["metadata"]

    assert first["finalizers"] == [FINALIZER, "foregroundDeletion"]
    assert second["finalizers"] == [FINALIZER, "orphan"]
    assert third["finalizers"] == [FINALIZER]
    assert {m["deletionTimestamp"] for m in (first, second, third)} == {first["deletionTimestamp"]}


def test_orphan_dependents_false_is_202_while_the_object_remains(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one", finalizers=[FINALIZER]))
    api.create(api.claims(mine), claim("two"))

    assert api.ask("DELETE", f"{api.claims(mine)}/one", orphanDependents="false").status == 202
    assert api.ask("DELETE", f"{api.claims(mine)}/two", orphanDependents="false").status == 200


@pytest.mark.parametrize(
    ("sent", "code", "text"),
    [
        ({"propagationPolicy": "Bogus"}, 422, 'propagationPolicy: Unsupported value: "Bogus"'),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"dryRun": ["Some"]}, 422, 'dryRun: Unsupported value: ["Some"]'),
        ({"gracePeriodSeconds": "x"}, 400, "json: cannot unmarshal string"),
        ({"kind": "DeviceClass", "apiVersion": "GROUP/v1"}, 400, 'no kind "DeviceClass" is registered'),
        ({"preconditions": []}, 400, "json: cannot unmarshal array"),
    ],
)
def test_bad_options_are_refused_before_anything_is_looked_up(
    api: Client, mine: str, sent: Object, code: int, text: str
) -> None:
    if "apiVersion" in sent:
        sent = {**sent, "apiVersion": f"{api.group}/v1"}
    for path in (f"{api.claims(mine)}/none", api.claims(mine)):
        refusal = api.refusal("DELETE", path, options(**sent))
        assert refusal.code == code
        assert text in refusal.message


def test_a_grace_period_means_nothing_here(api: Client, mine: str) -> None:
    for grace in (-5, 0, 3600, 9223372036854775807):
        api.create(api.claims(mine), claim("one"))
        api.delete(f"{api.claims(mine)}/one", options(gracePeriodSeconds=grace))
        assert api.refusal("GET", f"{api.claims(mine)}/one").code == 404


def test_a_body_of_null_or_unknown_members_has_no_options(api: Client, mine: str) -> None:
    for body in ("null", '{"nonsense":1}', '{"kind":"DeleteOptions","apiVersion":"what/ever"}', "kind: DeleteOptions"):
        api.create(api.claims(mine), claim("one"))
        kind = "application/yaml" if body.startswith("kind") else "application/json"
        reply = api.ask("DELETE", f"{api.claims(mine)}/one", body, headers={"Content-Type": kind})
        assert reply.status == 200, reply.text


def test_a_precondition_stays_where_its_member_is_repeated(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))
    path, headers = f"{api.claims(mine)}/one", {"Content-Type": "application/json"}
    reply = api.ask("DELETE", path, '{"preconditions":{"uid":"7"},"preconditions":{}}', headers=headers)
    assert reply.status == 409, reply.text
    assert UID_DIFFERS in reply.json["message"]
    reply = api.ask("DELETE", path, '{"preconditions":{"uid":"7"},"preconditions":null}', headers=headers)
    assert reply.status == 200, reply.text


# Collections


def test_a_collection_is_deleted_and_answered_as_it_was_listed(api: Client, mine: str) -> None:
    made = [api.create(api.claims(mine), claim(name)) for name in "cab"]

    answer = api.delete(api.claims(mine))

    assert answer["kind"] == "ResourceClaimList"
    assert names(answer) == ["a", "b", "c"]
    assert {version(item) for item in answer["items"]} == set(map(version, made))
    assert api.get(api.claims(mine))["items"] == []


def test_selectors_and_scope_protect_the_rest(api: Client, mine: str) -> None:
    other = api.namespace(f"{mine}-other")
    for namespace in (mine, other):
        for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"x": "1"})):
            api.create(api.claims(namespace), claim(name, labels=labels))

    assert names(api.delete(api.claims(mine), labelSelector="x=1", fieldSelector="metadata.name!=c")) == ["a"]
    assert names(api.delete(api.claims(mine), fieldSelector="metadata.name=b")) == ["b"]
    assert names(api.delete(api.claims(mine), fieldSelector="metadata.name=none")) == []
    assert names(api.get(api.claims(mine))) == ["c"]
    assert names(api.get(api.claims(other))) == ["a", "b", "c"]


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}])
def test_a_path_with_an_empty_namespace_deletes_nothing(api: Client, mine: str, query: dict[str, Any]) -> None:
    api.create(api.claims(mine), claim("a", labels={"x": mine}))
    everywhere = api.claims("")

    assert names(api.get(everywhere, labelSelector=f"x={mine}")) == ["a"]
    refusal = api.refusal("DELETE", everywhere, labelSelector=f"x={mine}", **query)
    assert refusal == (400, "BadRequest", "Namespace parameter required.")
    assert names(api.delete(everywhere, labelSelector=f"x=not-{mine}", **query)) == []
    assert names(api.get(api.claims(mine))) == ["a"]


def test_a_conflicting_selector_deletes_nothing(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("a"))

    for selector in ("metadata.name=a,metadata.name=b", "metadata.name=a,metadata.name!=a", "metadata.namespace=other"):
        assert names(api.delete(api.claims(mine), fieldSelector=selector)) == []
    assert api.refusal("DELETE", api.claims(mine), fieldSelector="spec.foo=x").code == 400
    assert api.refusal("DELETE", api.claims(mine), labelSelector="((").code == 400
    assert names(api.get(api.claims(mine))) == ["a"]


def test_a_limit_deletes_one_page_and_its_token_the_next(api: Client, mine: str) -> None:
    for name in "abcde":
        api.create(api.claims(mine), claim(name, labels={"x": "1"} if name != "b" else {}))

    first = api.delete(api.claims(mine), limit=2, labelSelector="x=1")
    assert names(first) == ["a", "c"]
    assert names(api.get(api.claims(mine))) == ["b", "d", "e"]

    rest = api.delete(api.claims(mine), limit=5, labelSelector="x=1", continue_=first["metadata"]["continue"])
    assert names(rest) == ["d", "e"]
    assert names(api.get(api.claims(mine))) == ["b"]


def test_the_page_of_a_collection_counts_what_remains(api: Client, mine: str) -> None:
    for name in "abc":
        api.create(api.claims(mine), claim(name))

    assert api.delete(api.claims(mine), limit=1)["metadata"]["remainingItemCount"] == 2


def test_preconditions_hold_for_each_object_of_a_collection(api: Client, mine: str) -> None:
    first, second = (api.create(api.claims(mine), claim(name)) for name in "ab")

    uid = second["metadata"]["uid"]
    refusal = api.refusal("DELETE", api.claims(mine), options(preconditions={"uid": uid}))

    assert (refusal.code, refusal.details["name"]) == (409, "a")
    assert names(api.get(api.claims(mine))) in (["a"], ["a", "b"])
    assert api.get(f"{api.claims(mine)}/a") == first


def test_finalizers_keep_objects_of_a_deleted_collection(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("a", finalizers=[FINALIZER]))
    api.create(api.claims(mine), claim("b"))

    answer = api.delete(api.claims(mine))

    assert names(answer) == ["a", "b"]
    assert "deletionTimestamp" not in answer["items"][0]["metadata"], "as it was listed"
    (left,) = api.get(api.claims(mine))["items"]
    assert "deletionTimestamp" in left["metadata"]
    assert api.delete(api.claims(mine))["items"][0] == left


def test_a_stated_version_lists_that_very_state_and_is_a_precondition(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("a"))
    made = api.create(api.claims(mine), claim("b"))
    now = made["metadata"]["resourceVersion"]

    assert api.refusal("DELETE", api.claims(mine), resourceVersion=now).code == 409
    api.create(api.claims(mine), claim("c"))
    assert names(api.delete(api.claims(mine), options(), resourceVersion=now)) == ["a", "b"]
    assert names(api.get(api.claims(mine))) == ["c"]
    assert api.refusal("DELETE", api.claims(mine), options(), resourceVersion="1").code == 410


def test_a_large_collection_goes_at_once_and_in_events_of_rising_versions(api: Client, mine: str) -> None:
    for i in range(150):
        last = api.create(api.claims(mine), claim(f"c{i:03}"))

    with api.watch(api.claims(mine), resourceVersion=version(last)) as watch:
        assert len(api.delete(api.claims(mine))["items"]) == 150
        events = watch.take(150)

    assert {name for _, name in told(events)} == {f"c{i:03}" for i in range(150)}
    versions = [version(obj) for _, obj in events]
    assert versions == sorted(set(versions))


def test_cluster_scoped_collections_are_selected_by_their_own_fields(api: Client, mine: str) -> None:
    for i in range(4):
        api.create(api.slices, resource_slice(f"{mine}-{i}", f"{mine}-node-{i % 2}"))
    api.create(api.classes, device_class(mine))

    gone = api.delete(api.slices, fieldSelector=f"spec.nodeName={mine}-node-1,spec.driver=gpu.example.com")

    assert names(gone) == [f"{mine}-1", f"{mine}-3"]
    assert names(api.get(api.slices, fieldSelector=f"spec.nodeName={mine}-node-0")) == [f"{mine}-0", f"{mine}-2"]


def test_there_is_no_delete_of_a_status(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))

    assert api.refusal("DELETE", f"{api.claims(mine)}/one/status").code == 405
