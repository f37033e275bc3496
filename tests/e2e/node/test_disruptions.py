"""Disruptions of a deployment with a store on a volume: planned ones cost nothing, and crashes lose no acknowledged write."""

from __future__ import annotations

import pathlib
import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import objects
from tests.e2e.controlplane.bed import NAMESPACE, SERVICE
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.plane import until
from tests.e2e.load import INFORMERS, Outage, under_load
from tests.e2e.node.deployment import STORE, Deployment

Tell = Callable[[str], None]
RESOURCE = f"deviceclasses.v1.{objects.GROUP}"


@pytest.fixture(scope="module")
def pair(durable: Deployment) -> Deployment:
    """Two servers, as `overlays/ha` has them. Tests of a pair stand before those of a single one."""
    durable.scale(2)
    return durable


@pytest.fixture(scope="module")
def single(durable: Deployment) -> Deployment:
    """One server, as `overlays/dev` has it, and no other that is still going."""
    durable.scale(1)
    return durable


@pytest.fixture
def informers(durable: Deployment, tmp_path: pathlib.Path) -> Iterator[Informers]:
    with Informers(durable.node.admin, RESOURCE, count=INFORMERS, log=tmp_path / "informers.log") as informers:
        informers.until_synced()
        yield informers


def evict(deployment: Deployment, pod: str) -> int:
    """The answer's status."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    with deployment.node.connect() as admin:
        return admin.ask("POST", path, eviction).status


def test_a_rollout_restart_costs_no_request_and_no_relist(
    durable: Deployment, tmp_path: pathlib.Path, tell: Tell
) -> None:
    def restart() -> None:
        [before] = durable.names()
        durable.kubectl("rollout", "restart", f"deployment/{SERVICE}")
        durable.rolled_out(f"deployment/{SERVICE}")
        durable.until_gone(before)

    tell(under_load(durable.node, tmp_path, restart))


def test_eviction_costs_no_request_and_no_relist_and_a_second_one_waits(
    pair: Deployment, tmp_path: pathlib.Path, tell: Tell
) -> None:
    def evict_both() -> None:
        first, second = pair.names()
        assert evict(pair, first) == 201
        assert evict(pair, second) == 429
        pair.until_gone(first)
        until(lambda: pair.ready() == 2, "another one has come")

    tell(under_load(pair.node, tmp_path, evict_both, ended=0))


@pytest.mark.parametrize("count", [1, 2])
def test_servers_that_are_killed_lose_nothing_that_was_acknowledged(
    pair: Deployment, informers: Informers, count: int, tell: Tell
) -> None:
    """Clients with a connection to one of them have to connect again; the test prints how many."""
    killed = pair.names()[:count]
    with Outage(pair.node, f"servers-{count}") as outage:
        asked, listed = len(informers.requests()), len(informers.lists())
        for pod in killed:
            pair.node.kill(NAMESPACE, pod, SERVICE)
        until(lambda: pair.restarts(killed) >= count, "the kubelet starts them again")
        until(lambda: pair.ready() == 2, "all are ready again")
        outage.until_written(50)
    until_all_is_known(informers, outage)
    requests, lists = len(informers.requests()) - asked, len(informers.lists()) - listed
    tell(f"{count} of 2 servers killed: {outage}; {requests} requests and {lists} lists of {INFORMERS} informers")
    assert outage.lost() == []


def test_scaling_to_three_and_down_to_one_costs_no_request_and_no_relist(
    pair: Deployment, tmp_path: pathlib.Path, tell: Tell
) -> None:
    def scale() -> None:
        pair.scale(3)
        pair.scale(1)

    tell(under_load(pair.node, tmp_path, scale, ended=0))


def test_a_renewed_certificate_is_served_without_a_restart(single: Deployment, tmp_path: pathlib.Path) -> None:
    def presented() -> str:
        address = single.pods()[0]["status"]["podIP"]
        return single.node.enter("openssl", "s_client", "-connect", f"{address}:10250", stdin="").stdout

    def pem(text: str) -> bytes:
        start, end = text.index("-----BEGIN"), text.index("-----END CERTIFICATE-----")
        return ssl.PEM_cert_to_DER_cert(text[start:end] + "-----END CERTIFICATE-----\n")

    def renew() -> None:
        single.make_certs()
        single.apply("overlays/dev")
        renewed = pem((single.folder / "certs" / "out" / "tls.crt").read_text())
        until(lambda: pem(presented()) == renewed, "the renewed certificate is served")

    before = single.names()
    under_load(single.node, tmp_path, renew, ended=0)
    assert single.names() == before


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_a_store_that_goes_and_comes_back_loses_nothing_and_ends_no_watch(
    single: Deployment, informers: Informers, how: str, tell: Tell
) -> None:
    [pod] = single.names("store")
    with Outage(single.node, f"store-{how}") as outage:
        asked = len(informers.requests())
        if how == "deleted":
            single.kubectl("delete", "pod", pod, "--wait")
        else:
            single.node.kill(NAMESPACE, pod, "valkey")
        outage.until_written(50)
        until(lambda: outage.silence > 0.3, "the store was missed", seconds=30)
        outage.until_written(50)
    until_all_is_known(informers, outage)
    tell(f"store {how}: {outage}, {len(informers.requests()) - asked} watches opened again")
    assert outage.lost() == []
    assert len(informers.requests()) == asked
    single.rolled_out(f"statefulset/{STORE}")


def test_a_node_is_drained_and_all_is_there_when_it_comes_back(
    single: Deployment, informers: Informers, tell: Tell
) -> None:
    with Outage(single.node, "drain") as outage:
        single.node.kubectl("drain", single.node.name, "--delete-emptydir-data", "--ignore-daemonsets")
        assert single.ready() == 0
        single.node.kubectl("uncordon", single.node.name)
        single.rolled_out(f"statefulset/{STORE}")
        single.rolled_out(f"deployment/{SERVICE}")
        single.until_available()
        outage.until_written(50)
    until_all_is_known(informers, outage)
    tell(f"drained: {outage}")
    assert outage.lost() == []


def test_it_is_removed_in_seconds(durable: Deployment, tell: Tell) -> None:
    """As manifests/README.md does it. A namespace that was deleted together with its pods would take a minute and a half."""
    started = time.monotonic()
    durable.remove("dev")
    tell(f"removed after {time.monotonic() - started:.0f} s")
    assert durable.node.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found").stdout == ""


def until_all_is_known(informers: Informers, outage: Outage) -> None:
    """Each informer has received every acknowledged object, as it was acknowledged."""
    wanted = {("add", name, version) for name, (_, version) in outage.acknowledged.items()}
    informers.until(
        lambda: all(wanted <= set(informers.events(number)) for number in range(INFORMERS)),
        "every informer knows what was acknowledged",
    )
