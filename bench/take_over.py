"""`python -m bench.take_over`: kube-scheduler and kube-controller-manager at work in `resource.k8s.io`, kube-apiserver's own and Sluice's.

So many claims, each with a pod that wants it, are created at once on nodes that have just as many devices: the scheduler allocates,
reserves and binds. Then the pods are deleted, and the controller releases the claims. Both clusters are measured in one run, one after
the other. Neither has kubelets. Both components may ask as often as they like: else their own bounds (50 and 20 a second) were measured.
A second line says how much CPU each process takes for a claim, from its creation to its binding.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import accounting, servers
from tests.e2e import workloads
from tests.e2e.controlplane.bed import DRA_GROUP, Bed
from tests.e2e.controlplane.connection import Connection, Stream
from tests.e2e.controlplane.plane import ControlPlane, until

CLIENTS = 8
HURRY = ("--kube-api-qps=5000", "--kube-api-burst=5000")
SECONDS = 900.0
CLAIMS = f"{workloads.V1}/namespaces/default/resourceclaims"
PODS = f"{workloads.CORE}/namespaces/default/pods"

Object = dict[str, Any]


@dataclass
class Cluster:
    """A running cluster: how to ask its kube-apiserver, and the server that answers for claims. And its processes."""

    name: str
    connect: Callable[[], Connection]
    server: Callable[[], Connection]
    processes: accounting.Processes


@dataclass
class Seen:
    """The events that a watch of all claims has received, and when."""

    created: dict[str, float] = field(default_factory=dict)
    allocated: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def follow(self, admin: Connection, at: str) -> None:
        """Until its end. A server may end a watch whose client was slow for a moment, and goes on where it was asked to."""
        while not self.ended.is_set():
            target = f"{CLAIMS}?watch=1&timeoutSeconds=3600&resourceVersion={at}"
            with contextlib.suppress(OSError, AssertionError), Stream(admin, target, seconds=1.0) as stream:
                while True:
                    event = stream.next()
                    at = event["object"]["metadata"]["resourceVersion"]
                    self.take(event, time.perf_counter())

    def take(self, event: Object, now: float) -> None:
        claim = event["object"]
        name = claim["metadata"]["name"]
        if event["type"] == "ADDED":
            self.created.setdefault(name, now)
        if claim.get("status", {}).get("allocation"):
            self.allocated.setdefault(name, now)
        elif name in self.allocated:
            self.released.setdefault(name, now)


@contextlib.contextmanager
def built_in(folder: Path) -> Iterator[Cluster]:
    with ControlPlane(folder, controllers=True, scheduler=True, durable=True, client_flags=HURRY) as plane:
        plane.start_clients()
        yield Cluster("kube-apiserver + etcd", plane.connect, plane.connect, servers.plane_processes(plane))


@contextlib.contextmanager
def sluice(folder: Path) -> Iterator[Cluster]:
    with Bed(folder, group=DRA_GROUP, controllers=True, scheduler=True, durable=True, client_flags=HURRY) as bed:
        straight = bed.straight(bed.admin)
        yield Cluster("Sluice", bed.connect, lambda: bed.connect(straight), servers.bed_processes(bed))


def measured(cluster: Cluster, *, nodes: int, devices: int) -> str:
    claims = nodes * devices
    with cluster.connect() as admin:
        until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready")
        for number in range(nodes):
            workloads.node(admin, f"node-{number}")
            workloads.devices(admin, f"node-{number}", count=devices)
        seen = Seen()
        with cluster.connect() as watching:
            at = admin.ask("GET", CLAIMS).json["metadata"]["resourceVersion"]
            follower = threading.Thread(target=seen.follow, args=[watching, at])
            follower.start()
            try:
                began, before = time.perf_counter(), _cpu(cluster)
                _everywhere(cluster, claims, _wanted)
                until(lambda: len(seen.allocated) == claims, "every claim is allocated", seconds=SECONDS)
                allocated, after = time.perf_counter() - began, _cpu(cluster)
                began = time.perf_counter()
                _everywhere(cluster, claims, _unwanted)
                until(lambda: len(seen.released) == claims, "every claim is released", seconds=SECONDS)
                released = time.perf_counter() - began
            finally:
                seen.ended.set()
                follower.join()
    took = sorted(at - seen.created[name] for name, at in seen.allocated.items())
    p50, p99 = (took[min(len(took) - 1, int(len(took) * part))] for part in (0.5, 0.99))
    costs = {name: 1000 * (after[name] - before[name]) / claims for name in after}
    shares = ", ".join(f"{name} {cost:.1f}" for name, cost in sorted(costs.items(), key=lambda one: -one[1]))
    return (
        f"{cluster.name}: {claims} claims allocated in {allocated:.1f} s ({claims / allocated:.0f}/s), "
        f"from created to allocated p50 {p50:.2f} s, p99 {p99:.2f} s; released in {released:.1f} s; {_conflicts(cluster)} conflicts\n"
        f"  CPU ms for a claim that is allocated: {sum(costs.values()):.1f} ({shares})"
    )


def _cpu(cluster: Cluster) -> dict[str, float]:
    return {name: accounting.cpu_seconds(pids) for name, pids in cluster.processes.items()}


def _everywhere(cluster: Cluster, count: int, work: Callable[[Connection, int], None]) -> None:
    numbers = itertools.count()

    def some() -> None:
        with cluster.connect() as admin:
            while (number := next(numbers)) < count:
                work(admin, number)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(some) for _ in range(CLIENTS)]:
            done.result()


def _wanted(admin: Connection, number: int) -> None:
    workloads.made(admin, CLAIMS, workloads.claim(f"c{number}"))
    workloads.pod(admin, f"p{number}", claim=f"c{number}")


def _unwanted(admin: Connection, number: int) -> None:
    assert admin.ask("DELETE", f"{PODS}/p{number}?gracePeriodSeconds=0").status == 200


def _conflicts(cluster: Cluster) -> int:
    """Writes of claims that were answered 409."""
    with cluster.server() as server:
        lines = server.ask("GET", "/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("apiserver_request_total{")]
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in counted
        if 'code="409"' in line and 'resource="resourceclaims"' in line
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--devices", type=int, default=8, help="devices of each node")
    words = parser.parse_args()
    for place in (built_in, sluice):
        with tempfile.TemporaryDirectory() as folder, place(Path(folder)) as cluster:
            print(measured(cluster, nodes=words.nodes, devices=words.devices), flush=True)


if __name__ == "__main__":
    main()
