"""The cases of upstream's field manager: requests to one object of a kind, and who manages what of it afterwards."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import rawjson
from tests.fixtures.cases import each_case
from tests.unit.fieldmanager.written import Written

CASES = yaml.load(
    (pathlib.Path(__file__).parents[2] / "cases" / "apply.yaml").read_bytes(),
    Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),
)["kinds"]


@each_case("case", CASES, ids=lambda case: case["name"])
def test_upstreams_case(case: dict[str, Any]) -> None:
    written = Written(case["kind"])
    if "initial" in case:
        written.store(case["initial"]["object"])
    for step in case["steps"]:
        before = written.body
        if "code" in step:
            with pytest.raises(StatusError) as refused:
                send(written, step)
            check_refusal(refused.value, step)
            assert written.body == before
        else:
            send(written, step)
        if step.get("noop"):
            assert written.body == before
    expected = case["expect"]
    stored = written.object
    for name in ("managedFields", "uid", "creationTimestamp", "generation"):
        stored["metadata"].pop(name, None)
    head = {name: expected["object"].pop(name) for name in ("kind", "apiVersion")}
    assert head["kind"] == case["kind"]
    assert stored == expected["object"]
    assert list(map(shown, written.managed_fields)) == list(map(wanted, expected["managed"]))


def send(written: Written, step: dict[str, Any]) -> None:
    how: dict[str, Any] = {"manager": step["manager"]}
    if "subresource" in step:
        how["subresource"] = step["subresource"]
    match step["op"]:
        case "create":
            written.create(step["object"], **how)
        case "update":
            written.update(step["object"], **how)
        case "apply":
            written.apply(step["object"], force=step.get("force", False), **how)
        case other:
            written.patch(other, step["object"], **how)


def check_refusal(refused: StatusError, step: dict[str, Any]) -> None:
    assert refused.code == step["code"]
    assert refused.reason == step.get("reason", "")
    assert refused.message == step["message"]
    causes = [(c["field"], c["message"], c["type"]) for c in step.get("causes", ())]
    found = (refused.details or {}).get("causes", ())
    assert [(c["field"], c["message"], c["reason"]) for c in found] == causes


def shown(entry: dict[str, Any]) -> dict[str, Any]:
    assert entry["fieldsType"] == "FieldsV1"
    return {
        "manager": entry["manager"],
        "operation": entry["operation"],
        "apiVersion": entry["apiVersion"],
        "subresource": entry.get("subresource", ""),
        "has_time": "time" in entry,
        "fields": rawjson.text(entry["fieldsV1"]).decode(),
    }


def wanted(entry: dict[str, Any]) -> dict[str, Any]:
    fields = json.dumps(entry["fields"], separators=(",", ":"), ensure_ascii=False)
    return {"subresource": "", **entry, "fields": fields}
