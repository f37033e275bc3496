"""An applier owns the paths that its value spells out, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from structuredmerge import fieldsv1
from structuredmerge.fieldset import fields_of
from tests.unit.structuredmerge.declared import TYPE


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"name": "", "age": 0, "alive": False}, {"f:age": {}, "f:alive": {}, "f:name": {}}),
        ({"name": None}, {"f:name": {}}),
        ({"words": []}, {"f:words": {}}),
        ({"choice": {"a": 1}}, {"f:choice": {}}),
        ({"roles": []}, {}),
        ({"roles": None}, {"f:roles": {}}),
        ({"place": {}}, {"f:place": {}}),
        ({"place": None}, {"f:place": {}}),
        ({"place": {"town": "t"}}, {"f:place": {"f:town": {}}}),
        ({"tags": {"a": "1"}}, {"f:tags": {"f:a": {}}}),
        ({"roles": ["b", "a"]}, {"f:roles": {'v:"a"': {}, 'v:"b"': {}}}),
        ({"dates": [{"day": 1}]}, {"f:dates": {'k:{"day":1,"zone":"UTC"}': {".": {}, "f:day": {}}}}),
        ({"dates": [{"day": 1}, {"day": 1, "what": "x"}]}, {"f:dates": {'k:{"day":1,"zone":"UTC"}': {}}}),
        ({"raw": {"a": {"b": 1}}}, {"f:raw": {"f:a": {".": {}, "f:b": {}}}}),
        ({"anything": [{"a": 1}]}, {"f:anything": {}}),
        (None, {}),
    ],
)
def test_a_value_owns_what_it_spells_out(value: Any, fields: Any) -> None:
    assert fieldsv1.encode(fields_of(value, TYPE)).decode() == json.dumps(fields, separators=(",", ":"))
