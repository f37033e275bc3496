from __future__ import annotations

from typing import Any

import pytest

from apiserver.codecs.objects import decoding, defaults
from apiserver.schema import shapes
from tests.unit.schema.gadget import GADGET, SPEC

NOW = "2026-06-01T12:00:00Z"


def applied(spec: dict[str, Any]) -> dict[str, Any]:
    defaults.apply(SPEC, spec, now=NOW)
    return spec


def test_an_absent_member_gets_its_default_at_any_depth() -> None:
    spec = applied({"owner": "o", "parts": [{"name": "a"}, {"name": "b", "factor": "2"}], "extra": ["x"]})
    assert spec["parts"] == [
        {"name": "a", "factor": "1", "since": NOW},
        {"name": "b", "factor": "2", "since": NOW},
    ]


@pytest.mark.parametrize(
    ("spec", "mode"), [({}, "Shared"), ({"node": "n"}, "Solo"), ({"mode": "", "node": "n"}, "Solo")]
)
def test_a_default_can_depend_on_the_struct_and_empty_text_is_absent(spec: dict[str, Any], mode: str) -> None:
    assert applied(spec)["mode"] == mode


def test_a_given_value_stays() -> None:
    assert applied({"mode": "Other", "extra": ["x"]}) == {"mode": "Other", "extra": ["x"]}


def test_a_pointer_that_was_given_stays_even_when_it_is_empty() -> None:
    spec = applied({"parts": [{"factor": "", "since": "2020-01-01T00:00:00Z"}]})
    assert spec["parts"] == [{"factor": "", "since": "2020-01-01T00:00:00Z"}]


def test_default_lists_are_not_shared_between_objects() -> None:
    first, second = applied({}), applied({})
    first["extra"].append("changed")
    assert second["extra"] == ["first"]
    assert applied({})["extra"] == ["first"]


def test_a_shape_without_defaults_leaves_objects_alone() -> None:
    obj: dict[str, Any] = {"nodeSelectorTerms": []}
    defaults.apply(shapes.NODE_SELECTOR, obj, now=NOW)
    assert obj == {"nodeSelectorTerms": []}


def test_defaults_hold_for_a_whole_decoded_object() -> None:
    obj = decoding.decode(GADGET, {"spec": {"parts": [{}]}}).object
    defaults.apply(GADGET, obj, now=NOW)
    assert obj["spec"] == {
        "mode": "Shared",
        "parts": [{"factor": "1", "since": NOW}],
        "pool": {},
        "extra": ["first"],
    }
