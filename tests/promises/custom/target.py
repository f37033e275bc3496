"""The servers that promises of custom resources are held against. The definitions of `crds/` are installed on kube-apiserver for
`upstream`, and are files of Sluice for the others."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping

from tests.e2e.controlplane import bed, plane
from tests.e2e.controlplane.connection import Connection
from tests.fixtures.server import dev_server
from tests.promises.api.target import PANIC, TRACEBACK, Target
from tests.promises.custom.scenarios import CRDS, GROUP, VERSIONS, definitions

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(admin: Connection) -> None:
    """Returns when kube-apiserver serves all of them, and has published their schemas."""
    names = []
    for definition in definitions():
        reply = admin.ask("POST", DEFINITIONS, definition)
        assert reply.status == 201, reply.text
        names.append(definition["metadata"]["name"])

    def published() -> bool:
        text = admin.ask("GET", "/openapi/v2").body
        kinds = [definition["spec"]["names"]["kind"] for definition in definitions()]
        return all(f'.{kind}"'.encode() in text for kind in kinds)

    for name in names:
        plane.until(functools.partial(_is_established, admin, name), f"{name} is established")
    for path in collections():
        # The cache of a resource fills when it is asked for first. Until then it answers 429.
        plane.until(functools.partial(_answers, admin, path, 200), f"{path} is served")
    plane.until(published, "the schemas are published")


def collections() -> Iterator[str]:
    """The path of each resource in each served version."""
    for spec in (definition["spec"] for definition in definitions()):
        for version in spec["versions"]:
            if version["served"]:
                yield f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"


def remove(admin: Connection) -> None:
    """Returns when kube-apiserver has forgotten the definitions and their objects."""
    names = [definition["metadata"]["name"] for definition in definitions()]
    for name in names:
        admin.ask("DELETE", f"{DEFINITIONS}/{name}")
    for name in names:
        plane.until(functools.partial(_answers, admin, f"{DEFINITIONS}/{name}", 404), f"{name} is deleted")


def _answers(admin: Connection, path: str, status: int) -> bool:
    return bool(admin.ask("GET", path).status == status)


def _is_established(admin: Connection, name: str) -> bool:
    conditions = admin.ask("GET", f"{DEFINITIONS}/{name}").json.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


@contextlib.contextmanager
def dev(folder: pathlib.Path) -> Iterator[Target]:
    with dev_server(folder, f"--crds={CRDS}") as server:
        yield Target("dev", GROUP, server.kubeconfig, False, {server.log: TRACEBACK})


@contextlib.contextmanager
def aggregated(folder: pathlib.Path) -> Iterator[Target]:
    """Sluice behind an APIService for each version, asked through kube-apiserver."""
    with bed.Bed(folder, group=GROUP, versions=VERSIONS, serve_flags=[f"--crds={CRDS}"]) as cluster:
        logs = {replica.process.log: TRACEBACK for replica in cluster.replicas if replica.process}
        logs[cluster.plane.folder / "kube-apiserver.log"] = PANIC
        with cluster.connect() as admin:
            for version in VERSIONS:
                path = f"/openapi/v3/apis/{GROUP}/{version}"
                plane.until(functools.partial(_answers, admin, path, 200), f"kube-apiserver has {path}")
        yield Target("aggregated", GROUP, cluster.admin, True, logs)


@contextlib.contextmanager
def upstream(folder: pathlib.Path) -> Iterator[Target]:
    """kube-apiserver with the definitions installed."""
    with plane.ControlPlane(folder) as cluster:
        with cluster.connect() as admin:
            install(admin)
        yield Target("upstream", GROUP, cluster.admin, True, {cluster.folder / "kube-apiserver.log": PANIC})


TARGETS: Mapping[str, Callable[[pathlib.Path], contextlib.AbstractContextManager[Target]]] = {
    "dev": dev,
    "aggregated": aggregated,
    "upstream": upstream,
}
