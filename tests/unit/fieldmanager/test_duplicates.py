"""Items that are there twice, in objects whose managers wrote in several versions: upstream converts such an object to none of them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release
from apiserver.fieldmanager.manager import FieldManagers
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from tests.unit.fieldmanager.written import Written

TWICE = ["example.com/one", "example.com/one"]


def device_class(version: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceClass",
        "metadata": {"name": "c", **metadata},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }


def written(version: str, release: Release = NEWEST) -> Written:
    """A class that somebody made in this version."""
    managers = FieldManagers(Kinds(RESOURCES, group="resource.k8s.io", release=release))
    made = Written("DeviceClass", managers=managers)
    made.create(device_class(version), manager="first", version=version)
    return made


def test_an_update_in_the_version_of_all_managers_tracks_them() -> None:
    made = written("v1")

    made.update(device_class("v1", finalizers=TWICE), manager="second")

    assert [entry["manager"] for entry in made.managed_fields] == ["first", "second"]


@pytest.mark.parametrize(("release", "left"), [(V1_36, []), (V1_37, ["first"])])
def test_update_in_another_version_finds_no_managers(release: Release, left: list[str]) -> None:
    """An update that does not fit the types keeps the managers of the stored object since 1.37."""
    made = written("v1beta2", release)

    made.update(device_class("v1", finalizers=TWICE), manager="second")

    assert made.object["metadata"]["finalizers"] == TWICE
    assert [entry["manager"] for entry in made.managed_fields] == left


def test_an_apply_in_another_version_says_what_is_there_twice() -> None:
    made = written("v1")
    made.update(device_class("v1", finalizers=TWICE), manager="second")

    with pytest.raises(StatusError) as refused:
        made.apply(device_class("v1beta2"), version="v1beta2", force=True)
    assert (refused.value.code, refused.value.reason) == (500, "")
    assert refused.value.message == '.metadata.finalizers: duplicate entries for key [="example.com/one"]'
    made.apply(device_class("v1"), manager="third")
    assert made.object["metadata"]["finalizers"] == TWICE


def test_several_duplicates_are_reported_by_name_in_list_order() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    made = written("v1")
    made.update(device_class("v1", ownerReferences=[owner, owner], finalizers=["a.b/z", "a.b/a", "a.b/z", "a.b/a"]))

    with pytest.raises(StatusError) as refused:
        made.apply(device_class("v1beta2"), version="v1beta2", force=True)

    assert refused.value.message.splitlines() == [
        "errors:",
        '  .metadata.finalizers: duplicate entries for key [="a.b/z"]',
        '  .metadata.finalizers: duplicate entries for key [="a.b/a"]',
        '  .metadata.ownerReferences: duplicate entries for key [uid="u"]',
    ]
