"""Errors in a package's declarations, each with its place, all of them at once."""

# Declarations are given what their types forbid.
# mypy: disable-error-code="arg-type, type-var, misc"

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.kinds import packages
from apiserver.kinds.served import InvalidKinds, Kinds
from apiserver.schema import columns, featuregate, resource, shapes, types
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gate, Stage
from apiserver.schema.resource import (
    Around,
    Column,
    Consumption,
    Conversion,
    Deprecation,
    Grant,
    Object,
    Refused,
    Resource,
    Subresource,
    Version,
)
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
)
from kubetext.quantity import Quantity as Amount
from tests.fixtures.cases import each_case

METADATA = Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Metadata.")
PORT = Struct(
    name="Port",
    fields=[
        Field(name="name", number=1, type=String(max_bytes=8)),
        Field(name="number", number=2, type=Integer(bits=32)),
        Field(name="tags", number=3, type=ListOf(String(), ListType.SET)),
    ],
)
SPEC = Struct(
    name="LampSpec",
    fields=[
        Field(name="colour", number=1, type=String(enum=("red", "blue")), required=True),
        Field(name="watts", number=2, type=Integer(bits=32), default=60),
        Field(name="ports", number=3, type=ListOf(PORT, ListType.MAP, ("name",))),
        Field(name="power", number=4, type=MapOf(Quantity())),
        Field(name="since", number=5, type=Time(), presence=Presence.POINTER),
        Field(name="extra", number=6, type=RawJSON(), presence=Presence.POINTER),
        Field(name="on", number=7, type=Boolean(), presence=Presence.POINTER),
    ],
)
STATUS = Struct(name="LampStatus", fields=[Field(name="hours", number=1, type=Integer())])
HEAVY = Gate("HeavyLamps", default=False, stage=Stage.ALPHA)
LIGHT = Gate("LightLamps", default=False, stage=Stage.BETA, needs=(HEAVY,))


def lamp(*fields: Field, spec: Struct = SPEC, name: str = "Lamp") -> Struct:
    own = [
        METADATA,
        Field(name="spec", number=2, type=spec, presence=Presence.ALWAYS),
        Field(name="status", number=3, type=STATUS),
    ]
    return Struct(name=name, fields=[*own, *fields])


def with_field(field: Field) -> Struct:
    """The lamp whose spec has this member in place of the one that is called so, or in addition."""
    rest = [one for one in SPEC.fields if one.name != field.name and one.number != field.number]
    return lamp(spec=replace(SPEC, fields=[*rest, field]))


def of_type(type_: Any, **more: Any) -> Mapping[str, Any]:
    return {"shape": with_field(Field(name="odd", number=9, type=type_, **more))}


def same(obj: Object) -> Object:
    return obj


def nothing_used(obj: Object, around: Around) -> Mapping[str, Amount]:
    return {}


LAMP = Resource(
    group="lamps.example.com",
    kind="Lamp",
    plural="lamps",
    singular="lamp",
    short_names=("lm",),
    categories=("all",),
    namespaced=True,
    shape=lamp(),
    columns=(columns.NAME, columns.member("Watts", "spec.watts", "integer"), columns.AGE),
    selectable={"spec.colour": "spec.colour", "spec.on": "spec.on"},
    node_field="spec.colour",
    subresources=[Subresource(name="status", owns=("status",))],
    has_status=True,
    tracks_generation=True,
    grants=[Grant(role="electrician", verbs=["get", "patch"])],
    gates=[LIGHT],
    consumption=Consumption(
        home="lamps.example.com",
        beside="shades",
        reads=lambda obj: "",
        measures=lambda name, around: False,
        usage=nothing_used,
    ),
    versions=[
        Version(name="v1beta1", shape=lamp(), deprecation=Deprecation(since="1.2", removed="1.4")),
        Version(name="v2", shape=lamp(), conversion=Conversion(same, same), columns=(columns.AGE,)),
    ],
)


def told(**changes: Any) -> list[str]:
    return packages.errors(replace(LAMP, **changes))


def test_a_kind_with_everything_has_no_errors() -> None:
    assert packages.errors(LAMP) == []


# ------------------------------------------------------------------------------------------------------- types of arguments

PARTS: list[tuple[str, Any, Callable[[Any], Resource]]] = [
    ("Resource", LAMP, lambda part: part),
    ("Struct", SPEC, lambda part: replace(LAMP, shape=lamp(spec=part))),
    ("Field", SPEC.fields[1], lambda part: replace(LAMP, shape=lamp(spec=replace(SPEC, fields=[SPEC.fields[0], part])))),
    *[
        (type(type_).__name__, type_, lambda part: replace(LAMP, **of_type(part)))
        for type_ in (String(), Integer(), Boolean(), Time(), RawJSON(), ListOf(String()), MapOf(String()))
    ],
    ("Column", LAMP.columns[1], lambda part: replace(LAMP, columns=[part])),
    ("Subresource", LAMP.subresources[0], lambda part: replace(LAMP, subresources=[part])),
    ("Grant", LAMP.grants[0], lambda part: replace(LAMP, grants=[part])),
    ("Gate", LIGHT, lambda part: replace(LAMP, gates=[part])),
    ("Consumption", LAMP.consumption, lambda part: replace(LAMP, consumption=part)),
    ("Version", LAMP.versions[0], lambda part: replace(LAMP, versions=[part])),
    ("Deprecation", Deprecation(since="1.2"), lambda part: replace(LAMP, deprecation=part)),
    ("Conversion", Conversion(same, same), lambda part: replace(LAMP, versions=[replace(LAMP.versions[1], conversion=part)])),
]  # fmt: skip
ANYTHING = {"Field.default"}
"""Arguments that may be of any type. Defaults are compared with the type of their member."""


class _Odd:
    """A type that no declaration permits."""


@each_case(
    ("name", "part", "put", "argument"),
    [
        (name, part, put, field.name)
        for name, part, put in PARTS
        for field in dataclasses.fields(part)
        if f"{name}.{field.name}" not in ANYTHING
    ],
)
def test_every_argument_of_a_wrong_type_is_a_message(
    name: str, part: Any, put: Callable[[Any], Resource], argument: str
) -> None:
    for value in (_Odd(), [_Odd()], (_Odd(),), {_Odd(): _Odd()}, 1.5, b"x"):
        texts = packages.errors(put(replace(part, **{argument: value})))
        assert texts, (name, value)
        assert any(argument in text for text in texts), texts
        assert all(len(text) < 400 for text in texts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"short_names": "qq"}, "short_names: 'qq' is not a tuple of str"),
        ({"short_names": ["qq"]}, "short_names: ['qq'] is not a tuple of str"),
        ({"short_names": ("a", 5)}, "short_names[1]: 5 is not a str"),
        ({"categories": "all"}, "categories: 'all' is not a tuple of str"),
        ({"namespaced": "yes"}, "namespaced: 'yes' is not a bool"),
        ({"selectable": ["spec.colour"], "node_field": ""}, "selectable: ['spec.colour'] is not a mapping"),
        ({"selectable": {"a": 5}, "node_field": ""}, "selectable['a']: 5 is not a str"),
        ({"subresources": [Subresource(name="status", owns="status")]}, "subresource status: owns: 'status' is not a tuple"),
        ({"grants": [Grant(role="x", verbs="get")]}, "role 'x': verbs: 'get' is not a list or tuple of str"),
        ({"columns": columns.AGE}, "columns: Column("),
        ({"versions": ["v2"]}, "versions[0]: 'v2' is not a Version"),
        (of_type(Integer(bits=16)), "member spec.odd: Integer: bits: 16 is not 32 or 64"),
        (of_type(String), "member spec.odd: Field: type: <class 'apiserver.schema.types.String'> is not a String or"),
        (of_type(ListOf(String)), "member spec.odd: ListOf: item: <class"),
        (of_type(ListOf(PORT, "map", ("name",))), "member spec.odd: ListOf: list_type: 'map' is not a ListType"),
        (of_type(ListOf(PORT, ListType.MAP, "name")), "member spec.odd: ListOf: keys: 'name' is not a tuple of str"),
        (of_type(String(), presence="always"), "member spec.odd: Field: presence: 'always' is not a Presence"),
    ],
)  # fmt: skip
def test_an_argument_of_a_wrong_type_is_named_with_what_is_meant(changes: Mapping[str, Any], message: str) -> None:
    assert any(text.startswith(message) for text in told(**changes)), told(**changes)


# ------------------------------------------------------------------------------------------------------------------- shapes


def cyclic() -> Struct:
    fields: list[Field] = []
    node = Struct(name="Node", fields=fields)
    fields.append(Field(name="next", number=1, type=ListOf(node)))
    return node


def yes(value: Any, path: Path) -> Iterator[FieldError]:
    yield fieldpath.invalid(path, value, "never")


def check_of_three(a: Any, b: Any, c: Any) -> Iterator[FieldError]:
    yield from ()


async def asked(value: Any, path: Path) -> list[FieldError]:
    return []


async def asking(context: Context, new: Object, old: Object | None) -> AsyncIterator[FieldError]:
    yield fieldpath.required("spec")


NAME = Field(name="name", number=1, type=String())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (of_type(cyclic()), "member spec.odd.next[*]: the struct Node contains itself"),
        (of_type(ListOf(PORT, ListType.MAP)), "member spec.odd: a MAP list needs keys"),
        (of_type(ListOf(PORT, ListType.MAP, ("id",))), "member spec.odd: keys: the struct Port has no text, number or boolean id"),
        (of_type(ListOf(PORT, ListType.MAP, ("tags",))), "member spec.odd: keys: the struct Port has no text, number or boolean"),
        (of_type(ListOf(PORT, ListType.MAP, ("name", "name"))), "member spec.odd: keys has name twice"),
        (of_type(ListOf(String(), ListType.MAP, ("name",))), "member spec.odd: a MAP list has items that are a Struct, not String"),
        (of_type(ListOf(PORT, ListType.SET)), "member spec.odd: a SET has items of text, number, boolean, quantity or time, not St"),
        (of_type(ListOf(MapOf(String()), ListType.SET)), "member spec.odd: a SET has items of text"),
        (of_type(ListOf(PORT, keys=("name",))), "member spec.odd: keys are those of a MAP list, and this one is ATOMIC"),
        (of_type(MapOf(ListOf(ListOf(PORT, ListType.MAP)))), "member spec.odd[*][*]: a MAP list needs keys"),
        (of_type(Struct(name="Two", fields=[NAME, replace(NAME, number=2)])), "member spec.odd: the struct Two has the member name twice"),
        (of_type(Struct(name="Two", fields=[NAME, replace(NAME, name="b")])), "member spec.odd: the struct Two has the protobuf number 1"),
        (of_type(Struct(name="Two", fields=[replace(NAME, number=19_999)])), "member spec.odd.name: 19999 is no protobuf number"),
        (of_type(Struct(name="Two", fields=[replace(NAME, number=1 << 29)])), "member spec.odd.name: 536870912 is no protobuf number"),
        (of_type(Struct(name="two", fields=[])), "member spec.odd: the struct name 'two' is no name"),
        (of_type(Struct(name="Two", fields=[], judged=["x"])), "member spec.odd: judged: the struct Two has no member x"),
        (of_type(Struct(name="Two", fields=[NAME], judged=["name"] * 2)), "member spec.odd: judged has 'name' twice"),
        (of_type(Struct(name="Two", fields=[], alternatives=["x"])), "member spec.odd: alternatives: the struct Two has no member x"),
        ({"shape": lamp(Field(name="more", number=9, inline=True, type=SPEC), Field(name="watts", number=10, type=String()))},
            "the struct Lamp has the member watts twice"),
        (of_type(String(), inline=True), "member spec.odd: only the members of a Struct can be inline"),
        ({"shape": lamp(Field(name="a.b", number=9, type=String()))}, "member a.b: the name 'a.b' is no JSON name"),
        ({"shape": lamp(Field(name="", number=9, type=String()))}, "the name '' is no JSON name"),
        (of_type(String(max_bytes=-1)), "member spec.odd: max_bytes: -1 is less than 0"),
        (of_type(ListOf(String(), max_items=-1)), "member spec.odd: max_items: -1 is less than 0"),
        (of_type(String(enum=("a", "a"))), "member spec.odd: enum has 'a' twice"),
        (of_type(String(enum=("long",), max_bytes=3)), "member spec.odd: enum has 'long', which is longer than max_bytes"),
        (of_type(String(max_bytes=3), default="long"), "member spec.odd: the default 'long' is refused: odd: Too long"),
        (of_type(String(check=yes), default="x"), "member spec.odd: the default 'x' is refused: odd: Invalid value"),
        (of_type(String(check=lambda value, path: [value.nope]), default="x"), "member spec.odd: the default 'x' makes its own checks"),
        (of_type(ListOf(Integer(), max_items=1), default=[1, 2]), "member spec.odd: the default [1, 2] is refused: odd: Too many"),
        (of_type(RawJSON(), default={"a": 1}), "member spec.odd: the default {'a': 1} is no value of its type"),
        (of_type(RawJSON(), default=b"{"), "member spec.odd: the default b'{' is no value of its type"),
        (of_type(PORT, default={"name": "much too long"}), "member spec.odd: the default {'name': 'much too long'} is refused: odd.name"),
        (of_type(String(), default=lambda: "x"), "member spec.odd: default: it is called with (struct, now), and takes ()"),
        (of_type(String(check=check_of_three)), "member spec.odd: check: it is called with (value, path), and takes"),
        (of_type(String(check=asked)), "member spec.odd: check: it is a coroutine, which nobody awaits"),
        (of_type(String(), check=asked), "member spec.odd: check: it is a coroutine"),
        (of_type(ListOf(PORT, unique=lambda: 1)), "member spec.odd: unique: it is called with (item), and takes ()"),
        (of_type(ListOf(PORT, limit=lambda: 1)), "member spec.odd: limit: it is called with (items), and takes ()"),
        (of_type(MapOf(PORT, key_check=lambda key: ())), "member spec.odd: key_check: it is called with (key, path)"),
        (of_type(Struct(name="Two", fields=[], rule=yes)), "member spec.odd: rule: it is called with (context, value, stored, path)"),
        (of_type(String(), patch_strategy="mrege"), "member spec.odd: patch_strategy: 'mrege' is none of"),
        (of_type(ListOf(PORT), patch_merge_key="name"), "member spec.odd: patch_merge_key is used with the patch_strategy merge"),
        (of_type(ListOf(PORT), patch_strategy="merge", patch_merge_key="id"), "member spec.odd: patch_merge_key: the items have no"),
        (of_type(ListOf(PORT), patch_strategy="merge"), "member spec.odd: patch_strategy: a list of structs is merged by a patch_merge_"),
        ({"shape": lamp(name="LampList")}, "the shape has the name of the list, LampList"),
    ],
)  # fmt: skip
def test_error_of_a_shape_names_the_member(changes: Mapping[str, Any], message: str) -> None:
    texts = told(versions=(), **changes)
    assert any(text.startswith(message) for text in texts), texts


def test_a_struct_that_is_used_twice_is_judged_once() -> None:
    two = ListOf(PORT, ListType.MAP, ("id",))
    spec = replace(SPEC, fields=[Field(name=name, number=i, type=two) for i, name in enumerate("abc", 1)])
    texts = told(shape=lamp(spec=spec), versions=(), selectable={}, node_field="", columns=())
    assert texts == ["member spec.a: keys: the struct Port has no text, number or boolean id"]


# -------------------------------------------------------------------------------------------------------------------- hooks


def raises(context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
    yield fieldpath.required(new["spec"]["no such member"])


def prepares(context: Context, new: Object, old: Object | None) -> Iterator[None]:
    new["spec"] = {}
    yield None


def answers_none(context: Context, new: Object, old: Object | None) -> Any:
    return None


def asks_heavy(context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
    if new["spec"].get("colour") and _is_heavy(context):
        yield fieldpath.required("spec.watts")


def _is_heavy(context: Context) -> bool:
    return context.enabled(HEAVY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validate": lambda new, old: ()}, "validate: it is called with (context, new, old), and takes (new, old)"),
        ({"prepare": lambda obj: None}, "prepare: it is called with (context, new, old), and takes (obj)"),
        ({"warnings": lambda context: ()}, "warnings: it is called with (context, new, old), and takes (context)"),
        ({"expressions": lambda: ()}, "expressions: it is called with (new), and takes ()"),
        ({"name_check": lambda name: []}, "name_check: it is called with (name, prefix), and takes (name)"),
        ({"validate": asking}, "validate: it is a coroutine, which nobody awaits"),
        ({"prepare": prepares}, "prepare: it is a generator, whose body nobody runs"),
        ({"validate": raises}, "validate fails for an object of which nothing is set: KeyError: 'no such member'"),
        ({"validate": answers_none}, "validate fails for an object of which nothing is set: TypeError: it must return several"),
        ({"validate": lambda context, new, old: ["wrong"]}, "validate yields a str for an object of which nothing is set, not a Field"),
        ({"warnings": lambda context, new, old: "text"}, "warnings fails for an object of which nothing is set: TypeError"),
        ({"subresources": [Subresource(name="status", owns=("status",), requires=lambda new: ())]},
            "subresource status: requires: it is called with (context, new, old), and takes (new)"),
        ({"subresources": [Subresource(name="status", owns=("status",), validate=raises)]},
            "subresource status: validate fails for an object of which nothing is set"),
        ({"validate": asks_heavy, "gates": ()}, "validate: the feature gate HeavyLamps is not in gates"),
        ({"columns": [Column(name="X", cell=lambda obj: "")]}, "column X: cell: it is called with (object, now), and takes (obj)"),
        ({"columns": [Column(name="X", cell=lambda obj, now: "", since=lambda: 1.0)]}, "column X: since: it is called with (object)"),
        ({"consumption": replace(LAMP.consumption, usage=lambda obj: {})}, "consumption: usage: it is called with (object, around)"),
    ],
)  # fmt: skip
def test_a_hook_that_cannot_work_is_a_message(changes: Mapping[str, Any], message: str) -> None:
    texts = told(**changes)
    assert any(text.startswith(message) for text in texts), texts


def test_a_gate_is_declared_by_one_that_needs_it() -> None:
    assert told(validate=asks_heavy) == []


def test_a_default_that_fails_for_an_empty_object_is_a_message() -> None:
    changes = of_type(String(), default=lambda struct, now: struct["colour"].upper())
    assert told(versions=(), **changes) == ["a default fails for an object of which nothing is set: KeyError: 'colour'"]


# ----------------------------------------------------------------------------------------------------------- names and parts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plural": "1lamps"}, "plural: a DNS-1035 label"),
        ({"short_names": ("lm", "lm")}, "the short name lm is declared twice"),
        ({"home": "lamps"}, "home: a group needs at least one dot"),
        ({"version": "1.0"}, "version: a DNS-1035 label"),
        ({"stored_as": LAMP}, "stored_as and conversion are not declared"),
        ({"deprecation": Deprecation(since="")}, "deprecation: nothing is no release"),
        ({"selectable": {"metadata.name": "metadata.name"}, "node_field": ""}, "selectable field metadata.name: it always is"),
        ({"selectable": {"a=b": "spec.colour"}, "node_field": ""}, "selectable field 'a=b': no selector can name it"),
        ({"node_field": "spec.on"}, "node_field: spec.on is no text"),
        ({"columns": [columns.AGE, columns.AGE]}, "the column Age is declared twice"),
        ({"columns": [replace(columns.AGE, priority=-1)]}, "column Age: priority: -1 is less than 0"),
        ({"columns": [replace(columns.AGE, type="int")]}, "column Age: type: 'int' is not 'string' or 'integer'"),
        ({"columns": [replace(columns.AGE, type="integer")]}, "column Age: since: an age is a text"),
        ({"columns": [replace(columns.NAME, name="")]}, "column : a column needs a name"),
        ({"columns": [columns.member("X", "spec.nope")]}, "column X: the shape has nothing at spec.nope"),
        ({"grants": [Grant(role="x", verbs=[])]}, "role 'x': verbs is empty"),
        ({"grants": [Grant(role="x", verbs=["Get it"])]}, "role 'x': 'Get it' is no verb"),
        ({"subresources": [Subresource(name="meta", owns=("metadata",))]}, "subresource meta: nobody owns metadata"),
        ({"shape": lamp(spec=SPEC), "counts_dropped": True, "tracks_generation": False}, "counts_dropped is set, but tracks_gener"),
        ({"gates": [replace(LIGHT, default=True)]}, "LightLamps is enabled, but depends on features that are disabled: [HeavyLamps]"),
        ({"gates": [HEAVY, replace(HEAVY, locked=True)]}, 'feature gate "HeavyLamps" with different spec already exists'),
        ({"gates": [replace(LIGHT, needs=("HeavyLamps",))]}, "the feature gate 'LightLamps': needs[0]: 'HeavyLamps' is not a Gate"),
    ],
)  # fmt: skip
def test_error_beside_the_shape_is_a_message(changes: Mapping[str, Any], message: str) -> None:
    texts = told(**changes)
    assert any(text.startswith(message) for text in texts), texts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"short_names": ("lamp",)},
            "Shade: the short name lamp is the singular of Lamp in the group lamps.example.com",
        ),
        ({"short_names": ("lm",)}, "two kinds of the group lamps.example.com have the short name lm"),
        ({"singular": "lamps"}, "Shade: the singular lamps is the plural of Lamp in the group lamps.example.com"),
        ({"plural": "lm"}, "Shade: the plural lm is the short name of Lamp in the group lamps.example.com"),
    ],
)
def test_kinds_of_a_group_share_no_name_whatever_it_is(changes: Mapping[str, Any], message: str) -> None:
    shade = replace(LAMP, kind="Shade", plural="shades", singular="shade", short_names=("sd",))
    assert len(Kinds([LAMP, shade]).stored) == 2
    with pytest.raises(InvalidKinds) as refused:
        Kinds([LAMP, replace(shade, **changes)])
    assert refused.value.errors == [message]
    assert len(Kinds([LAMP, replace(shade, group="other.example.com", **changes)]).stored) == 2


# ------------------------------------------------------------------------------------------------------------------ versions


def without(*names: str) -> Struct:
    return lamp(spec=replace(SPEC, fields=[field for field in SPEC.fields if field.name not in names]))


def fails(obj: Object) -> Object:
    raise Refused(fieldpath.invalid(Path("spec"), "", "never"))


def extended(obj: Object) -> Object:
    return obj | {"spec": obj["spec"] | {"flavour": "sweet"}}


def broken(obj: Object) -> Object:
    return obj | {"spec": 5}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (Version(name="v2", shape=without("watts")), "it needs a conversion, because its JSON is not that of v1: spec.watts is in one"),
        (Version(name="v2", shape=lamp(Field(name="more", number=4, type=String()))), "it needs a conversion, because its JSON is not"),
        (Version(name="v2", shape=with_field(Field(name="watts", number=2, type=String()))),
            "it needs a conversion, because its JSON is not that of v1: spec.watts is a Integer in one and a String in the other"),
        (Version(name="v2", shape=with_field(Field(name="watts", number=2, type=Integer(), default=60))),
            "it needs a conversion, because its JSON is not that of v1: spec.watts is written differently"),
        (Version(name="v2", shape=with_field(Field(name="ports", number=3, type=ListOf(String())))),
            "it needs a conversion, because its JSON is not that of v1: spec.ports[*] is a Struct in one and a String in the other"),
        (Version(name="v2", shape=with_field(replace(SPEC.fields[1], presence=Presence.ALWAYS))),
            "it needs a conversion, because its JSON is not that of v1: spec.watts is left out by different rules"),
        (Version(name="v2", shape=lamp(), conversion=Conversion(lambda a, b: a, same)), "to_storage: it is called with (object)"),
        (Version(name="v2", shape=lamp(), conversion=Conversion(same, asked)), "from_storage: it is a coroutine"),
        (Version(name="v2", shape=lamp(), conversion=Conversion(same, fails)), "from_storage refuses an object of which nothing is set"),
        (Version(name="v2", shape=lamp(), conversion=Conversion(extended, same)), "to_storage returns spec.flavour, which the shape does"),
        (Version(name="v2", shape=lamp(), conversion=Conversion(same, broken)), "from_storage returns what the shape cannot hold: json: "),
        (Version(name="v2", shape=lamp(), home="here"), "home: a group needs at least one dot"),
        (Version(name="2.0", shape=lamp()), "a DNS-1035 label"),
    ],
)  # fmt: skip
def test_a_version_that_would_lose_data_is_a_message(version: Version, message: str) -> None:
    texts = told(versions=[version])
    assert any(text.startswith(f"version {version.name}: {message}") for text in texts), texts


def test_a_version_of_other_numbers_and_names_needs_no_conversion() -> None:
    renamed = replace(SPEC, name="OldSpec", fields=[replace(field, number=20 + field.number) for field in SPEC.fields])
    assert told(versions=[Version(name="v2", shape=lamp(spec=renamed))]) == []


def test_a_conversion_may_refuse_values_of_other_versions() -> None:
    assert told(versions=[Version(name="v2", shape=lamp(), conversion=Conversion(fails, same))]) == []


def test_errors_of_all_parts_are_reported_at_once() -> None:
    texts = told(
        short_names="qq",
        shape=with_field(Field(name="odd", number=9, type=ListOf(PORT, ListType.MAP))),
        validate=lambda new: (),
        columns=[replace(columns.AGE, priority=-1)],
        versions=[Version(name="V2", shape=lamp()), Version(name="v3", shape=without("watts"))],
    )
    assert [text.split(": ")[0] for text in texts] == [
        "short_names",
        "member spec.odd",
        "validate",
        "column Age",
        "version V2",
    ]


def test_every_public_argument_is_tried_by_the_test_of_types() -> None:
    # A Spec is for the gates of Kubernetes itself: releases are not those of a package.
    declarations = {name for name, _, _ in PARTS} | {"Quantity", "Permission", "Spec"}
    found = {
        name
        for module in (resource, types, featuregate)
        for name, value in vars(module).items()
        if inspect.isclass(value) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    }
    assert found <= declarations
