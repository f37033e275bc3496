"""The sections on patches of the table of apply cases, from the body of a request to the document before it is decoded.

Each expectation is what upstream's engines gave.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any, cast

import pytest
import yaml

from apiserver import resources
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.patching import json_patch, merge_patch, strategic
from apiserver.schema.types import Struct
from apiserver.wire import patches
from tests.fixtures.cases import each_case
from tests.unit.patching import declared

OWN = pathlib.Path(__file__).resolve().parents[2] / "cases"
KINDS = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES)}
GENERIC = "the server rejected our request due to an error in our request"

Table = dict[str, Any]


@pytest.fixture(scope="session")
def table(shared: pathlib.Path) -> Table:
    return read(shared)


def read(folder: pathlib.Path) -> Table:
    return cast(Table, yaml.load((folder / "apply.yaml").read_text(), Loader=yaml.CSafeLoader))


def names() -> list[str]:
    """The names are needed before fixtures exist; the project's own copy has the same ones."""
    table = read(OWN)
    return [case["name"] for section in ("strategic", "json", "merge") for case in table[section]]


def shape_of(case: dict[str, Any], table: Table) -> Struct:
    return KINDS[case["kind"]] if "kind" in case else declared.struct(table[case["schema"]])


def patched(section: str, case: dict[str, Any], table: Table) -> tuple[Any, list[str]]:
    """The document, and what strict decoding has against the patch."""
    raw = (case["patch_text"] if "patch_text" in case else json.dumps(case["patch"])).encode()
    read: Callable[[bytes, str], patches.Document] = {
        "strategic": patches.read_strategic_patch,
        "json": patches.read_json_patch,
        "merge": patches.read_merge_patch,
    }[section]
    sent = read(raw, "Warn")
    if section == "strategic":
        result = strategic.apply(sent.value, case["original"], shape_of(case, table))
    elif section == "json":
        result = json.loads(json_patch.apply(json_patch.parse(sent.value), json.dumps(case["original"]).encode()))
    else:
        result = json.loads(merge_patch.apply(sent.value, json.dumps(case["original"]).encode()))
    return result, list(sent.complaints)


@each_case("name", names())
def test_a_case_of_the_table_holds(name: str, table: Table) -> None:
    section = {"smp": "strategic"}.get(name.partition("/")[0], name.partition("/")[0])
    case = next(case for case in table[section] if case["name"] == name)
    expected, before = case["expect"], json.dumps(case["original"])
    if "result" in expected:
        result, complaints = patched(section, case, table)
        assert result == expected["result"]
        assert complaints == expected.get("strict_violations", [])
    else:
        with pytest.raises(StatusError) as refused:
            patched(section, case, table)
        told = GENERIC if expected["code"] == 422 else expected["error"]
        assert (refused.value.code, refused.value.message) == (expected["code"], told)
    assert json.dumps(case["original"]) == before, "the live object is not changed"
