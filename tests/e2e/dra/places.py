"""Where the specs run: with the group of kube-apiserver, or with Sluice in its place; without a kubelet, or on a real node."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import V1_37, since, until
from tests.e2e.controlplane import plane as planes
from tests.e2e.controlplane.bed import DRA_GROUP, SERVED, Bed
from tests.e2e.controlplane.plane import ControlPlane
from tests.e2e.dra import images
from tests.e2e.dra.kubelets import Kubelets
from tests.e2e.node.cluster import Node
from tests.e2e.node.deployment import Deployment, serving
from tests.e2e.node.isolation import KUBELET
from tests.e2e.workloads import RELEASE, RULES

BUILT_IN, SLUICE = "built-in", "sluice"
NODES = ("node-1", "node-2", "node-3")
FLAGS = ("--allow-privileged=true",)
"""The specs' driver asks for it, though nothing runs here."""
ON_BY_DEFAULT = "!/Feature:/ && !/^Alpha$/"
"""Labels of specs that need no kubelet."""
OF_A_KUBELET = "!/Feature:OffByDefault/ && !/^Alpha$/"
OF_RULES = "/^FeatureGate:DRADeviceTaintRules$/ && !/^Alpha$/"
"""Those are off by default until 1.37."""
OF_POOLS = "/^FeatureGate:DRAResourcePoolStatus$/"
ALPHA = "v1alpha3"
"""The version with ResourcePoolStatusRequests."""
POOL_GATES = ("DRAResourcePoolStatus", since(V1_37, "DRAPartitionableDevicesType"))
POOLS = f"--feature-gates={','.join(f'{gate}=true' for gate in releases.at(RELEASE, POOL_GATES))}"
OLDER = SERVED[DRA_GROUP][1:]


@dataclass(frozen=True)
class Round:
    """A selection of specs, by their labels, and the preparation that they need."""

    labels: str
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Place:
    plane: ControlPlane
    rounds: Sequence[Round]
    words: Sequence[str] = ()
    """For the program of the specs."""

    def until_ready(self) -> None:
        """Until pods can be started. (A new node is tainted for a moment after it says that it is ready.)"""
        with self.plane.connect() as admin:
            planes.until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready")
            planes.until(
                lambda: not any(node["spec"].get("taints") for node in admin.ask("GET", "/api/v1/nodes").json["items"]),
                "the nodes are ready",
            )


Places = Mapping[str, Callable[[pathlib.Path], contextlib.AbstractContextManager[Place]]]


# Without a kubelet


@contextlib.contextmanager
def _built_in(folder: pathlib.Path) -> Iterator[Place]:
    flags = (*FLAGS, serving(ALPHA))
    with ControlPlane(folder, controllers=True, scheduler=True, flags=flags) as plane:
        plane.start_clients()
        with _with_kubelets(plane, lambda: _start_with_pools(plane)) as place:
            yield place


@contextlib.contextmanager
def _sluice(folder: pathlib.Path) -> Iterator[Place]:
    versions = (*SERVED[DRA_GROUP], ALPHA)
    bed = Bed(
        folder,
        group=DRA_GROUP,
        versions=versions,
        controllers=True,
        scheduler=True,
        flags=FLAGS,
        serve_flags=[serving(ALPHA)],
    )

    def with_pools() -> None:
        bed.serve_flags = [*bed.serve_flags, POOLS]
        for replica in bed.replicas:
            replica.replace()
        _start_with_pools(bed.plane)

    with bed, _with_kubelets(bed.plane, with_pools) as place:
        yield place


def _start_with_pools(plane: ControlPlane) -> None:
    plane.restart(*plane.flags, POOLS, client_flags=[POOLS])


@contextlib.contextmanager
def _with_kubelets(plane: ControlPlane, with_pools: Callable[[], None]) -> Iterator[Place]:
    with Kubelets(plane, NODES):
        yield Place(plane, [Round(ON_BY_DEFAULT), Round(OF_POOLS, with_pools)])


PLACES: Places = {BUILT_IN: _built_in, SLUICE: _sluice}


# On a node


@contextlib.contextmanager
def _built_in_on_a_node(folder: pathlib.Path) -> Iterator[Place]:
    flag = serving(*OLDER)
    with Node(folder, flags=[flag]) as node:
        yield _on(node, flag)


@contextlib.contextmanager
def _sluice_on_a_node(folder: pathlib.Path) -> Iterator[Place]:
    flag = serving(v1=False)
    with Node(folder) as node:
        deployment = Deployment(node, folder / "deployment")
        deployment.load_images()
        deployment.take_over("test", flag)
        for version in OLDER:
            deployment.register(version)
        yield _on(node, flag)


def _on(node: Node, flag: str) -> Place:
    """`flag` says what kube-apiserver serves of the group itself."""
    for archive in images.archives():
        node.load_image(archive)

    def with_rules() -> None:
        node.plane.restart(flag, *RULES.flags, client_flags=RULES.flags)

    rounds = (Round(OF_A_KUBELET), until(V1_37, Round(OF_RULES, with_rules)))
    words = [f"--kubelet-root-dir={KUBELET}"]
    return Place(node.plane, releases.at(RELEASE, rounds), words)


ON_A_NODE: Places = {BUILT_IN: _built_in_on_a_node, SLUICE: _sluice_on_a_node}
