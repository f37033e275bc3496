"""The same requests belong to the same flows in kube-apiserver and in Sluice, by the FlowSchemas of the cluster."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import until
from tests.e2e.objects import V1

FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
LEVEL, SCHEMA = "X-Kubernetes-PF-PriorityLevel-UID", "X-Kubernetes-PF-FlowSchema-UID"
OWN = f"flows-{os.getpid()}"
REQUESTS = [
    ("GET", "/version"),
    ("GET", "/healthz"),
    ("GET", "/livez/ping"),
    ("POST", "/healthz"),
    ("GET", "/apis"),
    ("GET", f"{V1}/resourceslices"),
    ("GET", f"{V1}/resourceslices?watch=1&timeoutSeconds=1&resourceVersion=0"),
    ("GET", f"{V1}/namespaces/default/resourceclaims"),
    ("GET", f"{V1}/namespaces/default/resourceclaims/missing"),
    ("DELETE", f"{V1}/namespaces/default/resourceclaims/missing"),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/missing"),
]
USERS: list[tuple[str, list[str]]] = [
    ("kubernetes-admin", ["system:masters"]),
    ("flows-jane", []),
    ("system:node:flows", ["system:nodes"]),
    ("system:kube-scheduler", []),
    ("system:serviceaccount:kube-system:flows", ["system:serviceaccounts"]),
    ("system:serviceaccount:default:flows", ["system:serviceaccounts"]),
    (OWN, []),
]
EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}]


def flow(user: Connection, method: str, path: str) -> tuple[set[str], set[str]]:
    """The uids of the level and of the schema. An answer that kube-apiserver relays has those of both servers."""
    headers = user.ask(method, path).headers
    return set(headers.get_all(LEVEL) or ()), set(headers.get_all(SCHEMA) or ())


@pytest.fixture(scope="module")
def own_schema(bed: Bed) -> str:
    """The uid of a schema of our own, for lists of one user."""
    rule = {
        "subjects": [{"kind": "User", "user": {"name": OWN}}],
        "resourceRules": [{**EVERYTHING[0], "verbs": ["list"]}],
    }
    spec: dict[str, Any] = {
        "matchingPrecedence": 50,
        "priorityLevelConfiguration": {"name": "workload-low"},
        "distinguisherMethod": {"type": "ByNamespace"},
        "rules": [rule],
    }
    with bed.connect() as admin:
        made = admin.ask("POST", f"{FLOW_CONTROL}/flowschemas", {"metadata": {"name": OWN}, "spec": spec})
        assert made.status == 201, made.text
        uid: str = made.json["metadata"]["uid"]
    return uid


def test_requests_have_the_flows_that_kube_apiserver_gives_them(bed: Bed, own_schema: str) -> None:
    listing = f"{V1}/resourceslices"
    identities: list[pathlib.Path] = [bed.user(name, groups) for name, groups in USERS]
    ours = identities[-1]
    for kubeconfig in (ours, bed.straight(ours)):
        with Connection(kubeconfig) as user:
            until(lambda user=user: own_schema in flow(user, "GET", listing)[1], f"{OWN} is in force")  # type: ignore[misc]
    seen, differing = set[str](), []
    for kubeconfig in identities:
        with Connection(kubeconfig) as theirs, Connection(bed.straight(kubeconfig)) as straight:
            for method, path in REQUESTS:
                expected, found = flow(theirs, method, path), flow(straight, method, path)
                seen |= found[1]
                if expected != found or [*map(len, found)] != [1, 1]:
                    differing.append((kubeconfig.stem, method, path, expected, found))
    assert differing == []
    assert own_schema in seen
    assert len(seen) >= 8


def test_levels_have_the_seats_that_kube_apiserver_gives_them(bed: Bed) -> None:
    def seats(kubeconfig: pathlib.Path, kind: str) -> dict[str, float]:
        name = f"apiserver_flowcontrol_{kind}_limit_seats"
        with Connection(kubeconfig) as admin:
            lines = admin.ask("GET", "/metrics").text.splitlines()
        return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{")}

    for kind in ("nominal", "lower", "upper"):
        expected = seats(bed.admin, kind)
        assert len(expected) >= 8
        assert seats(bed.straight(bed.admin), kind) == expected
