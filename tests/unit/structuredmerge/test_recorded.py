"""Results of upstream's library for random sets and rows of applies and updates, with random types."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from structuredmerge import fieldsv1, sets, values
from structuredmerge.fieldsv1 import FieldsError, decode, encode
from structuredmerge.openapi import type_of
from structuredmerge.paths import field, text
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import Type
from structuredmerge.updater import UNCHANGED, Conflicts, Managers, apply, update
from structuredmerge.validation import joined, validate
from tests.fixtures.cases import each_case

HERE = pathlib.Path(__file__).resolve().parent

Case = Mapping[str, Any]


def recorded(name: str) -> list[dict[str, Any]]:
    """Answers of structured-merge-diff v6.3.3 (with the schemas of kube-openapi's schemaconv)."""
    # A line may hold characters that Python ends lines at.
    return [json.loads(line) for line in (HERE / name).read_text().split("\n") if line]


@each_case("case", recorded("go_sets.jsonl"), ids=lambda case: f"{len(case['a'])}")
def test_sets_are_read_combined_and_written_as_go_does_it(case: Case) -> None:
    if "error" in case:
        with pytest.raises(FieldsError) as raised:
            decode(case["a"].encode())
        assert str(raised.value) == case["error"]
        return
    a, b = decode(case["a"].encode()), decode(case["b"].encode())
    assert [text(path) for path in a.paths()] == case["paths"]
    assert encode(a).decode() == case["written"]
    assert encode(a | b).decode() == case["union"]
    assert encode(a & b).decode() == case["intersection"]
    assert encode(a - b).decode() == case["difference"]
    assert encode(a.without(b)).decode() == case["without"]


class Versions:
    """v1 is the version of the case's schema; v2, where names are given, has other names for members of the whole."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._names = {"v1": {new: old for old, new in case.get("renames", {}).items()}, "v2": case.get("renames", {})}
        self.ignoring = ""
        self.declare(case["schema"])

    def declare(self, schema: Mapping[str, Any]) -> None:
        members = {self._names["v2"].get(name, name): member for name, member in schema.get("properties", {}).items()}
        self._types = {"v1": type_of(schema), "v2": type_of({**schema, "properties": members})}
        if "properties" not in schema:
            self._types["v2"] = self._types["v1"]

    def type_at(self, version: str) -> Type | None:
        return self._types[version] if version in self._case.get("known", self._types) else None

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        if version_from == version_to or not isinstance(value, dict):
            return value
        return {self._names[version_to].get(name, name): part for name, part in value.items()}

    def ignored(self, version: str) -> Set:
        excluded = self._case.get("exclude", ()) if version == self.ignoring else ()
        return sets.of([(field(name),) for name in excluded]) or EMPTY


def of(managers: Managers) -> dict[str, Any]:
    return {
        name: [owned.version, owned.applied, fieldsv1.encode(owned.set).decode()] for name, owned in managers.items()
    }


@each_case("case", recorded("go_merges.jsonl"), ids=lambda case: f"{len(case['steps'])} steps")
def test_applies_and_updates_end_as_upstream_ends_them(case: Case) -> None:
    versions = Versions(case)
    live: Any = None
    managers: Managers = {}
    written, expected, owners = "v1", None, of({})
    for step in case["steps"]:
        then = step["then"]
        if "op" not in step:
            versions.declare(step["schema"])
            continue
        version = versions.ignoring = step["version"]
        live, written = versions.convert(live, written, version), version
        type_ = versions.type_at(version)
        assert type_ is not None
        new, error, conflicts = live, None, None
        errors = validate(step["object"], type_, duplicates=step["op"] == "update")
        writer = {"version": version, "managers": managers, "manager": step["manager"], "versions": versions}
        if errors:
            error = joined(errors)
        elif step["op"] == "update":
            managers, new = update(live, step["object"], **writer), step["object"]
        else:
            try:
                new, managers = apply(live, step["object"], **writer, force=step["force"])
            except Conflicts as found:
                conflicts = sorted([conflict.manager, text(conflict.path)] for conflict in found.conflicts)
        assert (new is UNCHANGED) is then.get("noop", False)
        assert conflicts == then.get("conflicts")
        assert error == then.get("error") or (error is not None and then.get("error") is True)
        live = live if new is UNCHANGED else new
        expected = then.get("object", expected)
        owners = then.get("managers", owners)
        assert values.equal(live, expected), f"{live} is not {expected}"
        assert of(managers) == owners
