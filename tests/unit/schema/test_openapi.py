"""Shapes become the definitions that upstream's generator would write, in both versions of OpenAPI."""

from typing import Any

import pytest

from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release
from apiserver.schema import machinery, shapes
from apiserver.schema.openapi import PATCH, QUANTITY, Definitions, Dialect
from apiserver.schema.resource import Resource
from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    ListType,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
)

META, OWN_META = "io.k8s.apimachinery.pkg.apis.meta.v1", "dev.sluice.apimachinery.pkg.apis.meta.v1"
KINDS = "x-kubernetes-group-version-kind"
V2, V3 = "#/definitions/", "#/components/schemas/"
INNER = Struct(name="Inner", model="m", fields=[Field(name="x", number=1, type=String())])
EXPECTING = Struct(
    name="Expecting", model="m", fields=[Field(name="x", number=1, type=String(), presence=Presence.ALWAYS)]
)


def member(
    type_: Type,
    dialect: Dialect = Dialect.V3,
    *,
    presence: Presence = Presence.OMIT_EMPTY,
    release: Release = NEWEST,
    **more: Any,
) -> dict[str, Any]:
    """The schema of one member."""
    definitions = Definitions(dialect, release=release)
    shape = Struct(name="S", model="m", fields=[Field(name="f", number=1, type=type_, presence=presence, **more)])
    definitions.event(shape, [])
    found: dict[str, Any] = definitions.all()["m.S"]["properties"]["f"]
    return found


def required(type_: Type, presence: Presence = Presence.OMIT_EMPTY, *, name: str = "f", **more: Any) -> bool:
    definitions = Definitions(Dialect.V2)
    shape = Struct(name="S", model="m", fields=[Field(name=name, number=1, type=type_, presence=presence, **more)])
    definitions.event(shape, [])
    return name in definitions.all()["m.S"].get("required", [])


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        (String(), {"type": "string"}),
        (Integer(), {"type": "integer", "format": "int64"}),
        (Integer(bits=32), {"type": "integer", "format": "int32"}),
        (Boolean(), {"type": "boolean"}),
        (Quantity(), {"$ref": V2 + "dev.sluice.apimachinery.pkg.api.resource.Quantity"}),
        (Time(), {"$ref": V2 + OWN_META + ".Time"}),
        (Time(micro=True), {"$ref": V2 + OWN_META + ".MicroTime"}),
        (RawJSON(), {"$ref": V2 + "dev.sluice.apimachinery.pkg.runtime.RawExtension"}),
        (INNER, {"$ref": V2 + "m.Inner"}),
        (MapOf(Integer()), {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}}),
        (MapOf(INNER), {"type": "object", "additionalProperties": {"$ref": V2 + "m.Inner"}}),
        (ListOf(String()), {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}),
        (
            ListOf(INNER, ListType.MAP, keys=("x",)),
            {
                "type": "array",
                "items": {"$ref": V2 + "m.Inner"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["x"],
            },
        ),
    ],
)
def test_a_type_has_its_schema_and_in_version_2_never_a_default(type_: Type, schema: dict[str, Any]) -> None:
    assert member(type_, Dialect.V2) == schema
    assert member(type_, Dialect.V2, presence=Presence.ALWAYS) == schema


@pytest.mark.parametrize(
    ("type_", "presence", "schema"),
    [
        (String(), Presence.OMIT_EMPTY, {"type": "string"}),
        (String(), Presence.POINTER, {"type": "string"}),
        (String(), Presence.ALWAYS, {"type": "string", "default": ""}),
        (Integer(), Presence.ALWAYS, {"type": "integer", "format": "int64", "default": 0}),
        (Boolean(), Presence.ALWAYS, {"type": "boolean", "default": False}),
        (INNER, Presence.ALWAYS, {"allOf": [{"$ref": V3 + "m.Inner"}], "default": {}}),
        (INNER, Presence.OMIT_EMPTY, {"allOf": [{"$ref": V3 + "m.Inner"}], "default": {}}),
        (INNER, Presence.POINTER, {"$ref": V3 + "m.Inner"}),
        (Quantity(), Presence.ALWAYS, {"$ref": V3 + QUANTITY}),
        (Time(), Presence.ALWAYS, {"$ref": V3 + META + ".Time"}),
        (
            MapOf(String()),
            Presence.ALWAYS,
            {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
        ),
        (MapOf(Quantity()), Presence.ALWAYS, {"type": "object", "additionalProperties": {"$ref": V3 + QUANTITY}}),
        (
            ListOf(INNER),
            Presence.ALWAYS,
            {
                "type": "array",
                "items": {"allOf": [{"$ref": V3 + "m.Inner"}], "default": {}},
                "x-kubernetes-list-type": "atomic",
            },
        ),
        (
            ListOf(Boolean(), ListType.SET),
            Presence.OMIT_EMPTY,
            {"type": "array", "items": {"type": "boolean", "default": False}, "x-kubernetes-list-type": "set"},
        ),
    ],
)
def test_version_3_writes_zero_values_as_defaults(type_: Type, presence: Presence, schema: dict[str, Any]) -> None:
    """Those of elements too, before 1.37 (TELLS_ELEMENTS)."""
    assert member(type_, presence=presence, release=V1_36) == schema


@pytest.mark.parametrize(
    ("type_", "element"),
    [
        (ListOf(Boolean()), {"type": "boolean"}),
        (ListOf(INNER), {"$ref": V3 + "m.Inner"}),
        (MapOf(String()), {"type": "string"}),
    ],
    ids=["boolean", "struct", "text"],
)
def test_elements_have_no_default_from_1_37_on(type_: ListOf | MapOf, element: dict[str, Any]) -> None:
    found = member(type_, presence=Presence.ALWAYS, release=V1_37)
    assert found["items" if isinstance(type_, ListOf) else "additionalProperties"] == element


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("type_", [String(enum=("b", "a")), String(known=("b", "a"))])
def test_the_values_of_an_enumeration_are_listed_in_order(type_: String, dialect: Dialect) -> None:
    assert member(type_, dialect) == {"type": "string", "enum": ["a", "b"]}


@pytest.mark.parametrize(
    ("type_", "default", "schema"),
    [
        (String(), "Equal", {"type": "string", "default": "Equal"}),
        (Integer(bits=32), 1, {"type": "integer", "format": "int32", "default": 1}),
        (Boolean(), True, {"type": "boolean", "default": True}),
        (Quantity(), "1", {"allOf": [{"$ref": V3 + QUANTITY}], "default": "1"}),
    ],
)
def test_version_3_contains_a_declared_default(type_: Type, default: object, schema: dict[str, Any]) -> None:
    for presence in (Presence.OMIT_EMPTY, Presence.POINTER, Presence.ALWAYS):
        assert member(type_, presence=presence, default=default) == schema
    assert "default" not in member(type_, Dialect.V2, default=default)


def test_computed_or_unpublished_default_is_not_published() -> None:
    assert member(String(), default=lambda parent, now: now) == {"type": "string"}
    assert member(String(), default="ExactCount", tells_default=False) == {"type": "string"}


def test_a_reference_with_a_description_is_wrapped_in_version_3_only() -> None:
    described = {"presence": Presence.POINTER, "doc": "What it is."}
    assert member(INNER, Dialect.V3, **described) == {"description": "What it is.", "allOf": [{"$ref": V3 + "m.Inner"}]}  # type: ignore[arg-type]
    assert member(INNER, Dialect.V2, **described) == {"description": "What it is.", "$ref": V2 + "m.Inner"}  # type: ignore[arg-type]


def test_a_quantity_may_be_a_number_in_version_3() -> None:
    for dialect, name, expected in (
        (Dialect.V2, "dev.sluice.apimachinery.pkg.api.resource.Quantity", {"type": "string"}),
        (Dialect.V3, QUANTITY, {"oneOf": [{"type": "string"}, {"type": "number"}]}),
    ):
        definitions = Definitions(dialect)
        definitions.event(Struct(name="S", model="m", fields=[Field(name="q", number=1, type=Quantity())]), [])
        found = definitions.all()[name]
        assert {k: v for k, v in found.items() if k != "description"} == expected


def test_times_are_formatted_text() -> None:
    definitions = Definitions(Dialect.V3)
    definitions.event(Struct(name="S", model="m", fields=[Field(name="t", number=1, type=Time())]), [])
    found = definitions.all()[f"{META}.Time"]
    assert (found["type"], found["format"]) == ("string", "date-time")


def test_patch_strategies_are_written() -> None:
    found = member(ListOf(String()), patch_strategy="merge", patch_merge_key="uid")
    assert found["x-kubernetes-patch-strategy"] == "merge"
    assert found["x-kubernetes-patch-merge-key"] == "uid"


def test_an_atomic_struct_says_so() -> None:
    definitions = Definitions(Dialect.V2)
    definitions.event(Struct(name="S", model="m", atomic=True, fields=[]), [])
    assert definitions.all()["m.S"]["x-kubernetes-map-type"] == "atomic"


def test_members_of_an_inline_struct_stand_in_its_place() -> None:
    definitions = Definitions(Dialect.V2)
    outer = Struct(name="S", model="m", fields=[Field(name="i", number=1, type=INNER, inline=True)])
    definitions.event(outer, [])
    assert list(definitions.all()) == ["m.S"]
    assert list(definitions.all()["m.S"]["properties"]) == ["x"]


@pytest.mark.parametrize(
    ("type_", "presence", "expected"),
    [
        (String(), Presence.OMIT_EMPTY, False),
        (String(), Presence.POINTER, False),
        (String(), Presence.ALWAYS, True),
        (Integer(), Presence.ALWAYS, True),
        (Quantity(), Presence.ALWAYS, True),
        (Quantity(), Presence.NULLABLE, False),
        (Time(), Presence.ALWAYS, True),
        (RawJSON(), Presence.ALWAYS, True),
        (ListOf(String()), Presence.ALWAYS, False),
        (MapOf(String()), Presence.ALWAYS, False),
        (INNER, Presence.ALWAYS, False),
        (EXPECTING, Presence.ALWAYS, True),
        (EXPECTING, Presence.POINTER, False),
    ],
)
def test_required_members_follow_from_presence(type_: Type, presence: Presence, expected: bool) -> None:
    assert required(type_, presence) is expected


def test_a_member_that_may_not_be_empty_is_expected() -> None:
    assert required(MapOf(String()), required=True)
    assert not required(INNER, Presence.POINTER, required=True)


def test_a_spec_is_always_expected() -> None:
    assert required(INNER, Presence.ALWAYS, name="spec")


def test_a_shape_can_say_what_is_expected() -> None:
    assert required(Quantity(), Presence.POINTER, expected=True)
    assert not required(String(), Presence.ALWAYS, expected=False)


def thing(**more: Any) -> Resource:
    fields = [
        Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Metadata."),
        Field(name="spec", number=2, type=INNER, presence=Presence.ALWAYS, doc="What is wanted."),
    ]
    shape = Struct(name="Thing", model=more.pop("model", "m"), doc="A thing.", fields=fields)
    return Resource(kind="Thing", plural="things", singular="thing", namespaced=True, shape=shape, group="g.io", **more)


def test_a_kind_has_its_type_members_and_says_what_it_is() -> None:
    definitions = Definitions(Dialect.V3)
    assert definitions.object(thing()) == {"$ref": V3 + "m.Thing"}
    found = definitions.all()["m.Thing"]
    assert list(found["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert found["required"] == ["spec"]
    assert found["description"] == "A thing."
    assert found["x-kubernetes-group-version-kind"] == [{"group": "g.io", "kind": "Thing", "version": "v1"}]
    assert found["properties"]["metadata"]["default"] == {}


@pytest.mark.parametrize(
    ("release", "items"),
    [
        (V1_36, {"allOf": [{"$ref": V3 + "m.Thing"}], "default": {}}),
        (V1_37, {"$ref": V3 + "m.Thing"}),
    ],
)
def test_a_list_of_a_kind_is_a_kind(release: Release, items: dict[str, Any]) -> None:
    definitions = Definitions(Dialect.V3, release=release)
    assert definitions.list(thing()) == {"$ref": V3 + "m.ThingList"}
    found = definitions.all()["m.ThingList"]
    assert found["required"] == ["items"]
    assert found["properties"]["items"]["items"] == items
    assert "x-kubernetes-list-type" not in found["properties"]["items"]
    assert found["properties"]["metadata"]["allOf"] == [{"$ref": f"{V3}{META}.ListMeta"}]
    assert found["x-kubernetes-group-version-kind"] == [{"group": "g.io", "kind": "ThingList", "version": "v1"}]
    assert definitions.all()["m.Thing"]["x-kubernetes-group-version-kind"]


def test_kind_served_in_several_versions_under_one_name_lists_them_all() -> None:
    definitions = Definitions(Dialect.V2)
    first = thing()
    definitions.object(first)
    definitions.object(
        Resource(kind="Thing", plural="things", singular="thing", namespaced=True, shape=first.shape, version="v2")
    )
    assert [k["version"] for k in definitions.all()["m.Thing"]["x-kubernetes-group-version-kind"]] == ["v1", "v2"]


def test_a_shape_without_a_model_goes_where_the_document_says() -> None:
    for dialect in Dialect:
        definitions = Definitions(dialect)
        plain = thing(model="")
        definitions.within("g.io", "v1", [plain])
        definitions.object(plain)
        assert "io.g.v1.Thing" in definitions.all()


@pytest.mark.parametrize(
    ("group", "version", "model"),
    [
        ("resource.k8s.io", "v1", "io.k8s.api.resource.v1"),
        ("flowcontrol.apiserver.k8s.io", "v1beta1", "io.k8s.api.flowcontrol.v1beta1"),
        ("resource.sluice.dev", "v1", "dev.sluice.resource.v1"),
        ("home.example.com", "v2", "com.example.home.v2"),
    ],
)
def test_kinds_with_upstreams_names_are_in_their_groups_v2_model(group: str, version: str, model: str) -> None:
    """The one that kube-apiserver would use, or one that it has no definitions in."""
    definitions, named = Definitions(Dialect.V2), thing(model="io.k8s.api.things.v1")
    definitions.within(group, version, [named])
    reference = definitions.object(named)
    assert reference == {"$ref": f"{V2}{model}.Thing"}
    properties = definitions.all()[f"{model}.Thing"]["properties"]
    assert properties["metadata"]["$ref"] == f"{V2}{OWN_META}.ObjectMeta"
    assert [name for name in definitions.all() if name.startswith("io.k8s.")] == [
        name for name in definitions.all() if name.startswith(model) and model.startswith("io.k8s.")
    ]


def test_unshared_name_stays_in_version_2() -> None:
    definitions, own = Definitions(Dialect.V2), thing(model="com.example.ships.v1")
    definitions.within("harbour.example.com", "v1", [own])
    assert definitions.object(own) == {"$ref": f"{V2}com.example.ships.v1.Thing"}


def test_in_version_2_a_message_claims_no_kind_of_upstreams_groups() -> None:
    """A kind that two definitions claim makes the whole merged document useless to parsers."""
    claimed = [("", "v1", "DeleteOptions"), ("resource.k8s.io", "v1", "DeleteOptions"), ("g.io", "v1", "DeleteOptions")]
    found = {}
    for dialect in Dialect:
        definitions = Definitions(dialect)
        definitions.message(machinery.STATUS, [("", "v1", "Status")])
        definitions.message(machinery.DELETE_OPTIONS, claimed)
        found[dialect] = {
            name.rpartition(".")[2]: [(k["group"], k["version"], k["kind"]) for k in schema.get(KINDS, ())]
            for name, schema in definitions.all().items()
        }
    assert found[Dialect.V3]["DeleteOptions"] == claimed
    assert found[Dialect.V3]["Status"] == [("", "v1", "Status")]
    assert found[Dialect.V2]["DeleteOptions"] == claimed[2:]
    assert found[Dialect.V2]["Status"] == []


def test_shapes_of_one_name_that_differ_in_rules_only_are_one_definition() -> None:
    definitions = Definitions(Dialect.V2)
    for limit in (1, 2):
        same = Struct(name="S", model="m", fields=[Field(name="x", number=1, type=String(max_bytes=limit))])
        definitions.event(same, [("g", "v1", "S")])
    assert list(definitions.all()) == ["m.S"]


def test_different_shapes_of_one_name_are_refused() -> None:
    definitions = Definitions(Dialect.V2)
    definitions.event(Struct(name="S", model="m", fields=[Field(name="x", number=1, type=String())]), [])
    with pytest.raises(ValueError, match=r"two different shapes are named m\.S"):
        definitions.event(Struct(name="S", model="m", fields=[Field(name="y", number=1, type=String())]), [])


def test_definitions_are_sorted_by_name() -> None:
    definitions = Definitions(Dialect.V3)
    definitions.object(thing())
    definitions.patch()
    assert list(definitions.all()) == sorted(definitions.all())
    assert definitions.all()[PATCH]["type"] == "object"


def test_everything_is_described() -> None:
    definitions = Definitions(Dialect.V3)
    for shape in (machinery.STATUS, machinery.DELETE_OPTIONS, machinery.API_RESOURCE_LIST, machinery.API_GROUP):
        definitions.message(shape, [("", "v1", shape.name)])
    definitions.event(machinery.WATCH_EVENT, [])
    definitions.event(shapes.OBJECT_META, [])
    definitions.patch()
    for name, schema in definitions.all().items():
        assert schema["description"], name
        for member_name, property_ in schema.get("properties", {}).items():
            assert property_["description"], f"{name}.{member_name}"


UPSTREAM: dict[str, tuple[list[str], list[str]]] = {
    "Status": (["apiVersion", "kind", "metadata", "status", "message", "reason", "details", "code"], []),
    "StatusDetails": (["name", "group", "kind", "uid", "causes", "retryAfterSeconds"], []),
    "StatusCause": (["reason", "message", "field"], []),
    "DeleteOptions": (
        [
            "apiVersion",
            "kind",
            "gracePeriodSeconds",
            "preconditions",
            "orphanDependents",
            "propagationPolicy",
            "dryRun",
            "ignoreStoreReadErrorWithClusterBreakingPotential",
        ],
        [],
    ),
    "Preconditions": (["uid", "resourceVersion"], []),
    "WatchEvent": (["type", "object"], ["type", "object"]),
    "APIResourceList": (["apiVersion", "kind", "groupVersion", "resources"], ["groupVersion", "resources"]),
    "APIResource": (
        [
            "name",
            "singularName",
            "namespaced",
            "group",
            "version",
            "kind",
            "verbs",
            "shortNames",
            "categories",
            "storageVersionHash",
        ],
        ["name", "singularName", "namespaced", "kind", "verbs"],
    ),
    "APIGroup": (
        ["apiVersion", "kind", "name", "versions", "preferredVersion", "serverAddressByClientCIDRs"],
        ["name", "versions"],
    ),
    "ListMeta": (["selfLink", "resourceVersion", "continue", "remainingItemCount", "shardInfo"], []),
    "OwnerReference": (
        ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"],
        ["apiVersion", "kind", "name", "uid"],
    ),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_the_machinerys_own_messages_have_upstreams_members(name: str) -> None:
    definitions = Definitions(Dialect.V3)
    for shape in (machinery.STATUS, machinery.DELETE_OPTIONS, machinery.API_RESOURCE_LIST, machinery.API_GROUP):
        definitions.message(shape, [])
    definitions.event(machinery.WATCH_EVENT, [])
    definitions.event(shapes.OBJECT_META, [])
    found = definitions.all()[f"{META}.{name}"]
    names, expected = UPSTREAM[name]
    assert sorted(found["properties"]) == sorted(names)
    assert sorted(found.get("required", [])) == sorted(expected)


def test_the_verbs_of_a_resource_have_no_list_type() -> None:
    definitions = Definitions(Dialect.V3)
    definitions.message(machinery.API_RESOURCE_LIST, [])
    properties = definitions.all()[f"{META}.APIResource"]["properties"]
    assert "x-kubernetes-list-type" not in properties["verbs"]
    assert properties["shortNames"]["x-kubernetes-list-type"] == "atomic"
