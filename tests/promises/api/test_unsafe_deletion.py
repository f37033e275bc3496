"""ignoreStoreReadErrorWithClusterBreakingPotential on objects that can be read; the gate AllowUnsafeMalformedObjectDeletion is on.

Its effect on unreadable objects is tested in tests/e2e/test_unreadable.py: no client can make one.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_36, Release
from tests.e2e.controlplane.plane import until
from tests.promises.api.client import Client, Object, claim, names

OPTION = "ignoreStoreReadErrorWithClusterBreakingPotential"
EXCLUSIVE = "Invalid value: true: is exclusively used to delete corrupt object(s), try again by removing this option"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize("name", ["readable", "missing"])
@pytest.mark.parametrize("body", [True, False])
def test_it_deletes_nothing_but_what_cannot_be_read(
    api: Client, mine: str, release: Release, name: str, body: bool
) -> None:
    """Since 1.37 a readable object is a conflict, and a missing one is not found."""
    api.create(api.claims(mine), claim("readable", finalizers=["a.example.com/b"]))

    query, options = ({}, {OPTION: True}) if body else ({OPTION: "1"}, None)
    refusal = api.refusal("DELETE", f"{api.claims(mine)}/{name}", options, **query)

    if release is V1_36:
        assert (refusal.code, refusal.reason) == (422, "Invalid")
        assert refusal.message == f'resourceclaims.{api.group} "{name}" is invalid: {OPTION}: {EXCLUSIVE}'
        assert refusal.causes == [(OPTION, EXCLUSIVE)]
    elif name == "missing":
        assert (refusal.code, refusal.message) == (404, f'resourceclaims.{api.group} "missing" not found')
    else:
        assert (refusal.code, refusal.reason) == (409, "Conflict")
        before, _, behind = refusal.message.partition(", Key: ")
        assert before == (
            f'Operation cannot be fulfilled on resourceclaims.{api.group} "readable": '
            "StorageError: invalid object, Code: 4"
        )
        assert behind.endswith(
            f"/{mine}/readable, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object "
            "is decodable from storage"
        )
    assert "deletionTimestamp" not in api.get(f"{api.claims(mine)}/readable")["metadata"]


BESIDE: list[tuple[Object, list[str]]] = [
    ({"propagationPolicy": "Orphan"}, ["propagationPolicy"]),
    ({"orphanDependents": False}, ["orphanDependents"]),
    ({"gracePeriodSeconds": 0}, ["gracePeriodSeconds"]),
    ({"preconditions": {}}, ["preconditions"]),
    (
        {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 1, "orphanDependents": True},
        ["orphanDependents", "gracePeriodSeconds", "preconditions"],
    ),
]


@pytest.mark.parametrize(("more", "members"), BESIDE)
def test_it_goes_with_no_other_option(api: Client, mine: str, more: Object, members: list[str]) -> None:
    refusal = api.refusal("DELETE", f"{api.claims(mine)}/any", {OPTION: True, **more})
    assert refusal.code == 422
    assert refusal.causes == [(OPTION, f"Invalid value: true: cannot be set together with .{m}") for m in members]


def test_it_may_be_a_dry_run_since_1_37(api: Client, mine: str, release: Release) -> None:
    sent: list[tuple[Object | None, dict[str, Any]]] = [
        ({OPTION: True, "dryRun": ["All"]}, {}),
        (None, {OPTION: "true", "dryRun": "All"}),
    ]
    for body, query in sent:
        refusal = api.refusal("DELETE", f"{api.claims(mine)}/any", body, **query)
        if release is V1_36:
            assert (OPTION, "Invalid value: true: cannot be set together with .dryRun") in refusal.causes
        else:
            assert refusal.code == 404


@pytest.mark.parametrize("query", [{"uid": "u"}, {"resourceVersion": "1"}])
def test_it_goes_with_no_other_option_in_a_query(api: Client, mine: str, query: dict[str, Any]) -> None:
    refusal = api.refusal("DELETE", f"{api.claims(mine)}/any", **{OPTION: "true"}, **query)
    assert refusal.causes == [(OPTION, "Invalid value: true: cannot be set together with .preconditions")]


def test_it_is_read_from_protobuf(api: Client, mine: str) -> None:
    # The envelope of runtime.Unknown around DeleteOptions, where preconditions are number 2 and the option is number 6.
    kind = b"\n\x02v1\x12\x0dDeleteOptions"
    raw = b"\x12\x00\x30\x01"
    body = b"k8s\0" + b"\n%c%b" % (len(kind), kind) + b"\x12%c%b" % (len(raw), raw)
    refusal = api.refusal("DELETE", f"{api.claims(mine)}/any", body, kind="application/vnd.kubernetes.protobuf")
    expected = "Invalid value: true: cannot be set together with .preconditions"
    assert (refusal.code, refusal.causes) == (422, [(OPTION, expected)])


def test_it_is_not_for_collections(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("a"))
    for refusal in (
        api.refusal("DELETE", api.claims(mine), {OPTION: True}),
        api.refusal("DELETE", api.claims(mine), **{OPTION: "true"}, shardSelector="nonsense"),
    ):
        text = "Invalid value: true: is not allowed with DELETECOLLECTION, try again after removing the option"
        assert (refusal.code, refusal.causes) == (422, [(OPTION, text)])
    assert names(api.get(api.claims(mine))) == ["a"]


def test_without_it_everything_is_as_ever(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("a"))
    api.create(api.claims(mine), claim("b"))
    api.delete(f"{api.claims(mine)}/a", {OPTION: False, "dryRun": ["All"]})
    api.delete(f"{api.claims(mine)}/a", {OPTION: None, "propagationPolicy": "Background"})
    off: dict[str, Any] = {OPTION: "false"}
    api.delete(api.claims(mine), **off)
    assert names(api.get(api.claims(mine))) == []


@pytest.mark.only("aggregated", "upstream", reason="sluice dev knows no roles")
def test_it_takes_a_permission_of_its_own(api: Client, mine: str) -> None:
    rules = [{"apiGroups": [api.group], "resources": ["*"], "verbs": ["delete", "deletecollection"]}]
    subject = {"kind": "User", "name": f"{mine}-deleter", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{mine}-deleter"}
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": f"{mine}-deleter"}, "rules": rules})
    api.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": mine}, "roleRef": role, "subjects": [subject]})

    def ask(path: str, body: Object, method: str = "DELETE") -> Object:
        answer: Object = api.ask(method, path, body, headers={"Impersonate-User": f"{mine}-deleter"}).json
        return answer

    # kube-apiserver learns of a role a moment after it is there, and Sluice would believe a no for a while.
    attributes = {"group": api.group, "resource": "resourceclaims", "verb": "delete", "namespace": mine}
    review = {"spec": {"resourceAttributes": attributes}}
    until(lambda: ask(REVIEWS, review, "POST")["status"]["allowed"], "the role counts")

    verb = "unsafe-delete-ignore-read-errors"
    refused = ask(f"{api.claims(mine)}/any", {OPTION: True})
    assert (
        refused["message"] == f'resourceclaims.{api.group} "any" is forbidden: not permitted to do "{verb}", reason: '
    )
    assert refused["code"] == ask(f"{api.claims(mine)}/a%25b", {OPTION: True})["code"] == 403
    assert ask(f"{api.claims(mine)}/any", {OPTION: True, "gracePeriodSeconds": 0})["code"] == 422
