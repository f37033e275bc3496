"""Disruptions of the overlay `ha-store`: three pods with a Valkey and a Sentinel each, here on one node, and two servers.

Planned ones and crashes lose no acknowledged write and end no watch. Each prints for how long no write was acknowledged.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import objects
from tests.e2e.controlplane.bed import NAMESPACE, SERVICE
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.plane import until
from tests.e2e.load import INFORMERS, Outage
from tests.e2e.node.deployment import ONE_NODE, STORE, Deployment
from tests.e2e.node.test_disruptions import until_all_is_known

Tell = Callable[[str], None]
CONTAINERS = ("valkey", "sentinel")
SERVERS = 2
DOWN_AFTER, FAILOVER_TIMEOUT = 5.0, 30.0
"""Seconds, as store.sh configures the sentinels. After the second one they try another failover."""
PATIENCE = "--timeout=5m"


@pytest.fixture(scope="module")
def deployed(sluice: Deployment) -> Iterator[Deployment]:
    sluice.kubectl("delete", "job,deployment,statefulset", "--all", "--cascade=foreground")
    sluice.make_certs(store_nodes=3)
    sluice.write_one_node()
    sluice.deploy(ONE_NODE)
    yield sluice
    sluice.remove(ONE_NODE)
    sluice.make_certs()


@pytest.fixture
def informers(deployed: Deployment, tmp_path: pathlib.Path) -> Iterator[Informers]:
    deployed.until_only(SERVERS)
    resource = f"deviceclasses.v1.{objects.GROUP}"
    with Informers(deployed.node.admin, resource, count=INFORMERS, log=tmp_path / "informers.log") as informers:
        informers.until_synced()
        yield informers


def in_store(deployment: Deployment, pod: str, *words: str) -> str:
    """Run valkey-cli in a pod of the store."""
    said = deployment.kubectl("exec", pod, "--container=sentinel", "--", "valkey-cli", "--raw", *words, check=False)
    return said.stdout


def primary(deployment: Deployment) -> str:
    """Return the pod that two sentinels name as the primary; an empty string while they do not agree."""
    services = deployment.kubectl(
        "get", "services", "--output=jsonpath={range .items[*]}{.spec.clusterIP} {.metadata.name}{'\\n'}{end}"
    ).stdout
    pods = dict(line.split() for line in services.splitlines())
    told = [
        in_store(deployment, f"{STORE}-{number}", "-p", "26379", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", STORE).split()
        for number in range(3)
    ]
    named = [pods[words[0]] for words in told if words]
    return next((pod for pod in named if named.count(pod) >= 2), "")


def restart(deployment: Deployment, *what: str) -> None:
    """Restart all pods of these controllers at the same time, each as a rolling update."""
    for name in what:
        deployment.kubectl("rollout", "restart", name)
    for name in what:
        deployment.kubectl("rollout", "status", name, PATIENCE)


def until_in_step(deployment: Deployment) -> None:
    deployment.kubectl("rollout", "status", f"statefulset/{STORE}", PATIENCE)


def test_rolling_restart_of_the_store_loses_nothing_and_ends_no_watch(
    deployed: Deployment, informers: Informers, tell: Tell
) -> None:
    with Outage(deployed.node, "store") as outage:
        asked = len(informers.requests())
        restart(deployed, f"statefulset/{STORE}")
        outage.until_written(50)
    until_all_is_known(informers, outage)
    tell(f"store restarted: {outage}, {len(informers.requests()) - asked} watches opened again")
    assert outage.lost() == []
    assert len(informers.requests()) == asked


def test_rolling_restart_of_store_and_servers_loses_nothing_and_costs_no_relist(
    deployed: Deployment, informers: Informers, tell: Tell
) -> None:
    """The servers end their watches, which informers open again where they were."""
    with Outage(deployed.node, "both") as outage:
        asked, listed = len(informers.requests()), len(informers.lists())
        restart(deployed, f"statefulset/{STORE}", f"deployment/{SERVICE}")
        outage.until_written(50)
    until_all_is_known(informers, outage)
    lists = len(informers.lists()) - listed
    tell(f"both restarted: {outage}, {len(informers.requests()) - asked} watches opened again, {lists} lists")
    assert outage.lost() == []
    assert lists == 0


def test_killed_primary_that_comes_back_loses_nothing_and_ends_no_watch(
    deployed: Deployment, informers: Informers, tell: Tell
) -> None:
    """The kubelet starts it again before the sentinels find it down."""
    until_in_step(deployed)
    old = primary(deployed)
    with Outage(deployed.node, "container") as outage:
        asked = len(informers.requests())
        deployed.node.kill(NAMESPACE, old, "valkey")
        outage.until_written(50)
        until_in_step(deployed)
        outage.until_written(50)
    until_all_is_known(informers, outage)
    tell(f"valkey of the primary killed: {outage}, {len(informers.requests()) - asked} watches opened again")
    assert outage.lost() == []
    assert len(informers.requests()) == asked


def test_writes_go_on_at_a_replica_after_the_pod_of_the_primary_is_killed(
    deployed: Deployment, informers: Informers, tell: Tell
) -> None:
    """Nothing starts the pod again until another one is the primary, as when its machine fails."""
    until_in_step(deployed)
    old, kubelet = primary(deployed), deployed.node.kubelet
    with Outage(deployed.node, "pod") as outage:
        asked = len(informers.requests())
        kubelet.stop("KILL")
        try:
            for container in CONTAINERS:
                deployed.node.kill(NAMESPACE, old, container)
            outage.until_written(50)
            silence = outage.silence
        finally:
            kubelet.start()
        until(lambda: primary(deployed) not in ("", old), "another pod is the primary")
        until_in_step(deployed)
        outage.until_written(50)
    until_all_is_known(informers, outage)
    tell(f"pod of the primary killed: {outage}, {len(informers.requests()) - asked} watches opened again")
    assert outage.lost() == []
    assert len(informers.requests()) == asked
    assert silence < DOWN_AFTER + FAILOVER_TIMEOUT
