"""Policy reports of about 4 KB, as custom resources: the files of their definition are those that a project ships.

Slices of the same size stand beside them on the same server. They separate the cost of a custom kind from that of any kind.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import yaml

from bench.workloads import Bench
from tests.e2e.controlplane import binaries

MODULE = "github.com/kyverno/kyverno@v1.19.1"
FILE = "config/crds/policyreport/wgpolicyk8s.io_policyreports.yaml"
GROUP, VERSION = "wgpolicyk8s.io", "v1alpha2"
RESULTS = 17
DEVICES_ALIKE = 13
"""A slice of so many devices is as large as a report."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
READY_SECONDS = 30.0
_OUTCOMES = ("pass", "pass", "pass", "fail", "skip")


def definition() -> Path:
    """Return the file of the definition, in Go's cache of modules. Downloads the module if it is missing."""
    return binaries.download(MODULE) / FILE


def report_body(name: str, number: int, stamp: str = "") -> bytes:
    """Return a PolicyReport as a policy engine writes it for one object: 17 results, about 4 KB."""
    found = [
        {
            "source": "kyverno",
            "policy": f"require-labels-{i:02}",
            "rule": "check-team",
            "severity": "medium",
            "message": f"rule {i} has been checked for this object",
            "result": _OUTCOMES[i % len(_OUTCOMES)],
            "scored": True,
            "timestamp": {"seconds": 1_760_000_000 + number, "nanos": 0},
        }
        for i in range(RESULTS)
    ]
    outcomes = [result["result"] for result in found]
    metadata = {"name": name, "namespace": "default", "labels": {"bench": "report"}} | (
        {"annotations": {"stamp": stamp}} if stamp else {}
    )
    report = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "PolicyReport",
        "metadata": metadata,
        "scope": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"web-{number:06}", "namespace": "default"},
        "summary": {name: outcomes.count(name) for name in ("pass", "fail", "warn", "error", "skip")},
        "results": found,
    }
    return json.dumps(report, separators=(",", ":")).encode()


class Reports(Bench):
    """Policy reports on a server that is measured."""

    needs_version = True

    def __init__(self, bench: Bench) -> None:
        target = replace(bench.target, group=GROUP, version=VERSION)
        super().__init__(target, bench.processes)
        self.ours = bench.ours

    @property
    def collection(self) -> str:
        return f"{self.target.base}/namespaces/default/policyreports"

    def body(self, number: int, stamp: str = "", *, devices: int = 0) -> bytes:
        return report_body(f"s{number:06}", number, stamp)


class Alike(Bench):
    """Slices as large as policy reports."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.target, bench.processes)
        self.ours = bench.ours

    def body(self, number: int, stamp: str = "", *, devices: int = DEVICES_ALIKE) -> bytes:
        return super().body(number, stamp, devices=DEVICES_ALIKE)


async def install(reports: Reports) -> None:
    """Create the definition in kube-apiserver. Returns when the kind is served."""
    body = json.dumps(yaml.safe_load(definition().read_text())).encode()
    async with reports.connection() as connection:
        status, answer = await connection.fetch("POST", DEFINITIONS, body)
        if status != 201:
            raise RuntimeError(f"the definition was answered with {status}: {answer[:1000]!r}")
        async with asyncio.timeout(READY_SECONDS):
            while (await connection.request("GET", f"{reports.collection}?limit=1"))[0] != 200:  # noqa: ASYNC110 - nothing tells when it is served
                await asyncio.sleep(0.1)
