"""The kubelet and its settings, and kube-proxy with the pods' way to Services."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import yaml

from tests.e2e.controlplane.plane import ControlPlane
from tests.e2e.node import containerd, coredns
from tests.e2e.node.isolation import KUBELET, NAME, NODE, STATE, Daemon, Namespaces
from tests.e2e.node.programs import program


class Kubelet:
    def __init__(self, namespaces: Namespaces, plane: ControlPlane) -> None:
        self._namespaces = namespaces
        self._plane = plane
        self._daemon: Daemon | None = None

    def start(self) -> None:
        self._daemon = self._namespaces.daemon(
            "kubelet",
            [
                program("kubelet"),
                f"--config={_written('kubelet', self._settings())}",
                f"--kubeconfig={self._plane.kubeconfig(f'system:node:{NAME}', ['system:nodes'])}",
                f"--root-dir={KUBELET}",
                f"--hostname-override={NAME}",
                f"--node-ip={NODE}",
                "--v=2",
            ],
        )

    def until(self, happens: Callable[[], object], what: str) -> None:
        """Waits for what it should bring about."""
        assert self._daemon is not None
        self._daemon.until(happens, what)

    def stop(self, signal: str = "TERM") -> None:
        """Its pods go on."""
        assert self._daemon is not None
        self._daemon.stop(signal)

    def _settings(self) -> dict[str, Any]:
        keys = self._plane.pki
        serving = keys.cluster.serving("kubelet", [NAME, NODE])
        # No name servers of the machine: names that are not the cluster's do not exist.
        resolver = STATE / "resolv.conf"
        resolver.write_text("")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE,
            "tlsCertFile": str(serving.cert),
            "tlsPrivateKeyFile": str(serving.key),
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(keys.cluster.file)}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [coredns.ADDRESS],
            "clusterDomain": coredns.DOMAIN,
            "resolvConf": str(resolver),
            "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{NAME}",
            # Renewed Secrets show in pods this soon.
            "syncFrequency": "3s",
            # Version 1 is what some machines still have.
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(STATE / "logs"),
            "volumePluginDir": str(STATE / "volume-plugins"),
            # The disk is the machine's; how full it is is no matter of the node's, and nobody could pull an image again.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
        }


class KubeProxy:
    def __init__(self, namespaces: Namespaces, plane: ControlPlane) -> None:
        self._namespaces = namespaces
        self._plane = plane

    def start(self) -> None:
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": NAME,
            "clusterCIDR": containerd.PODS,
            "clientConnection": {"kubeconfig": str(self._plane.kubeconfig("system:kube-proxy"))},
            # Limits of the machine, not of the namespace.
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
        self._namespaces.daemon("kube-proxy", [program("kube-proxy"), f"--config={_written('kube-proxy', settings)}"])


def _written(name: str, settings: dict[str, Any]) -> pathlib.Path:
    file = STATE / f"{name}.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file
