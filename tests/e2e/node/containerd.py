"""The container runtime: containerd with runc, and the network of pods."""

from __future__ import annotations

import json
import pathlib

from tests.e2e.node import images
from tests.e2e.node.isolation import STATE, Daemon, Namespaces
from tests.e2e.node.machine import CNI
from tests.e2e.node.programs import program

SOCKET = "/run/containerd/containerd.sock"
PODS = "10.244.0.0/24"
CDI = "/var/run/cdi"
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
        config.write_text(_config())
        self._daemon = self._namespaces.daemon("containerd", [program("containerd"), f"--config={config}"])
        self._daemon.until(self._answers, "containerd answers")

    def stop(self, signal: str = "TERM") -> None:
        """Containers go on."""
        assert self._daemon is not None
        self._daemon.stop(signal)

    def load(self, archive: pathlib.Path) -> None:
        self.ctr("images", "import", archive)

    def ctr(self, *words: str | pathlib.Path) -> str:
        return self._namespaces.run(program("ctr"), "--namespace=k8s.io", f"--address={SOCKET}", *words).stdout

    def _answers(self) -> bool:
        return self._namespaces.run(program("ctr"), f"--address={SOCKET}", "version", check=False).returncode == 0


def _config() -> str:
    return f"""\
version = 3
root = "{STATE}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{STATE}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  # Lower values than its parent's need a capability that root may lack in a virtual machine.
  restrict_oom_score_adj = true
  disable_apparmor = true
  # Where drivers of devices say what a container gets; upstream's other folder is the machine's.
  cdi_spec_dirs = ["{CDI}"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{program("containerd-shim-runc-v2")}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI}"]
    conf_dir = "{STATE}/cni"
"""
