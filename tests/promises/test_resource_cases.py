"""The table of cases for the four kinds, run against their shapes and hooks without a server.

Each case was run against a real kube-apiserver 1.36.3 and holds there.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.schema import canonical, defaults, strict
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object, Resource, Subresource
from apiserver.verbs import lifecycle
from tests.promises import resource_table
from tests.promises.resource_table import Case, Expected

NOW = "2026-06-01T12:00:00Z"
HERE = pathlib.Path(__file__).resolve().parent
KINDS = {resource.kind: resource for resource in resources.RESOURCES}


@pytest.fixture(scope="session")
def table(shared: pathlib.Path) -> dict[str, Case]:
    return {case.name: case for case in resource_table.read(shared)}


def names() -> list[str]:
    """The names are needed before fixtures exist; the project's own copy has the same ones."""
    return [case.name for case in resource_table.read(HERE.parent / "cases")]


def decoded(resource: Resource, sent: dict[str, Any]) -> Object:
    value = {k: v for k, v in json.loads(json.dumps(sent)).items() if k not in ("kind", "apiVersion")}
    found = strict.decode(resource.shape, value)
    assert found.unknown == []
    defaults.apply(resource.shape, found.object, now=NOW)
    return found.object


def stored(resource: Resource, case: Case) -> Object:
    assert case.old is not None
    old = decoded(resource, case.old)
    system = {"uid": "0b6d53b0-0000-4000-8000-000000000001", "creationTimestamp": NOW, "resourceVersion": "7"}
    old["metadata"] = system | old["metadata"]
    return old


def run(resource: Resource, case: Case) -> tuple[Object, list[FieldError], list[str]]:
    declared = [gate for kind in resources.RESOURCES for gate in kind.gates]
    gates = Gates(declared, case.gates)
    context = Context(gates=gates, namespace_labels=lambda: case.namespace_labels, cel=resources.DeviceSelectors(gates))
    new = decoded(resource, case.object)
    if case.operation == "create":
        base = new["metadata"].get("generateName")
        if base and not new["metadata"].get("name"):
            new["metadata"]["name"] = f"{base}x7k2p"
        return judged(context, resource, new, None)
    old = stored(resource, case)
    for name in ("resourceVersion", "uid", "creationTimestamp", "generation"):
        lifecycle.restore(new["metadata"], old["metadata"], name)
    sub = resource.subresource("status") if case.operation == "status" else None
    return judged(context, resource, new, old, sub=sub)


def judged(
    context: Context, resource: Resource, new: Object, old: Object | None, *, sub: Subresource | None = None
) -> tuple[Object, list[FieldError], list[str]]:
    """The verdict that a write waits for, and the words that it is told when that was no."""
    if lifecycle.settle(context, resource, new, old, sub=sub).acceptable:
        return new, [], list(resource.warnings(context, new, old))
    if old is None:
        return new, lifecycle.creation_errors(context, resource, new), []
    return new, lifecycle.update_errors(context, resource, new, old, sub=sub), []


def matches(error: FieldError, expected: Expected) -> bool:
    return (error.field, error.reason) == (expected.field, expected.reason) and expected.detail in error.body


def check_errors(found: list[FieldError], expected: tuple[Expected, ...]) -> None:
    distinct = list(dict.fromkeys(found))
    shown = "\n".join(f"{e.reason} {e}" for e in distinct)
    assert all(any(matches(error, e) for error in distinct) for e in expected), f"missing among:\n{shown}"
    assert all(any(matches(error, e) for e in expected) for error in distinct), f"too much:\n{shown}"
    assert len(distinct) >= len(set(expected)), shown


def check_then(resource: Resource, obj: Object, wanted: dict[str, Any]) -> None:
    served = json.loads(canonical.encode(resource.shape, obj))
    try:
        value = resource_table.look(served, wanted["path"])
    except (KeyError, IndexError):
        assert wanted.get("absent"), f"{wanted['path']} is missing"
        return
    assert not wanted.get("absent"), f"{wanted['path']} is there: {value!r}"
    if "equals" in wanted:
        assert value == wanted["equals"]


@pytest.mark.parametrize("name", names())
def test_a_case_of_the_table_holds(name: str, table: dict[str, Case]) -> None:
    case = table[name]
    resource = KINDS[case.kind]
    new, errors, warnings = run(resource, case)
    check_errors(errors, case.errors)
    assert len(warnings) == len(case.warnings)
    assert all(any(text in warning for warning in warnings) for text in case.warnings)
    if not case.errors:
        for wanted in case.then:
            check_then(resource, new, dict(wanted))
