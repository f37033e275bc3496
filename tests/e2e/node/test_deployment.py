"""Sluice as the README deploys it, with a store that forgets with its pod."""

from __future__ import annotations

from tests.e2e.controlplane.bed import NAMESPACE, SERVICE
from tests.e2e.node.deployment import Deployment

NO_CAPABILITIES = "0000000000000000"


def test_the_image_runs_read_only_as_65532_with_every_capability_dropped(deployment: Deployment) -> None:
    [pod] = deployment.pods()
    node = deployment.node
    process = f"/proc/{node.process(NAMESPACE, pod['metadata']['name'], SERVICE)}"
    status = dict(line.split(":\t", 1) for line in node.enter("cat", f"{process}/status").stdout.splitlines())
    assert status["Uid"].split() == status["Gid"].split() == ["65532"] * 4
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITIES}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    mounts = [line.split() for line in node.enter("cat", f"{process}/mountinfo").stdout.splitlines()]
    [root] = [mount for mount in mounts if mount[4] == "/"]
    assert root[5].split(",")[0] == "ro"
