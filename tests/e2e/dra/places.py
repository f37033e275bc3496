"""Where the specs run: with the group of kube-apiserver, or with Sluice in its place; without a kubelet, or on a real node."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.e2e.controlplane.bed import DRA_GROUP, SERVED, Bed
from tests.e2e.controlplane.plane import ControlPlane, until
from tests.e2e.dra import images
from tests.e2e.dra.kubelets import Kubelets
from tests.e2e.node.cluster import Node
from tests.e2e.node.deployment import TAKEN_OVER, Deployment
from tests.e2e.node.isolation import STATE

BUILT_IN, SLUICE = "built-in", "sluice"
NODES = ("node-1", "node-2", "node-3")
FLAGS = ("--allow-privileged=true",)
"""The specs' driver asks for it, though nothing runs here."""
ON_BY_DEFAULT = "!/Feature:/ && !/^Alpha$/"
"""Labels of specs that need no kubelet."""
OF_A_KUBELET = "!/Feature:OffByDefault/ && !/^Alpha$/"
OF_RULES = "/^FeatureGate:DRADeviceTaintRules$/ && !/^Alpha$/"
RULES = "--feature-gates=DRADeviceTaintRules=true"
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
            until(lambda: admin.ask("GET", "/readyz").status == 200, "kube-apiserver is ready")
            until(
                lambda: not any(node["spec"].get("taints") for node in admin.ask("GET", "/api/v1/nodes").json["items"]),
                "the nodes are ready",
            )


Places = Mapping[str, Callable[[pathlib.Path], contextlib.AbstractContextManager[Place]]]


# Without a kubelet


@contextlib.contextmanager
def _built_in(folder: pathlib.Path) -> Iterator[Place]:
    with ControlPlane(folder, controllers=True, scheduler=True, flags=FLAGS) as plane:
        plane.start_clients()
        with _with_kubelets(plane) as place:
            yield place


@contextlib.contextmanager
def _sluice(folder: pathlib.Path) -> Iterator[Place]:
    with (
        Bed(folder, group=DRA_GROUP, controllers=True, scheduler=True, flags=FLAGS) as bed,
        _with_kubelets(bed.plane) as place,
    ):
        yield place


@contextlib.contextmanager
def _with_kubelets(plane: ControlPlane) -> Iterator[Place]:
    with Kubelets(plane, NODES):
        yield Place(plane, [Round(ON_BY_DEFAULT)])


PLACES: Places = {BUILT_IN: _built_in, SLUICE: _sluice}


# On a node


def _serving(*versions: str, v1: bool) -> str:
    """The flag by which kube-apiserver serves these versions itself."""
    served = {"v1": v1, **dict.fromkeys(versions, True)}
    words = (f"{DRA_GROUP}/{version}={str(on).lower()}" for version, on in served.items())
    return f"--runtime-config={','.join(words)}"


@contextlib.contextmanager
def _built_in_on_a_node(folder: pathlib.Path) -> Iterator[Place]:
    flags = _serving(*OLDER, v1=True)
    with Node(folder, flags=[flags]) as node:
        yield _on(node, lambda: node.plane.restart(flags, RULES, client_flags=[RULES]))


@contextlib.contextmanager
def _sluice_on_a_node(folder: pathlib.Path) -> Iterator[Place]:
    with Node(folder) as node:
        deployment = Deployment(node, folder / "deployment")
        deployment.load_images()
        deployment.take_over("test", _serving(v1=False))
        for version in OLDER:
            _register(deployment, version)

        def with_rules() -> None:
            """The rules are kube-apiserver's, in a version of the group that is then all its own."""
            node.kubectl("delete", "apiservice", f"v1beta2.{DRA_GROUP}")
            node.plane.restart(_serving("v1beta2", v1=False), RULES, client_flags=[RULES])

        yield _on(node, with_rules)


def _register(deployment: Deployment, version: str) -> None:
    """An older version of the group, as docs/take-over.md has it."""
    node = deployment.node
    found = json.loads(node.kubectl("get", "apiservice", TAKEN_OVER, "--output=json").stdout)["spec"]
    name = f"{version}.{DRA_GROUP}"
    priority = found["versionPriority"] - SERVED[DRA_GROUP].index(version)
    node.apply(
        [
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": {**found, "version": version, "versionPriority": priority},
            }
        ]
    )
    deployment.until_available(name)


def _on(node: Node, with_rules: Callable[[], None]) -> Place:
    for archive in images.archives():
        node.load_image(archive)
    words = [f"--kubelet-root-dir={STATE / 'kubelet'}"]
    return Place(node.plane, [Round(OF_A_KUBELET), Round(OF_RULES, with_rules)], words)


ON_A_NODE: Places = {BUILT_IN: _built_in_on_a_node, SLUICE: _sluice_on_a_node}
