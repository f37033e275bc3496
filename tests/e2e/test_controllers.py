"""kube-controller-manager on Sluice's kinds: it knows them from discovery alone, and asks as for any other."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

import pytest

from tests.e2e import objects
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.external import Cluster
from tests.e2e.controlplane.plane import until

SECONDS = 150.0
"""Controllers look for kinds every 30 s, and as long again for a server that did not answer them at that moment."""
FOR_A_MOMENT = re.compile(
    "stale GroupVersion discovery|currently unable to handle the request|context deadline exceeded|connection refused|"
    "net/http: |http2: |Timed out waiting|timed out"
)
"""Log lines of controllers on a busy machine that delays them. They ask again."""
_NUMBERS = itertools.count()

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def name() -> str:
    return f"gc-{os.getpid()}-{next(_NUMBERS)}"


def made(admin: Connection, path: str, obj: objects.Object) -> objects.Object:
    reply = admin.ask("POST", path, obj)
    assert reply.status == 201, reply.text
    created: dict[str, Any] = reply.json
    return obj | {"metadata": created["metadata"]}


def config_map(name: str, **metadata: Any) -> objects.Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def gone(admin: Connection, path: str) -> None:
    until(lambda: admin.ask("GET", path).status == 404, f"{path} is gone", seconds=SECONDS)


def test_objects_owned_by_a_slice_are_collected_after_its_deletion(cluster: Cluster, name: str, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.connect() as admin:
        owner = made(admin, f"{objects.V1}/resourceslices", objects.resource_slice(name))
        made(admin, maps, config_map("dependant", **objects.owned_by(owner)))
        made(admin, maps, config_map("bystander"))

        assert admin.ask("DELETE", f"{objects.V1}/resourceslices/{name}").status == 200

        gone(admin, f"{maps}/dependant")
        assert admin.ask("GET", f"{maps}/bystander").status == 200


def test_a_claim_is_collected_when_its_owner_goes(cluster: Cluster, name: str, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.connect() as admin:
        owner = made(admin, maps, config_map("owner"))
        made(admin, objects.claims(namespace), objects.claim(name, **objects.owned_by(owner)))

        assert admin.ask("DELETE", f"{maps}/owner").status == 200

        gone(admin, f"{objects.claims(namespace)}/{name}")


def test_foreground_deletion_waits_for_the_dependants(cluster: Cluster, name: str, namespace: str) -> None:
    slices, claims = f"{objects.V1}/resourceslices", objects.claims(namespace)
    with cluster.connect() as admin:
        owner = made(admin, slices, objects.resource_slice(name))
        holding = objects.owned_by(owner, blockOwnerDeletion=True) | {"finalizers": ["example.com/hold"]}
        made(admin, claims, objects.claim(name, **holding))

        admin.ask("DELETE", f"{slices}/{name}", {"propagationPolicy": "Foreground"})
        until(
            lambda: "deletionTimestamp" in admin.ask("GET", f"{claims}/{name}").json["metadata"],
            "the dependant is being deleted",
            seconds=SECONDS,
        )
        assert admin.ask("GET", f"{slices}/{name}").json["metadata"]["finalizers"] == ["foregroundDeletion"]

        merge = {"Content-Type": "application/merge-patch+json"}
        admin.ask("PATCH", f"{claims}/{name}", {"metadata": {"finalizers": None}}, headers=merge)
        gone(admin, f"{slices}/{name}")


def test_a_namespace_takes_its_claims_with_it(cluster: Cluster, namespace: str) -> None:
    with cluster.connect() as admin:
        for number in range(3):
            made(admin, objects.claims(namespace), objects.claim(f"claim-{number}"))

        assert admin.ask("DELETE", f"/api/v1/namespaces/{namespace}").status == 200

        gone(admin, f"/api/v1/namespaces/{namespace}")
        assert admin.ask("GET", objects.claims(namespace)).json["items"] == []


def test_nothing_new_enters_a_namespace_that_is_being_deleted(cluster: Cluster, namespace: str) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    claims = objects.claims(namespace)
    with cluster.connect() as admin:
        made(admin, claims, objects.claim("held", finalizers=["example.com/hold"]))
        assert admin.ask("DELETE", f"/api/v1/namespaces/{namespace}").status == 200

        def refused() -> bool:
            reply = admin.ask("POST", claims, objects.claim("late"), headers={})
            if reply.status == 201:
                admin.ask("DELETE", f"{claims}/late")
            return reply.status == 403

        until(refused, "creating is forbidden")
        status = admin.ask("POST", claims, objects.claim("late")).json
        assert status["message"] == (
            f'resourceclaims.{objects.GROUP} "late" is forbidden: unable to create new content in namespace {namespace} '
            "because it is being terminated"
        )
        assert status["details"]["causes"] == [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        assert admin.ask("PATCH", f"{claims}/held", {"metadata": {"labels": {"a": "b"}}}, headers=merge).status == 200
        admin.ask("PATCH", f"{claims}/held", {"metadata": {"finalizers": None}}, headers=merge)
        gone(admin, f"/api/v1/namespaces/{namespace}")


def test_quota_counts_our_objects_that_were_there_and_those_that_go(cluster: Cluster, namespace: str) -> None:
    """Those that come are claimed when they are created."""
    count = f"count/resourceclaims.{objects.GROUP}"
    path, claims = f"/api/v1/namespaces/{namespace}/resourcequotas", objects.claims(namespace)
    merge = {"Content-Type": "application/merge-patch+json"}
    with cluster.connect() as admin:

        def used() -> dict[str, str]:
            found: dict[str, str] = admin.ask("GET", f"{path}/quota").json["status"].get("used", {})
            return found

        def creating(code: int) -> bool:
            return admin.ask("POST", f"{claims}?dryRun=All", objects.claim("dry")).status == code

        made(admin, claims, objects.claim("one"))
        made(admin, path, {"metadata": {"name": "quota"}, "spec": {"hard": {count: "1"}}})
        until(lambda: used() == {count: "1"}, "the quota counts one claim", seconds=SECONDS)
        until(lambda: creating(403), "Sluice knows the limit", seconds=SECONDS)

        spec = {"spec": {"hard": {count: "2"}}}
        assert admin.ask("PATCH", f"{path}/quota", spec, headers=merge).status == 200
        until(lambda: creating(201), "Sluice knows the new limit", seconds=SECONDS)
        made(admin, claims, objects.claim("two"))
        assert used() == {count: "2"}
        assert creating(403)

        assert admin.ask("DELETE", f"{claims}/one").status == 200

        until(lambda: used() == {count: "1"}, "the quota counts one claim less", seconds=SECONDS)
        until(lambda: creating(201), "Sluice knows that there is room", seconds=SECONDS)


def test_the_controllers_find_nothing_wrong_with_the_group(bed: Bed) -> None:
    """Runs behind the tests above, after which every controller has discovered, listed and watched the group."""
    until(bed.is_discovered, "the group is discovered", seconds=SECONDS)
    log = bed.plane.processes["kube-controller-manager"].log.read_text()
    errors = [line for line in log.splitlines() if line[:1] in "EF" and objects.GROUP in line]
    assert [line for line in errors if not FOR_A_MOMENT.search(line)] == []
