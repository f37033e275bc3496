"""kubernetes-sigs/dra-example-driver as its project releases it, on a node: its program in an image, installed with its own Helm chart."""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess
from typing import Any

from tests.e2e import workloads
from tests.e2e.controlplane import binaries
from tests.e2e.node import images, programs
from tests.e2e.node.cluster import Node
from tests.e2e.node.deployment import PATIENCE
from tests.e2e.node.isolation import KUBELET

MODULE = "sigs.k8s.io/dra-example-driver"
PROGRAM = "dra-example-kubeletplugin"
NAME = "gpu.example.com"
"""Its own, and its device class's."""
RELEASE = NAMESPACE = "dra-example-driver"
ACCOUNT = f"{RELEASE}-service-account"
DAEMON = f"daemonset/{RELEASE}-kubeletplugin"
CONTAINER = "plugin"
IMAGE = "registry.k8s.io/dra-example-driver/dra-example-driver"
DEVICES = 8
VALUES = {
    "gpuDeviceStatus": "true",
    "kubeletPlugin.numDevices": str(DEVICES),
    "kubeletPlugin.kubeletRegistrarDirectoryPath": str(KUBELET / "plugins_registry"),
    "kubeletPlugin.kubeletPluginsDirectoryPath": str(KUBELET / "plugins"),
}
# Only the part that runs on nodes; the release's image is built from a base that a registry would have to bring.
BUILD = f"""\
FROM scratch
ENV PATH=/usr/bin
COPY {PROGRAM} /usr/bin/
"""

Object = dict[str, Any]


class Driver:
    """Imaginary GPUs, which show in a container as environment variables (CDI)."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def install(self) -> None:
        """Returns when its pod is ready."""
        image = f"{IMAGE}:{version()}"
        self.node.load_image(images.image(image, BUILD, {PROGRAM: programs.program(PROGRAM).read_bytes()}))
        chart = binaries.source(programs.DRIVER, MODULE) / "deployments" / "helm" / "dra-example-driver"
        values = {**VALUES, "image.tag": version()}
        self._helm("install", RELEASE, chart, "--create-namespace", *(f"--set={k}={v}" for k, v in values.items()))
        self.rolled_out()

    def uninstall(self) -> None:
        self._helm("uninstall", RELEASE, "--wait")

    def rolled_out(self) -> None:
        self.kubectl("rollout", "status", DAEMON, PATIENCE)

    def kubectl(self, *words: str) -> str:
        """In its namespace."""
        return self.node.kubectl("--namespace", NAMESPACE, *words).stdout

    def pod(self) -> Object:
        """The one that is not going."""
        with self.node.connect() as admin:
            items = admin.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods").json["items"]
        [found] = [item for item in items if "deletionTimestamp" not in item["metadata"]]
        return dict(found)

    def restarts(self) -> int:
        return int(self.pod()["status"]["containerStatuses"][0]["restartCount"])

    def slices(self) -> list[Object]:
        """Slices that the driver has published."""
        with self.node.connect() as admin:
            items = admin.ask("GET", f"{workloads.V1}/resourceslices").json["items"]
        return [item for item in items if item["spec"]["driver"] == NAME]

    def user(self, *, pod: str = "") -> pathlib.Path:
        """The kubeconfig of its service account, with the token of a pod, which says on which node it is, or with one of no pod."""
        bound = (f"--bound-object-name={pod}", "--bound-object-kind=Pod") if pod else ()
        token = self.kubectl("create", "token", ACCOUNT, *bound).strip()
        return self.node.plane.token_kubeconfig(f"{ACCOUNT}.{pod or 'unbound'}", token)

    def _helm(self, command: str, *words: str | pathlib.Path) -> None:
        cluster = (f"--kubeconfig={self.node.admin}", f"--namespace={NAMESPACE}")
        done = subprocess.run(
            [programs.program("helm"), command, *words, *cluster], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def version() -> str:
    """As go.mod names it, and its chart the image."""
    [pinned] = re.findall(rf"{re.escape(MODULE)} (v\S+)", (programs.DRIVER.folder / "go.mod").read_text())
    return str(pinned)
