"""Rights to make an object depend on others: the table of kubernetes/kubernetes `plugin/pkg/admission/gc/gc_admission_test.go`, and the
messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from apiserver.admission.core.attributes import Operation
from apiserver.admission.core.chain import Chain
from apiserver.admission.core.owner_references import OwnerReferencesPermissionEnforcement
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError, NoSuchKind
from tests.unit.admission.changes import GROUP, KINDS, change

SET_OWNER = "cannot set an ownerRef on a resource you can't delete: not yours, <nil>"
SET_FINALIZERS = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: not yours, <nil>"
HEAD = f'resourceclaims.{GROUP} "c" is forbidden: '
USERS: dict[str, Callable[[RequestInfo], bool]] = {
    "super": lambda info: True,
    "non-deleter": lambda info: (
        info.verb != "delete" and not (info.verb == "update" and info.subresource == "finalizers")
    ),
}
for name in ("resourceclaims", "replicationcontrollers", "nodes"):
    USERS[f"non-{name}-deleter"] = lambda info, name=name: (  # type: ignore[misc]
        info.resource not in (name, "*") or (info.verb != "delete" and info.subresource != "finalizers")
    )


@dataclass(frozen=True)
class Place:
    path: str
    namespaced: bool


PLACES = {
    ("v1", "Node"): Place("/api/v1/nodes", namespaced=False),
    ("v1", "ReplicationController"): Place("/api/v1/replicationcontrollers", namespaced=True),
    ("apps/v1", "DaemonSet"): Place("/apis/apps/v1/daemonsets", namespaced=True),
}


class Mapper:
    """A mapper of the kinds of upstream's test."""

    async def collection(self, api_version: str, kind: str) -> Place:
        found = PLACES.get((api_version, kind))
        if found is None:
            raise NoSuchKind(f'no matches for kind "{kind}" in version "{api_version}"')
        return found


class Never:
    async def collection(self, api_version: str, kind: str) -> Place:
        raise AssertionError


def owner(kind: str, name: str, block: bool | None = None, *, api_version: str = "v1", uid: str = "") -> dict[str, Any]:
    found = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return found if block is None else {**found, "blockOwnerDeletion": block}


def rc(block: bool | None = None, name: str = "rc1") -> dict[str, Any]:
    return owner("ReplicationController", name, block)


def ds(block: bool | None = None) -> dict[str, Any]:
    return owner("DaemonSet", "ds1", block, api_version="apps/v1")


def node(block: bool | None = None) -> dict[str, Any]:
    return owner("Node", "node1", block)


def owned(*owners: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "c", **({"ownerReferences": list(owners)} if owners else {})}}


class Rig:
    def __init__(self, mapper: Any = None) -> None:
        self.asked: list[RequestInfo] = []
        self.error: ClusterError | None = None
        self.plugin = OwnerReferencesPermissionEnforcement(self._decide, KINDS, mapper)

    async def _decide(self, user: User, info: RequestInfo) -> Decision:
        self.asked.append(info)
        if self.error is not None:
            raise self.error
        allowed = USERS[user.name](info)
        return Decision(allowed, reason="" if allowed else "not yours")

    async def refusal(self, user: str, *, new: Any, old: Any = None, **more: Any) -> str | None:
        operation: Operation = "CREATE" if old is None else "UPDATE"
        try:
            await self.plugin.validate(change(operation, new=new, old=old, user=User(user), **more))
        except StatusError as error:
            return str(error).removeprefix(HEAD) if error.code == 403 else str(error)
        return None


FIRST, SECOND = owner("", "first"), owner("", "second")


@pytest.mark.parametrize(
    ("user", "old", "new", "why"),
    [
        ("super", None, owned(), None),
        ("super", None, owned(FIRST), None),
        ("non-deleter", None, owned(), None),
        ("non-deleter", None, owned(FIRST), None),
        ("non-resourceclaims-deleter", None, owned(FIRST), None),
        ("super", owned(FIRST), owned(FIRST), None),
        ("super", owned(), owned(FIRST), None),
        ("non-deleter", owned(), owned(), None),
        ("non-deleter", owned(FIRST), owned(FIRST), None),
        ("non-deleter", owned(), owned(FIRST), SET_OWNER),
        ("non-deleter", owned(FIRST), owned(FIRST, SECOND), SET_OWNER),
        ("non-deleter", owned(FIRST), owned(), SET_OWNER),
        ("non-resourceclaims-deleter", owned(), owned(), None),
        ("non-resourceclaims-deleter", owned(), owned(FIRST), SET_OWNER),
        ("non-nodes-deleter", owned(), owned(FIRST), None),
        # blockOwnerDeletion
        ("super", None, owned(rc(False), rc(False, "rc2")), None),
        ("super", None, owned(rc(True), rc(True, "rc2"), node(True)), None),
        ("non-replicationcontrollers-deleter", None, owned(rc(False), rc(None, "rc2")), None),
        ("non-nodes-deleter", None, owned(node(False)), None),
        ("non-replicationcontrollers-deleter", None, owned(rc(True), rc(False, "rc2")), SET_FINALIZERS),
        ("non-replicationcontrollers-deleter", None, owned(ds(True)), None),
        ("non-nodes-deleter", None, owned(node(True)), SET_FINALIZERS),
        ("super", owned(rc(), node()), owned(rc(False), node(False)), None),
        ("super", owned(rc(False), node(False)), owned(rc(True), node(True)), None),
        ("super", owned(), owned(rc(True), node(True)), None),
        ("non-replicationcontrollers-deleter", owned(rc()), owned(rc(False)), None),
        ("non-replicationcontrollers-deleter", owned(rc(False)), owned(rc(True)), SET_FINALIZERS),
        ("non-replicationcontrollers-deleter", owned(rc()), owned(rc(True)), SET_FINALIZERS),
        ("non-nodes-deleter", owned(node()), owned(node(True)), SET_FINALIZERS),
        ("non-replicationcontrollers-deleter", owned(rc(True)), owned(rc(False)), None),
        ("non-nodes-deleter", owned(node(True)), owned(node(False)), None),
        ("non-replicationcontrollers-deleter", owned(ds(False)), owned(ds(True)), None),
        ("non-replicationcontrollers-deleter", owned(), owned(rc(False), rc(None, "rc2")), None),
        ("non-replicationcontrollers-deleter", owned(), owned(rc(True)), SET_FINALIZERS),
        ("non-replicationcontrollers-deleter", owned(), owned(ds(True)), None),
        ("non-nodes-deleter", owned(), owned(node(True)), SET_FINALIZERS),
    ],
)
async def test_dependence_needs_the_rights_that_it_amounts_to(user: str, old: Any, new: Any, why: str | None) -> None:
    assert await Rig(Mapper()).refusal(user, old=old, new=new) == why


async def test_user_who_may_set_every_finalizer_waits_for_no_discovery() -> None:
    rig = Rig(Never())
    assert await rig.refusal("super", new=owned(rc(True), node(True))) is None
    assert [(info.verb, info.group, info.resource, info.subresource, info.name) for info in rig.asked] == [
        ("update", "*", "*", "finalizers", "*")
    ]


async def test_questions_name_the_object_and_its_owners() -> None:
    rig = Rig(Mapper())
    ours = owner("ResourceClaim", "mine", True, api_version=f"{GROUP}/v1", uid="9")
    new = owned({**rc(True), "uid": "1"}, {**rc(True), "uid": "2"}, {**node(True), "uid": "3"}, ours)
    assert await rig.refusal("non-nodes-deleter", old=owned(), new=new, subresource="status") == SET_FINALIZERS
    shown = [
        (info.verb, info.group, info.version, info.namespace, info.resource, info.subresource, info.name)
        for info in rig.asked
    ]
    assert shown == [
        ("delete", GROUP, "v1", "ns", "resourceclaims", "status", "c"),
        ("update", "*", "*", "", "*", "finalizers", "*"),
        ("update", "", "v1", "ns", "replicationcontrollers", "finalizers", "rc1"),
        ("update", "", "v1", "", "nodes", "finalizers", "node1"),
    ]
    alone = Rig()
    await alone.refusal("non-nodes-deleter", new=owned(ours))
    assert (alone.asked[-1].group, alone.asked[-1].resource, alone.asked[-1].namespace) == (
        GROUP,
        "resourceclaims",
        "ns",
    )


@pytest.mark.parametrize("mapper", [Mapper(), None])
async def test_an_owner_of_an_unknown_kind_cannot_be_held_up(mapper: Mapper | None) -> None:
    assert await Rig(mapper).refusal("non-nodes-deleter", new=owned(owner("Thing", "t", True))) == (
        "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Thing: "
        'no matches for kind "Thing" in version "v1"'
    )


async def test_unreachable_authorizer_is_a_no() -> None:
    rig = Rig(Mapper())
    rig.error = ClusterError("connection refused")
    assert await rig.refusal("super", old=owned(), new=owned(FIRST)) == (
        "cannot set an ownerRef on a resource you can't delete: , connection refused"
    )


async def test_a_deletion_is_not_judged() -> None:
    rig = Rig(Mapper())
    await Chain([rig.plugin]).validate(change("DELETE", old=owned(rc(True)), user=User("non-deleter")))
    assert rig.asked == []
