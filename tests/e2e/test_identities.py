"""Rights through kube-apiserver: both servers ask the same RBAC, kube-apiserver first and Sluice again."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from typing import Any

import pytest
import yaml

from tests.e2e import objects
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.external import Cluster
from tests.e2e.controlplane.plane import until
from tests.e2e.objects import GROUP, V1

RBAC = "rbac.authorization.k8s.io"
_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """A name of a user, a role or an object that no other test has."""
    return f"id-{os.getpid()}-{next(_NUMBERS)}"


def device_class(name: str) -> str:
    return json.dumps(objects.device_class(name))


def claim(name: str) -> str:
    return json.dumps(objects.claim(name))


def grant(cluster: Cluster, name: str, subject: dict[str, str], *rules: dict[str, Any]) -> None:
    """Rights in the whole cluster."""
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
    }
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([role, binding]))


def rule(resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [GROUP], "resources": [resource], "verbs": list(verbs)}


def user(name: str) -> dict[str, str]:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def until_allowed(cluster: Cluster, kubeconfig: pathlib.Path, path: str) -> None:
    """kube-apiserver reads its roles through informers, and refusals are remembered for a while."""
    with cluster.connect(kubeconfig) as asking:
        until(lambda: asking.ask("GET", path).status == 200, f"GET {path} is allowed")


def reached_sluice(bed: Bed, audit_id: str) -> bool:
    """Both servers use the audit ID that the client sent, and Sluice logs it: of a refusal or an object before it answers, of a list when
    it has sent the last of it, which the client may have read by then."""
    process = bed.replicas[0].process
    assert process is not None
    return audit_id in process.log.read_text()


def test_a_user_with_rights_to_one_verb_may_do_that_and_nothing_else(cluster: Cluster, name: str) -> None:
    kubeconfig = cluster.user(name)
    cluster.kubectl("create", "-f", "-", stdin=device_class(name))
    grant(cluster, name, user(name), rule("deviceclasses", "get"))
    until_allowed(cluster, kubeconfig, f"{V1}/deviceclasses/{name}")

    assert name in cluster.kubectl("get", f"deviceclass.{GROUP}", name, kubeconfig=kubeconfig).stdout
    assert cluster.kubectl("auth", "can-i", "get", f"deviceclasses.{GROUP}", kubeconfig=kubeconfig).stdout == "yes\n"
    for words in (
        ["get", f"deviceclasses.{GROUP}"],
        ["delete", f"deviceclass.{GROUP}", name],
        ["get", f"resourceslices.{GROUP}"],
    ):
        done = cluster.kubectl(*words, kubeconfig=kubeconfig, check=False)
        assert done.returncode == 1
        assert f'is forbidden: User "{name}" cannot' in done.stderr
    refused = cluster.kubectl("auth", "can-i", "list", f"deviceclasses.{GROUP}", kubeconfig=kubeconfig, check=False)
    assert refused.stdout.startswith("no")


def test_kube_apiserver_refuses_a_user_without_rights_before_sluice(bed: Bed, name: str) -> None:
    kubeconfig = bed.user(name)

    done = bed.kubectl("get", f"resourceslices.{GROUP}", kubeconfig=kubeconfig, check=False)

    expected = (
        f'resourceslices.{GROUP} is forbidden: User "{name}" cannot list resource "resourceslices" in API group "{GROUP}" '
        "at the cluster scope"
    )
    assert done.stderr == f"Error from server (Forbidden): {expected}\n"
    with bed.connect(kubeconfig) as refused, bed.connect() as admin:
        assert refused.ask("GET", f"{V1}/resourceslices", headers={"Audit-ID": f"{name}-refused"}).status == 403
        assert admin.ask("GET", f"{V1}/resourceslices", headers={"Audit-ID": f"{name}-allowed"}).status == 200
    until(lambda: reached_sluice(bed, f"{name}-allowed"), "the later one of both is logged")
    assert not reached_sluice(bed, f"{name}-refused")


def test_the_same_user_is_refused_by_sluice_itself_in_the_same_words(bed: Bed, name: str) -> None:
    kubeconfig = bed.user(name)
    with bed.connect(kubeconfig) as front, bed.connect(bed.straight(kubeconfig)) as straight:
        for method, path in [
            ("GET", f"{V1}/resourceslices"),
            ("GET", f"{V1}/namespaces/default/resourceclaims/one"),
            ("DELETE", f"{V1}/namespaces/default/resourceclaims"),
            ("PUT", f"{V1}/namespaces/default/resourceclaims/one/status"),
            ("GET", "/metrics"),
        ]:
            there, here = front.ask(method, path), straight.ask(method, path)
            assert (here.status, here.json) == (403, there.json)


def service_account(cluster: Cluster, name: str, namespace: str) -> pathlib.Path:
    """One that may create and read claims, and nothing else."""
    cluster.kubectl("create", "serviceaccount", name, "-n", namespace)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    grant(cluster, name, subject, rule("resourceclaims", "create", "get", "list"))
    kubeconfig = cluster.service_account(namespace, name)
    until_allowed(cluster, kubeconfig, f"{V1}/namespaces/{namespace}/resourceclaims")
    return kubeconfig


def test_a_service_account_acts_with_its_token(cluster: Cluster, name: str, namespace: str) -> None:
    kubeconfig = service_account(cluster, name, namespace)

    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=claim("one"), kubeconfig=kubeconfig)

    words = ["-n", namespace, f"resourceclaims.{GROUP}"]
    assert "one" in cluster.kubectl("get", *words, kubeconfig=kubeconfig).stdout
    refused = cluster.kubectl("delete", *words, "one", kubeconfig=kubeconfig, check=False)
    assert f'User "system:serviceaccount:{namespace}:{name}" cannot delete' in refused.stderr


def test_straight_the_same_token_is_worth_the_same(bed: Bed, name: str, namespace: str) -> None:
    """Sluice has kube-apiserver review it."""
    path = f"{V1}/namespaces/{namespace}/resourceclaims"
    with bed.connect(bed.straight(service_account(bed, name, namespace))) as straight:
        assert straight.ask("POST", path, objects.claim("one")).status == 201
        assert [item["metadata"]["name"] for item in straight.ask("GET", path).json["items"]] == ["one"]
        refused = straight.ask("DELETE", f"{path}/one")
        assert refused.status == 403
        assert f'User "system:serviceaccount:{namespace}:{name}" cannot delete' in refused.json["message"]


def test_unissued_token_is_401_directly_too(bed: Bed) -> None:
    forged = bed.plane.token_kubeconfig("forged", "eyJhbGciOiJub25lIn0.e30.")
    with bed.connect(bed.straight(forged)) as straight:
        reply = straight.ask("GET", f"{V1}/resourceslices")
        assert (reply.status, reply.json["message"]) == (401, "Unauthorized")
        assert straight.ask("GET", "/readyz").status == 401


def test_impersonated_user_has_only_its_own_rights(cluster: Cluster, name: str) -> None:
    grant(cluster, name, user(name), rule("deviceclasses", "list"))
    until(
        lambda: cluster.kubectl("get", f"deviceclasses.{GROUP}", "--as", name, check=False).returncode == 0,
        "the role is in force",
    )

    refused = cluster.kubectl("get", f"resourceslices.{GROUP}", "--as", name, "--as-group", "ops", check=False)

    assert f'User "{name}" cannot list resource "resourceslices"' in refused.stderr


def test_impersonation_straight_is_judged_by_sluice(bed: Bed, name: str) -> None:
    jane = bed.user(name)
    with bed.connect(bed.straight(bed.admin)) as admin, bed.connect(bed.straight(jane)) as user:
        assert admin.ask("GET", f"{V1}/resourceslices", headers={"Impersonate-User": name}).status == 403
        refused = user.ask("GET", f"{V1}/resourceslices", headers={"Impersonate-User": "kubernetes-admin"})
        assert refused.status == 403
        assert (
            f'User "{name}" cannot impersonate-on:user-info:list resource "resourceslices"' in refused.json["message"]
        )


def test_the_default_edit_role_of_a_namespace_covers_claims_but_no_slices(
    cluster: Cluster, name: str, namespace: str
) -> None:
    kubeconfig = cluster.user(name)
    cluster.kubectl("create", "rolebinding", name, "--clusterrole=edit", f"--user={name}", "-n", namespace)
    until_allowed(cluster, kubeconfig, f"{V1}/namespaces/{namespace}/resourceclaims")

    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=claim("one"), kubeconfig=kubeconfig)

    assert cluster.kubectl("get", f"resourceslices.{GROUP}", kubeconfig=kubeconfig, check=False).returncode == 1
    refused = cluster.kubectl("get", f"resourceclaims.{GROUP}", "-n", "default", kubeconfig=kubeconfig, check=False)
    assert "is forbidden" in refused.stderr


def test_a_claim_in_a_namespace_that_does_not_exist_is_not_found(cluster: Cluster) -> None:
    done = cluster.kubectl("create", "-n", "nowhere", "-f", "-", stdin=claim("one"), check=False)

    assert done.stderr.endswith('namespaces "nowhere" not found\n')
    assert "Error from server (NotFound)" in done.stderr


NODE = "Impersonate-Extra-authentication.kubernetes.io%2fnode-name"


def test_the_roles_of_the_manifests_are_what_a_scheduler_and_a_driver_need(bed: Bed, namespace: str, name: str) -> None:
    """From the slice to the report on the allocated device, and no further."""
    users = {role: f"system:serviceaccount:{namespace}:{role}" for role in ("scheduler", "driver")}
    for role, account in users.items():
        words = [f"--clusterrole=sluice-{role}", f"--user={account}"]
        bed.kubectl("create", "clusterrolebinding", f"{name}-{role}", *words)
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    device = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    allocation = {
        "nodeSelector": {"nodeSelectorTerms": [node]},
        "devices": {"results": [{"request": "gpu", **device}]},
    }
    path = f"{objects.claims(namespace)}/{name}"

    with bed.connect() as admin:

        def ask(role: str, method: str, path: str, body: Any = None) -> Any:
            headers = {"Impersonate-User": users[role], NODE: "node-1"}
            if method == "PATCH":
                headers["Content-Type"] = "application/merge-patch+json"
            return admin.ask(method, path, json.dumps(body) if method == "PATCH" else body, headers=headers)

        until(lambda: ask("scheduler", "GET", f"{V1}/deviceclasses").status == 200, "the scheduler has its rights")
        until(lambda: ask("driver", "GET", f"{V1}/resourceslices").status == 200, "the driver has its rights")
        assert ask("driver", "POST", f"{V1}/resourceslices", objects.resource_slice(name)).status == 201
        assert admin.ask("POST", objects.claims(namespace), objects.claim(name)).status == 201

        refused = ask("driver", "PATCH", f"{path}/status", {"status": {"allocation": allocation}})
        assert (refused.status, "resourceclaims/binding" in refused.text) == (422, True), refused.text
        assert ask("driver", "GET", objects.claims(namespace)).status == 403
        allocated = ask("scheduler", "PATCH", f"{path}/status", {"status": {"allocation": allocation}})
        assert allocated.status == 200, allocated.text
        report = {"status": {"devices": [{**device, "data": {"temperature": 40}}]}}
        refused = ask("scheduler", "PATCH", f"{path}/status", report)
        assert (refused.status, "resourceclaims/driver" in refused.text) == (422, True), refused.text
        reported = ask("driver", "PATCH", f"{path}/status", report)
        assert reported.status == 200, reported.text
        assert ask("scheduler", "DELETE", path).status == 200
        assert ask("driver", "DELETE", f"{V1}/resourceslices/{name}").status == 200
