from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import rawjson
from apiserver.patching import stable, strategic
from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    MapOf,
    Presence,
    RawJSON,
    String,
    Struct,
    Type,
)
from kubetext import printing
from tests.fixtures.cases import each_case
from tests.fixtures.cpu import Spent
from tests.unit.patching import recorded


def member(
    name: str, type_: Type, *, presence: Presence = Presence.OMIT_EMPTY, strategy: str = "", key: str = ""
) -> Field:
    return Field(name=name, number=1, type=type_, presence=presence, patch_strategy=strategy, patch_merge_key=key)


def struct(name: str, *fields: Field) -> Struct:
    return Struct(name=name, fields=fields)


TEXT, NUMBER = String(), Integer()
POINTER, ALWAYS = Presence.POINTER, Presence.ALWAYS
INNER = struct(
    "Inner", member("a", TEXT), member("b", TEXT), member("n", NUMBER), member("f", ListOf(TEXT), strategy="merge")
)
BOX = struct(
    "Box",
    member("w", NUMBER),
    member("h", Integer(bits=32)),
    member("inner", INNER, presence=POINTER),
    member("val", INNER, presence=ALWAYS),
)
ENV = struct("Env", member("name", TEXT), member("value", TEXT), member("from", INNER, presence=POINTER))
PART = struct(
    "Part",
    member("name", TEXT),
    member("image", TEXT),
    member("args", ListOf(TEXT)),
    member("env", ListOf(ENV), strategy="merge", key="name"),
)
PORT = struct("Port", member("port", NUMBER, presence=ALWAYS), member("proto", TEXT))
VOL = struct(
    "Vol", member("name", TEXT), member("empty", INNER, presence=POINTER), member("host", INNER, presence=POINTER)
)
RICH = struct(
    "Rich",
    member("kind", TEXT),
    member("apiVersion", TEXT),
    member("name", TEXT),
    member("count", NUMBER),
    member("on", Boolean(), presence=POINTER),
    member("labels", MapOf(TEXT)),
    member("boxes", MapOf(BOX)),
    member("args", ListOf(TEXT)),
    member("finalizers", ListOf(TEXT), strategy="merge"),
    member("numbers", ListOf(NUMBER), strategy="merge"),
    member("grid", ListOf(ListOf(TEXT)), strategy="merge"),
    member("box", BOX, presence=ALWAYS),
    member("pox", BOX, presence=POINTER),
    member("swap", INNER, presence=POINTER, strategy="replace"),
    member("rollout", BOX, presence=POINTER, strategy="retainKeys"),
    member("parts", ListOf(PART), strategy="merge", key="name"),
    member("ports", ListOf(PORT), strategy="merge", key="port"),
    member("vols", ListOf(VOL), strategy="merge,retainKeys", key="name"),
    member("nokey", ListOf(VOL), strategy="merge"),
    member("keyed", ListOf(TEXT), strategy="merge", key="name"),
    member("tols", ListOf(PORT)),
    member("maps", ListOf(MapOf(TEXT)), strategy="merge"),
    member("raw", RawJSON()),
)
"""Every way in which a Go type is tagged."""
GENERIC = "the server rejected our request due to an error in our request"


def applied(patch: dict[str, Any], live: dict[str, Any]) -> Any:
    """The patch is used up."""
    shown = {name: rawjson.made(x) if name == "raw" else x for name, x in live.items()}
    result = strategic.apply(patch, shown, RICH)
    return {name: rawjson.parsed(x) if isinstance(x, msgspec.Raw) else x for name, x in result.items()}


def refused(patch: dict[str, Any], live: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(StatusError) as refusal:
        applied(copy.deepcopy(patch), live)
    return refusal.value.code, refusal.value.message


@each_case("case", recorded.cases("go_strategic.jsonl"), ids=lambda c: json.dumps(c["patch"])[:80])
def test_a_patch_does_what_it_does_upstream(case: dict[str, Any]) -> None:
    patch, before = case["patch"], json.dumps(case["live"])
    if "error" in case:
        told = GENERIC if case["code"] == 422 else case["error"]
        assert refused(patch, case["live"]) == (case["code"], told)
    else:
        patch = copy.deepcopy(patch)
        assert applied(patch, case["live"]) == case["result"]
        assert printing.plain(patch) == case["left"], "what an error would show of it"
    assert json.dumps(case["live"]) == before, "the live object is not changed"


NAMES = st.sampled_from("abcdef")
PARTS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"image": NAMES, "args": st.lists(NAMES, max_size=2)}),
    max_size=5,
    unique_by=lambda part: str(part["name"]),
)
LIVE = st.fixed_dictionaries(
    {},
    optional={
        "parts": PARTS,
        "finalizers": st.lists(NAMES, max_size=5, unique=True),
        "labels": st.dictionaries(NAMES, NAMES),
    },
)


@given(LIVE, LIVE)
def test_merging_twice_is_merging_once(patch: dict[str, Any], live: dict[str, Any]) -> None:
    once = applied(patch, live)
    assert applied(patch, once) == once


@given(LIVE, LIVE)
def test_patched_and_other_items_each_keep_their_order(patch: dict[str, Any], live: dict[str, Any]) -> None:
    found = [part["name"] for part in applied(patch, live).get("parts", ())]
    named = [part["name"] for part in patch.get("parts", ())]
    others = [part["name"] for part in live.get("parts", ()) if part["name"] not in named]
    assert [name for name in found if name in named] == named
    assert [name for name in found if name not in named] == others


@given(LIVE, st.permutations("abcdef"))
def test_ordered_items_come_out_in_that_order(live: dict[str, Any], order: list[str]) -> None:
    patch = {"$setElementOrder/parts": [{"name": name} for name in order], "$setElementOrder/finalizers": order}
    found = applied({k: v for k, v in patch.items() if live.get(k.partition("/")[2])}, live)
    assert [part["name"] for part in found.get("parts", ())] == [
        name for name in order if any(part["name"] == name for part in live.get("parts", ()))
    ]
    assert found.get("finalizers", []) == [name for name in order if name in live.get("finalizers", ())]


@given(LIVE)
def test_deleted_items_are_removed(live: dict[str, Any]) -> None:
    patch = {
        "parts": [{"name": part["name"], "$patch": "delete"} for part in live.get("parts", ())],
        "$deleteFromPrimitiveList/finalizers": live.get("finalizers", []),
        "labels": {"$patch": "delete"},
    }
    found = applied(patch, live)
    assert not any(found.get(name) for name in ("parts", "finalizers", "labels"))


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ({"finalizers": [None]}, "invalid memory address or nil pointer dereference"),
        ({"parts": [{"name": {}}]}, "comparing uncomparable type map[string]interface {}"),
        ({"$retainKeys": [[]]}, "comparing uncomparable type []interface {}"),
        ({"$deleteFromPrimitiveList/finalizers": [{}]}, None),
    ],
)
def test_values_that_go_cannot_compare_get_an_error(patch: dict[str, Any], told: str | None) -> None:
    code, message = refused(patch, {"finalizers": [], "parts": []})
    assert (code, message) == (
        500,
        f"runtime error: {told}" if told else "cannot merge lists without merge key for string",
    )


def test_raw_json_takes_new_members_and_is_not_merged_below() -> None:
    live = {"raw": {"a": 1, "b": {"c": 1}}}
    assert applied({"raw": {"a": None, "z": [1]}}, live) == {"raw": {"b": {"c": 1}, "z": [1]}}
    assert refused({"raw": {"b": {"d": 1}}}, live) == (
        500,
        'unable to find api field in struct RawExtension for the json field "b"',
    )


MANY = 10_000


@pytest.mark.parametrize(
    "patch",
    [
        {"parts": [{"name": f"n{i}", "image": "x"} for i in range(MANY)]},
        {"parts": [{"name": f"n{i}", "$patch": "delete"} for i in range(MANY)]},
        {"$setElementOrder/parts": [{"name": f"n{i}"} for i in reversed(range(2 * MANY))]},
        {"$setElementOrder/parts": [], "parts": [{"name": f"m{i}"} for i in range(MANY)]},
        {
            "finalizers": [f"m{i}" for i in range(MANY)],
            "$deleteFromPrimitiveList/finalizers": [f"n{i}" for i in range(MANY)],
        },
        {"$retainKeys": [f"n{i}" for i in range(MANY)]},
        {"box": {"inner": {f"n{i}": {"x": None, "y": [{"$patch": "delete"}]} for i in range(MANY)}}},
    ],
    ids=["merge", "delete", "order", "no order", "texts", "retain", "take"],
)
def test_long_lists_take_no_longer_than_their_length(patch: dict[str, Any]) -> None:
    live = {"parts": [{"name": f"n{i}"} for i in range(MANY)], "finalizers": [f"n{i}" for i in range(MANY)], "box": {}}
    with Spent() as spent:
        applied(patch, live)
    assert spent.below(3)


def test_no_depth_of_a_value_fails() -> None:
    deep: Any = {"x": None}
    for _ in range(5_000):
        deep = {"a": [deep, None]}
    found = strategic.apply({"box": deep}, {}, RICH)["box"]
    for _ in range(5_000):
        found = found["a"][0]
    assert found == {}


@pytest.mark.parametrize(
    ("ranks", "sorted_"),
    [
        ([2, 1, 0], [2, 1, 0]),
        ([1, 0, 1, 0], [1, 3, 0, 2]),
        ([-1] * 5, [4, 3, 2, 1, 0]),
        ([0, -1, 1, -1], [3, 1, 0, 2]),
        ([-1] * 22, [*reversed(range(22))]),
    ],
)
def test_elements_of_unknown_rank_end_up_where_go_leaves_them(ranks: list[int], sorted_: list[int]) -> None:
    assert stable.by_rank(ranks) == sorted_
