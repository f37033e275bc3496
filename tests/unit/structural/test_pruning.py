"""The outcomes were seen on kube-apiserver 1.36.3."""

from __future__ import annotations

from typing import Any, cast

import pytest

from apiserver.schema.structural import of
from apiserver.structural.pruning import MOST_PATHS, pruner

STRING = {"type": "string"}


def pruned(schema: dict[str, Any], obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    unknown: list[str] = []
    pruner(of({"type": "object", "properties": {"spec": schema}}))(obj, unknown)
    return obj, unknown


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "spec", "kept", "unknown"),
    [
        (obj(a=STRING), {"a": "x", "zz": {"b": 1}}, {"a": "x"}, ["spec.zz"]),
        (obj(a=STRING), {"a": {"b": {"c": 1}}}, {"a": {}}, ["spec.a.b"]),
        (obj(o=obj(y=STRING)), {"o": [{"x": 1}]}, {"o": [{}]}, ["spec.o[0].x"]),
        (obj(a=STRING), {"a": [[{"x": 1}]]}, {"a": [[{}]]}, ["spec.a[0][0].x"]),
        (
            {"type": "object", "additionalProperties": obj(y=STRING)},
            {"": {"z": 1}, "a.b": {"z": 1}},
            {"": {}, "a.b": {}},
            ["spec..z", "spec.a.b.z"],
        ),
        ({"type": "object", "additionalProperties": True}, {"a": {"b": 1}}, {"a": {}}, ["spec.a.b"]),
        (
            {"type": "array", "items": obj(y=STRING)},
            [{"z": 1}, {"y": "", "z": 1}],
            [{}, {"y": ""}],
            ["spec[0].z", "spec[1].z"],
        ),
        (
            {**obj(o=obj(y=STRING)), "x-kubernetes-preserve-unknown-fields": True},
            {"free": {"a": 1}, "o": {"y": "", "z": 1}},
            {"free": {"a": 1}, "o": {"y": ""}},
            ["spec.o.z"],
        ),
        (
            {**obj(), "x-kubernetes-embedded-resource": True},
            {"apiVersion": "v1", "kind": "K", "metadata": {"zz": 1}, "a": 1},
            {"apiVersion": "v1", "kind": "K", "metadata": {"zz": 1}},
            ["spec.a"],
        ),
    ],
)
def test_unknown_members_are_dropped_and_named(schema: Any, spec: Any, kept: Any, unknown: list[str]) -> None:
    assert pruned(schema, {"spec": spec}) == ({"spec": kept}, unknown)


def test_type_and_metadata_of_the_object_stay() -> None:
    found = pruned(obj(), {"apiVersion": "g/v1", "kind": "K", "metadata": {"zz": 1}, "x": 1})
    assert found == ({"apiVersion": "g/v1", "kind": "K", "metadata": {"zz": 1}}, ["x"])


def test_paths_are_sorted() -> None:
    assert pruned(obj(), {"spec": {"z": 1, "a": 1}, "b": 1})[1] == ["b", "spec.a", "spec.z"]


def test_depth_does_not_matter() -> None:
    deep: Any = {"x": 1}
    for _ in range(5_000):
        deep = [deep]
    found, unknown = pruned(STRING, {"spec": deep})
    assert unknown == [f"spec{'[0]' * 5_000}.x"]
    inner = found["spec"]
    while inner:
        inner = inner[0]
    assert inner == {}


def test_deep_schemas_prune_deep_objects() -> None:
    schema, value = of(STRING), cast(dict[str, Any], {"zz": 1})
    for _ in range(2_000):
        schema = type(schema)(source={}, type="object", properties={"a": schema})
        value = {"a": value}
    unknown: list[str] = []
    pruner(schema)(value, unknown)
    assert unknown == [f"{'a.' * 2_000}zz"]


def test_reported_paths_are_bounded() -> None:
    many = {str(i): 1 for i in range(MOST_PATHS + 1)}
    found, unknown = pruned(obj(), {"spec": many})
    assert (found, len(unknown)) == ({"spec": {}}, MOST_PATHS)


def test_long_paths_are_bounded() -> None:
    items = [{"z": 1} for _ in range(1_000)]
    found, unknown = pruned({"type": "object", "additionalProperties": True}, {"spec": {"k" * 100_000: items}})
    assert len(unknown) < 20
    assert [*found["spec"].values()] == [[{}] * 1_000]
