"""ClusterRoles follow from what kinds declare."""

from __future__ import annotations

from typing import Any

from apiserver.kinds import roles
from apiserver.kinds.served import Kinds
from apiserver.schema import shapes
from apiserver.schema.resource import Grant, Resource, Subresource, Version
from apiserver.schema.types import Field, Presence, Struct

SHAPE = Struct(
    name="S", fields=[Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="It.")]
)
READ, WRITE = ["get", "list", "watch"], ["create", "delete", "deletecollection", "patch", "update"]


def kind(name: str, *, namespaced: bool = True, group: str = "sea.example", **more: Any) -> Resource:
    plural = f"{name.lower()}s"
    return Resource(
        kind=name, plural=plural, singular=name.lower(), namespaced=namespaced, group=group, shape=SHAPE, **more
    )


def granted(*kinds: Resource) -> dict[str, list[tuple[str, list[str], list[str]]]]:
    """Group, resources and verbs of each rule, by role."""
    found = {}
    for role in roles.cluster_roles(Kinds(kinds)):
        assert (role["apiVersion"], role["kind"]) == ("rbac.authorization.k8s.io/v1", "ClusterRole")
        found[role["metadata"]["name"]] = [
            (group, rule["resources"], rule["verbs"]) for rule in role["rules"] for group in rule["apiGroups"]
        ]
    return found


def test_view_and_edit_roles_cover_kinds_but_edit_writes_no_subresource() -> None:
    status = Subresource(name="status", owns=("status",))
    assert granted(kind("Boat", subresources=(status,)), kind("Anchor")) == {
        "sluice-view": [("sea.example", ["anchors", "boats", "boats/status"], READ)],
        "sluice-edit": [("sea.example", ["anchors", "boats"], WRITE)],
    }


def test_edit_role_scales() -> None:
    scale = Subresource(name="scale", owns=(), verbs=("get", "patch", "update"), shows=("autoscaling", "v1", "Scale"))
    assert granted(kind("Boat", subresources=(scale,)))["sluice-edit"] == [
        ("sea.example", ["boats"], WRITE),
        ("sea.example", ["boats/scale"], ["patch", "update"]),
    ]


def test_the_default_roles_above_have_what_those_below_have() -> None:
    labels = [role["metadata"]["labels"] for role in roles.cluster_roles(Kinds([kind("Boat")]))]
    to = "rbac.authorization.k8s.io/aggregate-to-"
    assert [sorted(name.removeprefix(to) for name in given if name.startswith(to)) for given in labels] == [
        ["admin", "edit", "view"],
        ["admin", "edit"],
    ]


def test_a_kind_of_the_whole_cluster_is_in_no_role_of_a_namespace() -> None:
    assert granted(kind("Sea", namespaced=False)) == {}


def test_a_role_has_the_grants_of_all_kinds_and_is_added_to_no_other() -> None:
    pilot = kind(
        "Sea",
        namespaced=False,
        grants=(Grant(role="pilot", verbs=("watch", "get")), Grant(role="pilot", verbs=("list", "get"))),
    )
    lead = Grant(role="pilot", verbs=("steer",), subresource="wheel")
    other = kind("Port", namespaced=False, group="land.example", grants=(lead,))
    assert granted(pilot, other) == {
        "sluice-pilot": [("land.example", ["ports/wheel"], ["steer"]), ("sea.example", ["seas"], READ)]
    }
    [role] = roles.cluster_roles(Kinds([pilot]))
    assert role["metadata"]["labels"] == {"app.kubernetes.io/name": "sluice"}


def test_a_kind_of_the_whole_cluster_may_be_granted_to_the_default_roles() -> None:
    sea = kind("Sea", namespaced=False, grants=(Grant(role="admin", verbs=("patch",)), Grant(role="view", verbs=READ)))
    assert list(granted(sea)) == ["sluice-view", "sluice-admin"]
    assert {
        role["metadata"]["name"]: sorted(name for name in role["metadata"]["labels"] if "aggregate" in name)
        for role in roles.cluster_roles(Kinds([sea]))
    } == {
        "sluice-view": [f"rbac.authorization.k8s.io/aggregate-to-{name}" for name in ("admin", "edit", "view")],
        "sluice-admin": ["rbac.authorization.k8s.io/aggregate-to-admin"],
    }


def test_a_kind_in_several_versions_is_granted_once() -> None:
    assert granted(kind("Boat", versions=(Version(name="v1beta1", shape=SHAPE),))) == granted(kind("Boat"))
