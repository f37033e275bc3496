"""The cases of the merge engine: what each of a row of applies and updates makes of a value and of who manages it.

The table's header says what its members mean.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from structuredmerge import fieldsv1, sets, values
from structuredmerge.openapi import type_of
from structuredmerge.paths import field, text
from structuredmerge.sets import Set
from structuredmerge.types import DEDUCED, Type
from structuredmerge.updater import UNCHANGED, Conflicts, Managers, Owned, apply, update
from structuredmerge.validation import joined, validate
from tests.fixtures.cases import each_case

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_VERSION = "v1"

Case = Mapping[str, Any]
Step = Mapping[str, Any]


def read(folder: pathlib.Path) -> dict[str, Any]:
    table: dict[str, Any] = yaml.load((folder / "apply.yaml").read_text(), Loader=yaml.CSafeLoader)
    return table


@pytest.fixture(scope="session")
def table(shared: pathlib.Path) -> dict[str, Any]:
    return read(shared)


@pytest.fixture(scope="session")
def cases(table: dict[str, Any]) -> dict[str, Case]:
    return {case["name"]: case for case in table["core"]}


def names() -> list[str]:
    """The names are needed before fixtures exist; the project's own copy has the same ones."""
    return [case["name"] for case in read(HERE.parents[1] / "cases")["core"]]


class Versions:
    """Values that look the same in every version."""

    def __init__(self, type_: Type, case: Case) -> None:
        self.type = type_
        self._known = case.get("known_versions")
        self._ignored = sets.of([tuple(map(field, path)) for path in case.get("exclude", ())])

    def type_at(self, version: str) -> Type | None:
        return self.type if self._known is None or version in self._known else None

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        return value

    def ignored(self, version: str) -> Set:
        return self._ignored


def identity(entry: Step, operation: str) -> str:
    """The identity of a manager: the version takes part in that of updaters alone."""
    version = {} if operation == "Apply" else {"apiVersion": entry.get("apiVersion", DEFAULT_VERSION)}
    return json.dumps({"manager": entry["manager"], "operation": operation, **version}, separators=(",", ":"))


class Room:
    """A value that several write, and who manages what of it."""

    def __init__(self, table: Mapping[str, Any], case: Case) -> None:
        self._schemas = table["schemas"]
        self.versions = Versions(DEDUCED if case.get("deduced") else self._type(case["schema"]), case)
        initial = case.get("initial", {})
        self.value: Any = initial.get("object")
        self.managers: Managers = {
            identity(entry, entry["operation"]): Owned(
                fieldsv1.decode(json.dumps(entry["fields"]).encode()),
                entry.get("apiVersion", DEFAULT_VERSION),
                applied=entry["operation"] == "Apply",
            )
            for entry in initial.get("managed", ())
        }

    def _type(self, schema: Any) -> Type:
        """The type of a schema, or of the name of one."""
        return type_of(self._schemas[schema] if isinstance(schema, str) else schema)

    def run(self, step: Step) -> None:
        if "op" not in step:
            self.versions.type = self._type(step["schema"])
            return
        errors = validate(step["object"], self.versions.type, duplicates=step["op"] == "update")
        if errors or "error" in step:
            assert joined(errors) == step["error"]
        elif step["op"] == "apply":
            self._apply(step)
        else:
            self._update(step)

    def _apply(self, step: Step) -> None:
        who, force = identity(step, "Apply"), step.get("force", False)
        if "conflicts" in step:
            with pytest.raises(Conflicts) as raised:
                apply(self.value, step["object"], **self._writer(step, who), force=force)
            found = [(conflict.manager, text(conflict.path)) for conflict in raised.value.conflicts]
            wanted = ((identity(conflict, conflict["operation"]), conflict["field"]) for conflict in step["conflicts"])
            assert sorted(found) == sorted(wanted)
            assert [manager for manager, _ in found] == sorted(manager for manager, _ in found)
            return
        new, self.managers = apply(self.value, step["object"], **self._writer(step, who), force=force)
        assert (new is UNCHANGED) is step.get("noop", False)
        self.value = self.value if new is UNCHANGED else new

    def _update(self, step: Step) -> None:
        who = identity({"manager": step["manager"], "apiVersion": step.get("api_version", DEFAULT_VERSION)}, "Update")
        self.managers = update(self.value, step["object"], **self._writer(step, who))
        self.value = step["object"]

    def _writer(self, step: Step, who: str) -> dict[str, Any]:
        version = step.get("api_version", DEFAULT_VERSION)
        return {"version": version, "managers": self.managers, "manager": who, "versions": self.versions}


@each_case("name", names())
def test_a_case_of_the_table_holds(name: str, table: dict[str, Any], cases: dict[str, Case]) -> None:
    room = Room(table, cases[name])
    for step in cases[name]["steps"]:
        before = json.dumps(room.value), dict(room.managers)
        room.run(step)
        if "error" in step or "conflicts" in step:
            assert (json.dumps(room.value), dict(room.managers)) == before
    expected = cases[name]["expect"]
    assert values.equal(room.value, expected["object"]), room.value
    found = {
        who: (owned.version, owned.applied, fieldsv1.encode(owned.set).decode()) for who, owned in room.managers.items()
    }
    assert found == {
        identity(entry, entry["operation"]): (
            entry["apiVersion"],
            entry["operation"] == "Apply",
            json.dumps(entry["fields"], separators=(",", ":"), ensure_ascii=False),
        )
        for entry in expected["managed"]
    }
