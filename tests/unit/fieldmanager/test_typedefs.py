"""The types of the kinds are those that upstream makes of the OpenAPI documents of a kube-apiserver."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from apiserver.apimachinery.releases import SUPPORTED, Release
from apiserver.fieldmanager.typedefs import type_of
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from apiserver.schema.resource import Resource
from structuredmerge.openapi import type_of as type_of_schema
from structuredmerge.types import UNSET, List, Map, Type
from tests.fixtures import openapi
from tests.unit.fieldmanager.written import KINDS

OF_RELEASES = [
    pytest.param(release, resource, id=f"{release} {resource.kind} {resource.version}")
    for release in SUPPORTED
    for resource in Kinds(RESOURCES, group=openapi.GROUP, release=release)
]
recorded = functools.cache(openapi.recorded)


@pytest.mark.parametrize(("release", "resource"), OF_RELEASES)
def test_a_kinds_type_is_that_of_its_published_schema(release: Release, resource: Resource) -> None:
    schemas = recorded(release)[f"v3/apis/resource.k8s.io/{resource.version}"]["components"]["schemas"]
    published = {**schemas[f"{resource.shape.model}.{resource.kind}"], "definitions": schemas}
    assert shown(type_of(resource)) == shown(type_of_schema(published))


def shown(type_: Type, above: tuple[Type, ...] = ()) -> Any:
    """A type as a value that can be compared. A type within itself is how far up it begins; defaults count where they are those of keys."""
    if type_ in above:
        return above.index(type_)
    above = (type_, *above)
    return type_.scalar, type_.list and shown_list(type_.list, above), type_.map and shown_map(type_.map, above)


def shown_list(list_: List, above: tuple[Type, ...]) -> Any:
    members = list_.item.map.members if list_.item.map else {}
    defaults = {name: members[name].default for name in list_.keys}
    return list_.atomic, set(list_.keys), defaults, shown(list_.item, above)


def shown_map(map_: Map, above: tuple[Type, ...]) -> Any:
    members = {name: shown(member.type, above) for name, member in map_.members.items()}
    return map_.atomic, members, map_.element and shown(map_.element, above)


def test_a_member_that_is_always_written_counts_as_a_key_when_it_is_absent() -> None:
    claim = next(kind for kind in KINDS if kind.kind == "ResourceClaim")
    devices = at(type_of(claim), "status", "devices").list
    assert devices is not None
    assert devices.item.map is not None
    assert not devices.atomic
    assert {name: devices.item.map.members[name].default for name in devices.keys} == {
        "driver": "",
        "device": "",
        "pool": "",
        "shareID": UNSET,
    }


def at(type_: Type, *names: str) -> Type:
    for name in names:
        assert type_.map is not None
        type_ = type_.map.members[name].type
    return type_
