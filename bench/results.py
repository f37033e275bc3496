"""The results of a run, as a file: on which machine, of what, and every figure."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import apiserver
from apiserver.storage.operations import embedded
from tests.e2e.controlplane import binaries

FORMAT = 1
OURS, THEIRS = "sluice", "kube-apiserver"
THROUGH = "through"
"""Sluice as clients meet it in a cluster: through kube-apiserver."""
FOLDER = Path(__file__).with_name("results")
LAST, PUBLISHED = FOLDER / "last.json", FOLDER / "published.json"
"""The results of the last run here (not in the repository), and those that README.md and the picture show."""
LAST_AGGREGATED, PUBLISHED_AGGREGATED = FOLDER / "last-aggregated.json", FOLDER / "aggregated.json"
"""The same of runs through kube-apiserver."""

Figures = dict[str, float]


@dataclass
class Results:
    facts: dict[str, Any] = field(default_factory=dict)
    workloads: dict[str, dict[str, Figures]] = field(default_factory=dict)
    """By name and server, in the order in which they were measured."""
    groups: dict[str, str] = field(default_factory=dict)
    """The group of each workload."""
    file: Path | None = None
    """Written with each figure, so that a stopped run has not been for nothing."""

    def add(self, group: str, workload: str, server: str, figures: Figures) -> None:
        self.groups[workload] = group
        self.workloads.setdefault(workload, {})[server] = {k: float(f"{v:.5g}") for k, v in figures.items()}
        if self.file is not None:
            self.write(self.file)

    def figure(self, workload: str, server: str, figure: str) -> float | None:
        return self.workloads.get(workload, {}).get(server, {}).get(figure)

    def of(self, *groups: str) -> list[str]:
        return [name for name, group in self.groups.items() if group in groups]

    def text(self) -> str:
        workloads = [
            {"name": name, "group": self.groups[name], "figures": figures} for name, figures in self.workloads.items()
        ]
        return json.dumps({"format": FORMAT, "facts": self.facts, "workloads": workloads}, indent=1) + "\n"

    def write(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.text())


def parse(text: str) -> Results:
    """Raises ValueError on a file of another format."""
    document = json.loads(text)
    if document.get("format") != FORMAT:
        raise ValueError(f"results of format {document.get('format')}, not {FORMAT}")
    results = Results(document["facts"])
    for workload in document["workloads"]:
        results.groups[workload["name"]] = workload["group"]
        results.workloads[workload["name"]] = workload["figures"]
    return results


def read(path: Path) -> Results:
    return parse(path.read_text())


def facts(*, upstream: bool, slices: int, quick: bool) -> dict[str, Any]:
    """Facts about this machine and this run. Nothing identifies the machine's location."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "slices": slices,
        "quick": quick,
        "machine": machine(),
        "versions": versions() | ({"kube-apiserver": binaries.version().removeprefix("v")} if upstream else {}),
    }


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release().partition("-")[0],
    }


def versions() -> dict[str, str]:
    """Name the versions of the programs and libraries that are measured."""
    return {
        "sluice": apiserver.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("uvloop", "aiohttp")},
        "valkey": _valkey(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _valkey() -> str:
    said = subprocess.run([embedded.binary(), "--version"], capture_output=True, text=True, check=True).stdout
    return next((word.removeprefix("v=") for word in said.split() if word.startswith("v=")), said.strip())
