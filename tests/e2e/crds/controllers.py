"""Controllers of public projects, built from their Go modules and started as their users start them, on kinds that Sluice serves."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import Bed
from tests.fixtures.processes import Process

GO = pathlib.Path(__file__).resolve().parent / "go"


@dataclass(frozen=True)
class Project:
    """Programs of one project, with the files that it ships for its users."""

    module: binaries.Module
    definitions: tuple[str, str]
    """The Go module and its folder with the CustomResourceDefinitions."""
    groups: Mapping[str, Sequence[str]]
    """The API groups of the definitions with their served versions, the preferred one first."""
    installed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The files that are applied before the programs start, by Go module: service accounts and RBAC."""

    @property
    def crds(self) -> pathlib.Path:
        """The folder with the CustomResourceDefinitions."""
        return self._source(self.definitions[0]) / self.definitions[1]

    def install(self, bed: Bed) -> None:
        """Apply the service accounts and RBAC of the project."""
        for module, files in self.installed.items():
            for file in files:
                bed.kubectl("apply", "--server-side", "-f", str(self._source(module) / file))

    def start(self, name: str, bed: Bed, *arguments: str, environ: Mapping[str, str] | None = None) -> Process:
        """Start a program, with its log in the folder of the cluster."""
        return Process(
            [binaries.binary(name, self.module), *arguments], log=bed.folder / f"{name}.log", environ=environ
        )

    def _source(self, module: str) -> pathlib.Path:
        return binaries.source(self.module, module)


_SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter/v8"
SNAPSHOTS = Project(
    binaries.Module(
        GO / "snapshot-controller",
        {
            "snapshot-controller": f"{_SNAPSHOTTER}/cmd/snapshot-controller",
            "csi-snapshotter": f"{_SNAPSHOTTER}/cmd/csi-snapshotter",
            "driver": "./driver",
        },
        takes="about two minutes on two cores",
    ),
    definitions=("github.com/kubernetes-csi/external-snapshotter/client/v8", "config/crd"),
    groups={"snapshot.storage.k8s.io": ("v1",), "groupsnapshot.storage.k8s.io": ("v1", "v1beta2", "v1beta1")},
    installed={
        _SNAPSHOTTER: (
            "deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml",
            "deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml",
        )
    },
)
"""Snapshots of CSI volumes: the controller of a cluster, the sidecar of a driver, and a driver of ours that keeps nothing."""

_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
PROMETHEUS = Project(
    binaries.Module(
        GO / "prometheus-operator",
        {"prometheus-operator": f"{_OPERATOR}/cmd/operator"},
        takes="about two minutes on two cores",
        outputs={"prometheus-operator": "operator"},
    ),
    definitions=(_OPERATOR, "example/prometheus-operator-crd"),
    groups={"monitoring.coreos.com": ("v1", "v1alpha1")},
    installed={
        _OPERATOR: tuple(
            f"example/rbac/prometheus-operator/prometheus-operator-{kind}.yaml"
            for kind in ("service-account", "cluster-role", "cluster-role-binding")
        )
    },
)
"""The operator of Prometheus and Alertmanager."""
