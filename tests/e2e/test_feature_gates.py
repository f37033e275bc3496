"""`--feature-gates` of a process: what it switches shows in what is stored, in conditions on devices, in the metric and in the log."""

from __future__ import annotations

import pathlib

from tests.fixtures.server import DevServer

V1 = "/apis/resource.sluice.dev/v1"
SWITCHED = ("--feature-gates=DRAListTypeAttributes=true,DRADeviceTaints=false", "--feature-gates=DRAPrioritizedList=0")
DEVICE = {
    "name": "gpu-0",
    "attributes": {"links": {"ints": [1, 2]}},
    "taints": [{"key": "broken", "effect": "NoExecute"}],
}
SLICE = {
    "metadata": {"name": "n1-gpu"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [DEVICE],
    },
}
CONDITION = "device.attributes['gpu.example.com'].links.includes(2)"
CLASS = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": CONDITION}}]}}


def test_feature_gates_are_switched_for_all_that_a_server_does(tmp_path: pathlib.Path) -> None:
    with DevServer(tmp_path / "data", "--no-samples", "--emulated-version=1.36", *SWITCHED) as server:
        made = server.request("POST", f"{V1}/resourceslices", SLICE)
        assert made.status == 201, made.text
        [device] = made.json["spec"]["devices"]
        assert device == {"name": "gpu-0", "attributes": {"links": {"ints": [1, 2]}}}
        assert server.request("POST", f"{V1}/deviceclasses", CLASS).status == 201
        told = server.request("GET", "/metrics").text
    for name, stage, on in (
        ("DRAListTypeAttributes", "ALPHA", 1),
        ("DRADeviceTaints", "BETA", 0),
        ("DRAPrioritizedList", "", 0),
        ("DRAAdminAccess", "", 1),
    ):
        assert f'kubernetes_feature_enabled{{name="{name}",stage="{stage}"}} {on}.0\n' in told
    [warning] = [line for line in server.log.read_text().splitlines() if "feature gate" in line]
    assert "Warning: setting GA feature gate. It will be removed in a future release." in warning
    assert "DRAPrioritizedList" in warning
