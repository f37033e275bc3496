"""Reads from kube-apiserver the description of its version: feature gates, flags, discovery, OpenAPI and metrics of kube-apiserver."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from tests.e2e.controlplane import binaries, published
from tests.e2e.controlplane.connection import Connection
from tests.e2e.next.differences import Difference, changes, shown
from tests.fixtures.openapi import GROUP

Said = Mapping[str, Mapping[str, Any]]
"""By topic, and by name below it."""
GROUPS = (
    GROUP,
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
)
"""The group that Sluice can take over, and those that it uses."""
_GATE = re.compile(r"^\s*(?:kube:)?(\w+)=true\|false \((\w+) - default=(true|false)\)", re.MULTILINE)
_FLAG = re.compile(r"^\s+(?:-\w, )?--([\w-]+)", re.MULTILINE)
_METRIC = re.compile(r"^# TYPE (\S+) (\w+)$", re.MULTILINE)


def ask(server: Connection) -> Said:
    """Ask a kube-apiserver of the chosen version. It must serve all versions of the group to be compared in all."""
    group = server.ask("GET", f"/apis/{GROUP}").json
    versions = tuple(version["version"] for version in group["versions"])
    usage = subprocess.run(
        [binaries.binary("kube-apiserver"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    return {
        "feature gates": gates(usage),
        "flags": dict.fromkeys(_FLAG.findall(usage), ""),
        "discovery": dict(_discovery(server)),
        "OpenAPI": published.documents(server, versions=versions),
        "metrics": dict(_METRIC.findall(server.ask("GET", "/metrics").text)),
    }


def gates(usage: str) -> dict[str, str]:
    """The feature gates that `kube-apiserver --help` lists: those that can be switched, with stage and default."""
    return {name: f"{stage}, {'on' if default == 'true' else 'off'}" for name, stage, default in _GATE.findall(usage)}


def _discovery(server: Connection) -> Iterator[tuple[str, Any]]:
    yield (
        "/version",
        {
            name: value
            for name, value in server.ask("GET", "/version").json.items()
            if name not in ("goVersion", "compiler", "platform", "buildDate", "gitCommit", "gitTreeState", "gitVersion")
        },
    )
    for group in GROUPS:
        found = server.ask("GET", f"/apis/{group}").json
        yield f"/apis/{group}", [version["version"] for version in found["versions"]]
        for version in found["versions"]:
            path = f"/apis/{group}/{version['version']}"
            resources = server.ask("GET", path).json["resources"]
            yield path, {resource["name"]: _without_hash(resource) for resource in resources}


def _without_hash(resource: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resource.items() if name != "storageVersionHash"}


def differences(before: Said, after: Said) -> Iterator[Difference]:
    """Yield what one version says otherwise than the other, by topic and name."""
    for topic, old in before.items():
        new = after[topic]
        for name in [*old, *(name for name in new if name not in old)]:
            if name not in new:
                yield Difference(topic, name, [_line("removed", old[name])])
            elif name not in old:
                yield Difference(topic, name, [_line("new", new[name])])
            elif isinstance(old[name], str) and old[name] != new[name]:
                yield Difference(topic, name, [f"{old[name]} → {new[name]}"])
            elif lines := changes(old[name], new[name]):
                yield Difference(topic, name, lines)


def _line(what: str, said: Any) -> str:
    return f"{what}: {shown(said)}" if said else what
