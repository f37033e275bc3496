"""The served kinds as one value, and errors of a package of kinds, reported before anything is served."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiserver import apigroups
from apiserver.config import config
from apiserver.config.config import ConfigError
from apiserver.kinds import packages
from apiserver.kinds.served import InvalidKinds, Kinds
from apiserver.schema import shapes
from apiserver.schema.featuregate import Gate, Stage
from apiserver.schema.resource import Column, Conversion, Deprecation, Object, Resource, Subresource, Version
from apiserver.schema.types import Boolean, Field, Integer, ListOf, Presence, Quantity, RawJSON, String, Struct

METADATA = Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Metadata.")


def shape(*fields: Field, name: str = "Lamp") -> Struct:
    return Struct(name=name, doc="A thing.", fields=[METADATA, *fields])


def same(obj: Object) -> Object:
    return obj


def fails(obj: Object) -> Object:
    return {"metadata": obj["metadata"], "spec": obj["spec"]}


def bare(obj: Object) -> Object:
    return {}


def beside(name: str, **more: Any) -> Version:
    return replace(Version(name=name, shape=shape(), conversion=Conversion(same, same)), **more)


def column(*reads: str) -> Column:
    return Column(name="X", cell=lambda obj, now: "", reads=reads)


LAMP = Resource(kind="Lamp", plural="lamps", singular="lamp", namespaced=False, shape=shape())
DIMMED = Gate("DimmedLamps", default=False, stage=Stage.ALPHA)
SHADE = replace(LAMP, kind="Shade", plural="shades", singular="shade", shape=shape(name="Shade"))


def test_every_version_is_a_resource_and_one_of_them_is_stored() -> None:
    kinds = Kinds([replace(LAMP, version="v1beta1", versions=[beside("v1"), beside("v2alpha1")]), SHADE], group="g.io")

    assert [(r.version, r.plural) for r in kinds] == [
        ("v1", "lamps"),
        ("v1", "shades"),
        ("v1beta1", "lamps"),
        ("v2alpha1", "lamps"),
    ]
    assert list(kinds.groups["g.io"]) == ["v1", "v1beta1", "v2alpha1"]
    assert [r.storage_name for r in kinds.stored] == ["g.io/lamps", "g.io/shades"]
    for version in ("v1", "v1beta1", "v2alpha1"):
        found = kinds.at("g.io", version, "lamps")
        assert found is not None
        assert found is kinds.named("g.io", version, "Lamp")
        assert found.stored is kinds.at("g.io", "v1beta1", "lamps")
        assert (found.conversion is None) == (version == "v1beta1")
        assert (found.storage_name, found.version) == ("g.io/lamps", version)
    assert kinds.at("g.io", "v1beta1", "shades") is kinds.at("h.io", "v1", "lamps") is None
    assert ("g.io", "v2alpha1", "lamps") in kinds.paths


def test_a_kinds_own_group_wins_over_the_operators() -> None:
    kinds = Kinds([LAMP, replace(LAMP, group="own.example.com")], group="g.io")
    assert list(kinds.groups) == ["g.io", "own.example.com"]
    assert [r.storage_name for r in kinds.stored] == ["g.io/lamps", "own.example.com/lamps"]


@pytest.mark.parametrize(
    ("other", "mistake"),
    [
        ({"kind": "Other", "singular": "other"}, "two kinds of the group g.io have the plural lamps"),
        ({"kind": "Other", "plural": "others"}, "two kinds of the group g.io have the singular lamp"),
        ({"plural": "others", "singular": "other"}, "two kinds of the group g.io have the kind Lamp"),
        ({"kind": "LampList", "plural": "o", "singular": "o"}, "two kinds of the group g.io have the kind LampList"),
    ],
)
def test_kinds_of_a_group_share_no_name(other: Mapping[str, str], mistake: str) -> None:
    with pytest.raises(InvalidKinds) as refused:
        Kinds([LAMP, replace(LAMP, **other)], group="g.io")  # type: ignore[arg-type]
    assert mistake in refused.value.errors


def test_built_in_kinds_have_no_errors() -> None:
    served = apigroups.kinds(config.parse(["dev"], {}).serving)
    assert not [text for kind in served.stored for text in packages.errors(kind)]


TEXT = Field(name="colour", number=2, type=String(), doc="A text.")
LIST = Field(name="colours", number=3, type=ListOf(String()), doc="Texts.")


COUNT = Field(name="count", number=4, type=Integer(bits=32), presence=Presence.POINTER, doc="A number.")
INNER = Struct(name="Inner", fields=[Field(name="size", number=1, type=Integer(), doc="A number.")])


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"kind": "lamp"}, "the kind 'lamp' is no name"),
        ({"plural": "Lamps"}, "plural: a DNS-1035 label"),
        ({"singular": ""}, "singular: a DNS-1035 label"),
        ({"version": "v1/v2"}, "version: a DNS-1035 label"),
        ({"group": "lamps"}, "group: a group needs at least one dot"),
        ({"group": "Lamps.example.com"}, "group: a lowercase RFC 1123 subdomain"),
        ({"short_names": ("l amp",)}, "short name 'l amp': a DNS-1035 label"),
        ({"shape": None}, "the shape is not a Struct"),
        ({"shape": Struct(name="Lamp", fields=[TEXT])}, "the first member of the shape must be metadata"),
        ({"shape": shape(TEXT, TEXT)}, "the struct Lamp has the member colour twice"),
        ({"shape": shape(replace(TEXT, name="apiVersion"))}, "the shape has a member apiVersion"),
        ({"shape": shape(TEXT, replace(LIST, number=2))}, "the struct Lamp has the protobuf number 2 twice"),
        ({"shape": shape(replace(TEXT, number=0))}, "member colour: 0 is no protobuf number of a field"),
        ({"shape": shape(replace(TEXT, number=19000))}, "member colour: 19000 is no protobuf number of a field"),
        ({"shape": shape(replace(COUNT, default="a"))}, "member count: the default 'a' is no value of its type"),
        ({"shape": shape(replace(COUNT, default=True))}, "member count: the default True is no value of its type"),
        ({"shape": shape(replace(COUNT, default=1 << 31))}, "member count: the default 2147483648 is no value"),
        ({"shape": shape(replace(TEXT, default=1))}, "member colour: the default 1 is no value of its type"),
        ({"shape": shape(replace(TEXT, type=String(enum=("red",)), default="blue"))}, "member colour: the default 'blue' is"),
        ({"shape": shape(replace(LIST, default=[1]))}, "member colours: the default [1] is no value of its type"),
        ({"shape": shape(replace(TEXT, type=Quantity(), default="much"))}, "member colour: the default 'much' is no value"),
        ({"shape": shape(replace(TEXT, type=INNER, default={"x": 1}))}, "member colour: the default {'x': 1} is no value"),
        ({"shape": shape(replace(TEXT, type=Boolean(), default=0))}, "member colour: the default 0 is no value of its type"),
        ({"versions": [beside("v2", shape=shape(replace(COUNT, default="a")))]}, "version v2: member count: the default 'a'"),
        ({"has_status": True}, "has_status is set, but the shape has no member status"),
        ({"subresources": [Subresource(name="x", owns=("status",))]}, "subresource x: the shape has no member status"),
        ({"subresources": [Subresource(name="x", owns=())] * 2}, "the subresource x is declared twice"),
        ({"selectable": {"spec.size": "spec.size"}}, "selectable field spec.size: the shape has no text, number or"),
        ({"shape": shape(LIST), "selectable": {"c": "colours"}}, "selectable field c: the shape has no text, number or"),
        ({"node_field": "spec.nodeName"}, "node_field: spec.nodeName is not selectable"),
        ({"listed_by": ["spec.nodeName"]}, "listed_by: spec.nodeName is not selectable"),
        ({"columns": [column("spec.size")]}, "column X: the shape has nothing at spec.size"),
        ({"columns": [column("metadata.labels.x"), column("spec"), column("kinds")]}, "column X: the shape has nothing at kinds"),
        ({"versions": [beside("v2", columns=[column("metadata.names")])]}, "version v2: column X: the shape has nothing at"),
        ({"versions": [beside("v1")]}, "the version v1 is declared twice"),
        ({"gates": ["Dimmed"]}, "gates[0]: 'Dimmed' is not a Gate"),
        ({"gates": [Gate("dimmed=true", default=True, stage=Stage.GA)]}, "the feature gate 'dimmed=true' is no name of letters"),
        ({"versions": [beside("v2", deprecation=Deprecation(since="v1.36"))]}, "version v2: deprecation: v1.36 is no release"),
        ({"versions": [beside("V2")]}, "version V2: a DNS-1035 label"),
        ({"versions": [beside("v2", shape=Struct(name="L", fields=[]))]}, "version v2: the first member of the shape"),
        ({"versions": [beside("v2", conversion=Conversion(fails, same))]}, "version v2: to_storage fails for an object of which nothing"),
        ({"versions": [beside("v2", conversion=Conversion(same, bare))]}, "version v2: from_storage must return an object with metadata"),
    ],
)  # fmt: skip
def test_error_of_a_declaration_is_a_sentence(changes: Mapping[str, Any], mistake: str) -> None:
    assert any(text.startswith(mistake) for text in packages.errors(replace(LAMP, **changes))), mistake


def test_all_errors_of_a_declaration_come_at_once_without_consequences() -> None:
    changes: Mapping[str, Any] = {
        "kind": "lamp",
        "version": "V",
        "shape": shape(replace(COUNT, default="a"), replace(TEXT, number=0)),
        "has_status": True,
        "gates": ["Dimmed"],
        "columns": [column("spec")],
        "versions": [
            beside("v2", conversion=Conversion(fails, bare)),
            beside("v2", shape=None, columns=[column("spec")]),
        ],
    }
    told = packages.errors(replace(LAMP, **changes))
    assert [text.partition(": a DNS")[0] for text in told] == [
        "the kind 'lamp' is no name of letters and digits that begins with a capital",
        "version",
        "gates[0]: 'Dimmed' is not a Gate",
        "member count: the default 'a' is no value of its type",
        "member colour: 0 is no protobuf number of a field",
        "column X: the shape has nothing at spec",
        "has_status is set, but the shape has no member status",
        "version v2: the shape is not a Struct",
        "the version v2 is declared twice",
    ]
    assert len(packages.errors(replace(LAMP, **{**changes, "shape": None}))) == 6


@pytest.mark.parametrize(
    "field",
    [
        replace(TEXT, default="blue"),
        replace(COUNT, default=0),
        replace(LIST, default=["blue"]),
        replace(LIST, default=[]),
        replace(TEXT, type=Quantity(), default="1"),
        replace(TEXT, type=Boolean(), default=True),
        replace(TEXT, type=INNER, default={"size": 1}),
        replace(TEXT, type=INNER, default={}),
        replace(TEXT, type=RawJSON(), default=b"{}"),
        replace(TEXT, default=lambda parent, now: now),
        replace(TEXT, default=None),
    ],
    ids=lambda field: repr(field.default)[:20],
)
def test_default_of_the_right_type_is_no_error(field: Field) -> None:
    assert packages.errors(replace(LAMP, shape=shape(field))) == []


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty module `lamps_of_a_test`, to be filled by the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "lamps_of_a_test.py"
    sys.modules.pop("lamps_of_a_test", None)


def mistakes_of(*flags: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        apigroups.kinds(config.parse(["dev", *flags], {}).serving)
    return refused.value.errors


HERE = "from tests.unit.kinds.test_served import *\n"


@pytest.mark.parametrize(
    ("source", "mistakes"),
    [
        ("", ["RESOURCES is not there"]),
        ("RESOURCES = 'lamps'", ["RESOURCES is not a list of kinds"]),
        ("RESOURCES = []", ["RESOURCES is not a list of kinds"]),
        ("RESOURCES = [1, 2]", ["RESOURCES[0] is not a Resource", "RESOURCES[1] is not a Resource"]),
        (
            "RESOURCES = [replace(LAMP, version='V'), replace(SHADE, group='x')]",
            ["Lamp: version: a DNS-1035 label", "Shade: group: a group needs at least one dot"],
        ),
        ("import no_such_module_at_all", ["cannot be imported: ", "ModuleNotFoundError: No module named 'no_such_"]),
        ("1 / 0", ["cannot be imported: ", "lamps_of_a_test.py:2: ZeroDivisionError: division by zero"]),
        ("else", ["cannot be imported: ", "SyntaxError: invalid syntax"]),
    ],
)
def test_a_package_that_cannot_be_served_says_why(package: Path, source: str, mistakes: list[str]) -> None:
    package.write_text(HERE + source + "\n")
    found = mistakes_of("--kinds", "lamps_of_a_test")
    assert all(text.startswith("--kinds: lamps_of_a_test: ") for text in found)
    for mistake in mistakes:
        assert any(mistake in text for text in found), (mistake, found)


def test_two_packages_with_one_name_are_reported_beside_other_errors(package: Path) -> None:
    package.write_text(HERE + "RESOURCES = [LAMP, replace(LAMP, kind='Light'), replace(SHADE, kind='shade')]\n")
    assert mistakes_of("--kinds", "lamps_of_a_test") == [
        "--kinds: lamps_of_a_test: shade: the kind 'shade' is no name of letters and digits that begins with a capital",
        "--kinds: two kinds of the group resource.sluice.dev have the plural lamps",
        "--kinds: two kinds of the group resource.sluice.dev have the singular lamp",
    ]


def test_two_shapes_of_one_name_are_reported_at_the_start(package: Path) -> None:
    package.write_text(
        HERE
        + "RESOURCES = [replace(LAMP, shape=shape(TEXT, name='Thing')), replace(SHADE, shape=shape(LIST, name='Thing'))]\n"
    )
    (mistake,) = mistakes_of("--kinds", "lamps_of_a_test")
    assert mistake.startswith("--kinds: Shade: two different shapes are named ")


def test_package_that_redeclares_a_built_in_gate_is_refused_at_the_start(package: Path) -> None:
    capacity = "Gate('DRAConsumableCapacity', default=False, stage=Stage.ALPHA)"
    package.write_text(f"{HERE}RESOURCES = [replace(LAMP, gates=[{capacity}])]\n")
    assert mistakes_of("--kinds", "lamps_of_a_test") == [
        '--kinds: feature gate "DRAConsumableCapacity" with different spec already exists'
    ]


def test_gates_of_a_package_are_switched_like_built_in_ones(package: Path) -> None:
    package.write_text(f"{HERE}RESOURCES = [replace(LAMP, gates=[DIMMED])]\n")
    for flags, on in (
        ((), False),
        (("--feature-gates=DimmedLamps=true",), True),
        (("--feature-gates=AllAlpha=1",), True),
    ):
        serving = config.parse(["dev", "--kinds", "lamps_of_a_test", *flags], {}).serving
        assert apigroups.gates(serving, apigroups.kinds(serving)).enabled(DIMMED) is on


def test_missing_module_is_reported_with_the_other_errors() -> None:
    with pytest.raises(ConfigError) as refused:
        config.parse(["dev", "--kinds", "no_such_module.kinds", "--secure-port", "x"], {})
    assert refused.value.errors == [
        "--secure-port: 'x' is not a whole number",
        "--kinds: there is no module no_such_module.kinds",
    ]
    assert mistakes_of("--kinds", "tests.no_such_module") == ["--kinds: tests.no_such_module: there is no such module"]


def test_packages_add_up_and_the_environment_names_them_too() -> None:
    assert config.parse(["dev", "--kinds", "json", "--kinds", "os,json"], {}).serving.kinds == ("json", "os")
    assert config.parse(["dev"], {"SLUICE_KINDS": "os.path,json"}).serving.kinds == ("os.path", "json")
    assert config.parse(["store", "info", "--redis-url", "redis://h"], {"SLUICE_KINDS": "os"}).serving.kinds == ("os",)
