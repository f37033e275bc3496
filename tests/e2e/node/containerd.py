"""The container runtime: containerd with runc, and the network of pods."""

from __future__ import annotations

import json
import pathlib

from tests.e2e.node import images
from tests.e2e.node.isolation import STATE, Daemon, Namespaces
from tests.e2e.node.machine import CNI

SOCKET = "/run/containerd/containerd.sock"
PODS = "10.244.0.0/24"
CONFIG = f"""\
version = 2
root = "{STATE}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{STATE}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  # Lower values than its parent's need a capability that root may lack in a virtual machine.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI}"
    conf_dir = "{STATE}/cni"
"""
# A wire of its own for each pod, and no bridge: on one, answers of a Service's pod to another pod would pass by the address translation.
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}, "backend": "nftables"},
    ],
}


class Containerd:
    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._daemon: Daemon | None = None

    def start(self) -> None:
        folder = STATE / "cni"
        folder.mkdir(exist_ok=True)
        (folder / "10-pods.conflist").write_text(json.dumps(NETWORK))
        config = STATE / "containerd.toml"
        config.write_text(CONFIG)
        self._daemon = self._namespaces.daemon("containerd", ["containerd", f"--config={config}"])
        self._daemon.until(self._answers, "containerd answers")

    def stop(self, signal: str = "TERM") -> None:
        """Containers go on."""
        assert self._daemon is not None
        self._daemon.stop(signal)

    def load(self, archive: pathlib.Path) -> None:
        self.ctr("images", "import", archive)

    def ctr(self, *words: str | pathlib.Path) -> str:
        return self._namespaces.run("ctr", "--namespace=k8s.io", f"--address={SOCKET}", *words).stdout

    def _answers(self) -> bool:
        return self._namespaces.run("ctr", f"--address={SOCKET}", "version", check=False).returncode == 0
