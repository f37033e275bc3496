"""OwnerReferencesPermissionEnforcement, which both servers of this cluster have enabled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.controlplane.plane import until
from tests.promises.admission.rig import Rig
from tests.promises.api.client import MERGE, Object, claim

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class User:
    """Somebody who may write claims, and what else is granted."""

    def __init__(self, rig: Rig, name: str, *granted: tuple[str, str, str]) -> None:
        """`granted`: group, resource and verb."""
        self.rig = rig
        self.name = f"{rig.mine}-{name}"
        base = [(rig.group, "resourceclaims", verb) for verb in ("create", "update", "patch", "get")]
        rules = [{"apiGroups": [g], "resources": [r], "verbs": [v]} for g, r, v in (*base, *granted)]
        metadata = {"name": name}
        rig.api.create(f"{RBAC}/{rig.mine}/roles", {"metadata": metadata, "rules": rules})
        bound = {
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name}],
        }
        rig.api.create(f"{RBAC}/{rig.mine}/rolebindings", bound)
        for group, resource, verb in (*base, *granted):
            until(lambda: self._may(group, resource, verb), f"{self.name} may {verb} {resource}")  # noqa: B023

    def _may(self, group: str, resource: str, verb: str) -> bool:
        plural, _, subresource = resource.partition("/")
        asked = {
            "namespace": self.rig.mine,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "verb": verb,
        }
        review = self.rig.api.create(REVIEWS, {"spec": {"user": self.name, "resourceAttributes": asked}})
        return bool(review["status"]["allowed"])

    def ask(self, method: str, name: str, owners: list[Object]) -> str:
        """ "" for what was done, else why not."""
        api, headers = self.rig.api, {"Impersonate-User": self.name}
        if method == "POST":
            reply = api.ask("POST", self.rig.claims, claim(name, ownerReferences=owners), headers=headers)
        else:
            patch = {"metadata": {"ownerReferences": owners}}
            headers["Content-Type"] = MERGE
            reply = api.ask("PATCH", f"{self.rig.claims}/{name}", patch, headers=headers)
        if reply.status in (200, 201):
            return ""
        assert reply.status == 403, reply.text
        text: str = reply.json["message"]
        return text.removeprefix(f'resourceclaims.{self.rig.group} "{name}" is forbidden: ')


def owner(kind: str = "ConfigMap", name: str = "o", **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"u-{name}", **more}


BLOCKING = owner(blockOwnerDeletion=True)
UNDELETABLE = "cannot set an ownerRef on a resource you can't delete: , <nil>"
UNFINALIZABLE = (
    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
)


@pytest.fixture
def writer(rig: Rig) -> User:
    return User(rig, "writer")


def test_owners_of_a_stored_object_need_the_right_to_delete_it(rig: Rig, writer: User) -> None:
    assert writer.ask("POST", "a", [owner()]) == ""
    assert writer.ask("PATCH", "a", [owner()]) == "", "nothing changes"
    assert writer.ask("PATCH", "a", [owner(), owner(name="p")]) == UNDELETABLE
    assert writer.ask("PATCH", "a", []) == UNDELETABLE
    deleter = User(rig, "deleter", (rig.group, "resourceclaims", "delete"))
    assert deleter.ask("PATCH", "a", [owner(), owner(name="p")]) == ""


def test_user_who_may_set_finalizers_may_block_the_owners_deletion(rig: Rig, writer: User) -> None:
    assert writer.ask("POST", "a", [BLOCKING]) == UNFINALIZABLE
    assert writer.ask("POST", "a", [owner(blockOwnerDeletion=False)]) == ""
    deleter = User(rig, "deleter", (rig.group, "resourceclaims", "delete"))
    assert deleter.ask("PATCH", "a", [BLOCKING]) == UNFINALIZABLE
    finalizer = User(rig, "finalizer", (rig.group, "resourceclaims", "delete"), ("", "configmaps/finalizers", "update"))
    assert finalizer.ask("PATCH", "a", [BLOCKING]) == ""
    assert deleter.ask("PATCH", "a", [BLOCKING, owner(name="p")]) == "", "it waits already"


def test_owner_of_an_unserved_kind_cannot_be_blocked(writer: User) -> None:
    unknown = owner("Thing", blockOwnerDeletion=True)
    assert writer.ask("POST", "a", [unknown]) == (
        "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Thing: "
        'no matches for kind "Thing" in version "v1"'
    )


def test_administrator_may_do_all_of_it(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("a", ownerReferences=[BLOCKING]))
    rig.api.patch(f"{rig.claims}/a", {"metadata": {"ownerReferences": [owner(name="p", blockOwnerDeletion=True)]}})
