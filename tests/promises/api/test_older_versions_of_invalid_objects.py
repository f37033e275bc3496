"""Invalid objects in v1beta1 and v1beta2: each error names its field as the release does that answers.

The recorded answers are those of a real kube-apiserver; `--target upstream` asks one again.
"""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from apiserver.apimachinery.releases import V1_37
from tests.promises import resource_table
from tests.promises.api.client import Client, Object
from tests.promises.api.target import OWN_GROUP, UPSTREAM_GROUP
from tests.promises.resource_table import CASES

RECORDED = pathlib.Path(__file__).with_name("older-versions.yaml")
PATHS = {
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "namespaces/{namespace}/resourceclaims",
    "ResourceClaimTemplate": "namespaces/{namespace}/resourceclaimtemplates",
}
ROWS: list[dict[str, Any]] = yaml.load(RECORDED.read_text(), Loader=yaml.CSafeLoader)


@pytest.fixture(scope="module")
def sent() -> Mapping[str, resource_table.Case]:
    return {case.name: case for case in resource_table.read(CASES, V1_37)}


def in_v1beta1(kind: str, obj: Object) -> Object:
    """The object as v1beta1 has it: devices have their content in `basic`, and requests that of `exactly` in themselves."""
    obj = copy.deepcopy(obj)
    match kind:
        case "ResourceSlice":
            _change(obj["spec"], "devices", _nested)
        case "ResourceClaim":
            _change(obj["spec"]["devices"], "requests", _flat)
        case "ResourceClaimTemplate":
            _change(obj["spec"]["spec"]["devices"], "requests", _flat)
    return obj


def _change(parent: Object, member: str, change: Callable[[Object], Object]) -> None:
    if member in parent:
        parent[member] = [change(item) for item in parent[member]]


def _nested(device: Object) -> Object:
    content = {name: value for name, value in device.items() if name != "name"}
    return {name: value for name, value in device.items() if name == "name"} | {"basic": content}


def _flat(request: Object) -> Object:
    return {**{name: value for name, value in request.items() if name != "exactly"}, **request.get("exactly", {})}


@pytest.mark.releases("1.37")
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_errors_of_an_older_version_are_those_of_the_release(
    api: Client, mine: str, sent: Mapping[str, resource_table.Case], version: str
) -> None:
    differ = {}
    for row in ROWS:
        case = sent[row["case"]]
        obj = in_v1beta1(case.kind, case.object) if version == "v1beta1" else dict(case.object)
        obj["metadata"] = {name: value for name, value in obj["metadata"].items() if name != "namespace"}
        path = f"/apis/{api.group}/{version}/{PATHS[case.kind].format(namespace=mine)}"
        refusal = api.refusal("POST", path, {**obj, "apiVersion": f"{api.group}/{version}"}, dryRun="All")
        causes = [[field, message.replace(OWN_GROUP, UPSTREAM_GROUP)] for field, message in refusal.causes]
        if (refusal.code, causes) != (422, row.get("both") or row[version]):
            differ[row["case"]] = (refusal, causes)
    assert differ == {}
