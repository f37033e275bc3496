"""Sluice as the README deploys it, with a store that forgets with its pod."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from tests.e2e import objects
from tests.e2e.conftest import EXTERNAL
from tests.e2e.controlplane.bed import NAMESPACE, PROJECT, SERVICE
from tests.e2e.controlplane.plane import until
from tests.e2e.load import CLASSES
from tests.e2e.node.cluster import RUNS
from tests.e2e.node.deployment import STORE, Deployment

PARTS = ("overlays/test", "store-init")
SUITE = [
    f"tests/e2e/test_{name}.py"
    for name in ("controllers", "first_minute", "forged_headers", "identities", "informers", "kubectl_apply", "openapi")
]
NO_CAPABILITIES = "0000000000000000"
REPEATED = {"apiservice.apiregistration.k8s.io", "poddisruptionbudget.policy", "secret"}
"""Kinds that kubectl patches at each apply without a change: selectors of budgets as a whole, and base64, which it breaks into lines."""


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


def test_second_apply_configures_nothing_anew(deployment: Deployment) -> None:
    """Nothing rolls, and what kubectl can compare reads back as it is written."""

    def generations() -> dict[str, int]:
        return {
            f"{item['kind']} {item['metadata']['name']}": item["metadata"]["generation"]
            for part in PARTS
            for item in deployment.objects(part)
            if "generation" in item["metadata"]
        }

    before = generations()
    said = [line for part in PARTS for line in deployment.apply(part).splitlines()]
    configured = {line.partition("/")[0] for line in said if not line.endswith(" unchanged")}
    assert configured <= REPEATED
    assert generations() == before


def test_the_end_to_end_suite_passes_against_it(deployment: Deployment, tell: Callable[[str], None]) -> None:
    """All that it asks of a cluster, through its face to any of them; what starts servers of its own is in `make test`."""
    # Two files at a time: one of them mostly waits for the controllers of Kubernetes.
    two = ["-n", "2", "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *two, *SUITE, "-k", "not dev"]
    environ = {name: value for name, value in os.environ.items() if name != RUNS}
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=environ | {EXTERNAL: str(deployment.node.admin)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    tell(done.stdout.splitlines()[-1])


def test_a_second_store_init_leaves_the_store_alone(deployment: Deployment) -> None:
    with deployment.node.connect() as admin:
        assert admin.ask("POST", CLASSES, objects.device_class("kept")).status == 201
        before = admin.ask("GET", CLASSES).json

        deployment.create_store()

        assert admin.ask("GET", CLASSES).json == before


def test_lost_store_is_reported_and_not_served_until_it_is_created_again(deployment: Deployment) -> None:
    """An emptied store must not look as if everything had been deleted."""
    with deployment.node.connect() as admin:
        assert admin.ask("POST", CLASSES, objects.device_class("to-be-lost")).status == 201
        [store] = deployment.names("store")
        told = deployment.log().count("run `sluice store init`")

        deployment.kubectl("delete", "pod", store, "--wait")
        deployment.rolled_out(f"statefulset/{STORE}")

        until(lambda: deployment.log().count("run `sluice store init`") > told, "what is to be done is told")
        assert admin.ask("GET", CLASSES).status == 503
        assert admin.ask("POST", CLASSES, objects.device_class("refused")).status == 503
        deployment.create_store()
        until(lambda: admin.ask("GET", CLASSES).status == 200, "a new store is served")
        assert admin.ask("GET", CLASSES).json["items"] == []
