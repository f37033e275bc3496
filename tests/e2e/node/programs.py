"""The programs of a node that no Debian package brings, built once into the cache of the control plane's."""

from __future__ import annotations

import pathlib
import sys

from tests.e2e.controlplane import binaries

GO = pathlib.Path(__file__).resolve().parent / "go"
KUBERNETES = binaries.Module(
    GO / "kubernetes",
    {
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        "pause": "./pause",
    },
    takes="one to seven minutes on two cores, depending on how much of the control plane was compiled here",
)
"""Apart from the control plane's module: who only runs `make test` compiles no kubelet."""
COREDNS = binaries.Module(GO / "coredns", {"coredns": "."}, takes="about two minutes on two cores")
"""Apart from Kubernetes: what CoreDNS requires is newer, and would change what Kubernetes is compiled from."""

CONTAINERD = binaries.Module(
    GO / "containerd",
    {
        "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
        "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
    },
    takes="about two minutes on two cores",
)
"""Debian 12 has 1.6, which passes over the devices that a DRA driver gives a container (CDI)."""

DRIVER = binaries.Module(
    GO / "dra-example-driver",
    {"dra-example-kubeletplugin": "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"},
    takes="about a minute on two cores",
)
"""A driver of devices, of the version that go.mod names. Built when it is tested, not before."""

HELM = binaries.Module(GO / "helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, takes="about four minutes on two cores")
"""Built when the chart is tested, not before."""


MODULES = (KUBERNETES, COREDNS, CONTAINERD, DRIVER, HELM)


def program(name: str) -> pathlib.Path:
    """The path of a program of the node or of the control plane."""
    module = next((module for module in MODULES if name in module.packages), binaries.MODULE)
    return binaries.binary(name, module)


def not_built() -> list[str]:
    """Programs that the first run on this machine would have to build."""
    return [name for module in MODULES for name in module.packages if not binaries.is_built(name, module)]


def main() -> int:
    """Builds what is missing; prints where each program is."""
    try:
        for name in (*KUBERNETES.packages, *COREDNS.packages, *CONTAINERD.packages):
            sys.stdout.write(f"{program(name)}\n")
    except binaries.BuildError as e:
        sys.stderr.write(f"{e}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
