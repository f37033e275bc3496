"""A cluster of one node: control plane, container runtime, kubelet, Services, DNS. Images come from archives, never from a registry.

with Node(folder) as node:
    node.load_image(images.sluice())
    node.kubectl("apply", "-k", ...)
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any

import yaml

from tests.e2e.controlplane import binaries, kubectl
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane, until
from tests.e2e.node import coredns, images, isolation, machine
from tests.e2e.node.containerd import Containerd
from tests.e2e.node.isolation import NAME, NODE, STATE, Namespaces
from tests.e2e.node.kubelet import Kubelet, KubeProxy
from tests.e2e.node.programs import program

WAIT = "SLUICE_NODE_WAIT"
"""How many seconds to wait for another node's end, where there is one."""
RUNS = "SLUICE_E2E_NODE"
"""Says that tests which need a node are wanted; without it nobody collects them."""
VOLUMES = 6
"""One for the chart's store, one for that of the overlay `dev`, three for a store on three nodes. Nothing empties them for another."""


class Node:
    """Control plane and node. It is the face of `Cluster` (tests/e2e/controlplane/external.py), for tests that need nodes as well."""

    def __init__(self, folder: pathlib.Path, *, flags: Sequence[str] = ()) -> None:
        """`folder` takes certificates, kubeconfigs and logs; `flags` are for kube-apiserver."""
        self.folder = folder
        self.name = NAME
        self._flags = flags
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Node:
        with contextlib.ExitStack() as closing:
            machine.check(STATE, binaries.cache_folder())
            closing.enter_context(isolation.alone(wait=float(os.environ.get(WAIT) or 0)))
            # Before anything runs: the first time it takes minutes.
            pause = images.pause()
            for name in ("containerd", "coredns"):
                program(name)
            self.folder.mkdir(parents=True, exist_ok=True)
            self.namespaces = closing.enter_context(Namespaces(self.folder))
            self.plane = ControlPlane(
                self.folder / "plane",
                flags=self._flags,
                controllers=True,
                scheduler=True,
                address=NODE,
                network=self.namespaces.network,
            )
            closing.callback(self.plane.stop)
            # First, or kube-apiserver would wait for the end of the kubelet's watches.
            closing.callback(self.namespaces.kill)
            self.containerd = Containerd(self.namespaces)
            self.containerd.start()
            self.containerd.load(pause)
            self._start_cluster()
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _start_cluster(self) -> None:
        self.plane.start()
        self.plane.start_clients()
        self.kubelet = Kubelet(self.namespaces, self.plane)
        self.kubelet.start()
        KubeProxy(self.namespaces, self.plane).start()
        self.apply([*coredns.OBJECTS, *_volumes()])
        coredns.start(self.namespaces, self.plane)
        self.kubelet.until(self.is_ready, "the node is ready")
        until(lambda: coredns.answers(self.namespaces), "DNS answers")

    def is_ready(self) -> bool:
        with self.connect() as admin:
            reply = admin.ask("GET", f"/api/v1/nodes/{NAME}")
        conditions = reply.json.get("status", {}).get("conditions", []) if reply.status == 200 else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    # As in `Cluster`

    @property
    def admin(self) -> pathlib.Path:
        """The administrator's kubeconfig, which works outside of the namespaces too."""
        return self.plane.admin

    def user(self, name: str, groups: Sequence[str] = ()) -> pathlib.Path:
        return self.plane.kubeconfig(name, groups)

    def service_account(self, namespace: str, name: str) -> pathlib.Path:
        return self.plane.service_account(namespace, name)

    def connect(self, kubeconfig: pathlib.Path | None = None) -> Connection:
        return self.plane.connect(kubeconfig)

    def kubectl(
        self, *words: str, kubeconfig: pathlib.Path | None = None, stdin: str = "", check: bool = True, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return kubectl.run(
            *words, kubeconfig=kubeconfig or self.admin, home=self.folder / "home", stdin=stdin, check=check, **environ
        )

    # A node's own

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def load_image(self, archive: pathlib.Path) -> None:
        """As `docker save` or `buildah push docker-archive:` write it, under the name that it was given there."""
        self.containerd.load(archive)

    def enter(
        self, *words: str | pathlib.Path, stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the node, as root."""
        return self.namespaces.run(*words, stdin=stdin, check=check)

    def kill(self, namespace: str, pod: str, container: str) -> None:
        """A container's first process, without a word to anybody."""
        self.containerd.ctr("tasks", "kill", "--signal=SIGKILL", self._container(namespace, pod, container))

    def process(self, namespace: str, pod: str, container: str) -> int:
        """The number that a container's first process has on the node."""
        mine = self._container(namespace, pod, container)
        tasks = [line.split() for line in self.containerd.ctr("tasks", "list").splitlines()[1:]]
        [number] = [task[1] for task in tasks if task[0] == mine]
        return int(number)

    def _container(self, namespace: str, pod: str, container: str) -> str:
        with self.connect() as admin:
            status = admin.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}").json["status"]
        [running] = [item["containerID"] for item in status["containerStatuses"] if item["name"] == container]
        return str(running).removeprefix("containerd://")


def _volumes() -> list[dict[str, Any]]:
    """Volumes that a cluster's default StorageClass would provide: some folders of the node."""
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "standard",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    ]
    for number in range(VOLUMES):
        folder = STATE / "volumes" / str(number)
        folder.mkdir(parents=True)
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"node-{number}"},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "standard",
                    "local": {"path": str(folder)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                },
            }
        )
    return found
