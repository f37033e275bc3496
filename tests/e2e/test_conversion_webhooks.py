"""Definitions whose objects a webhook converts: nothing is converted without it."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.controlplane.plane import until
from tests.fixtures.definitions import write
from tests.fixtures.server import DevServer, dev_server

GROUP = "converted.example.com"
V1, V2 = (f"/apis/{GROUP}/{version}/namespaces/default/lamps" for version in ("v1", "v2"))
WHY = (
    f"conversion webhook for {GROUP}/v1, Kind=Lamp failed: Sluice does not call conversion webhooks: "
    f"use {GROUP}/v1, the stored version"
)
CONVERSION = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}},
}
POLICY = "admissionregistration.k8s.io/v1"


def definition(*, stored: str = "v1", other: str = "lumen", webhook: bool = True) -> dict[str, Any]:
    """Lamps in two versions: the member of v1 is `watt`, that of v2 is `other`."""
    members = {"v1": "watt", "v2": other}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"lamps.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Lamp", "plural": "lamps"},
            "conversion": CONVERSION if webhook else {"strategy": "None"},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == stored,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "properties": {member: {"type": "integer"}}},
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                }
                for name, member in members.items()
            ],
        },
    }


def lamp(version: str, name: str = "one", **spec: int) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Lamp", "metadata": {"name": name}, "spec": spec}


def policy() -> list[dict[str, Any]]:
    """A policy for lamps that are named `judged`, written for v2."""
    rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["lamps"]}
    return [
        {
            "apiVersion": POLICY,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "lamps"},
            "spec": {
                "matchConstraints": {"resourceRules": [{**rule, "resourceNames": ["judged"]}]},
                "validations": [{"expression": "has(object.spec)"}],
            },
        },
        {
            "apiVersion": POLICY,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "lamps"},
            "spec": {"policyName": "lamps", "validationActions": ["Deny"]},
        },
    ]


@pytest.fixture(scope="module", params=["lumen", "watt"], ids=["unlike schemas", "like schemas"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("converted")
    write(folder / "lamps.yaml", definition(other=request.param))
    rules = folder / "rules"
    rules.mkdir()
    write(rules / "policy.yaml", *policy())
    with dev_server(folder, f"--crds={folder / 'lamps.yaml'}", f"--admission={rules}") as made:
        assert made.request("POST", V1, lamp("v1", watt=7)).status == 201
        yield made


MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


@pytest.mark.parametrize(
    ("method", "path", "body", "media"),
    [
        ("GET", f"{V2}/one", None, ""),
        ("GET", f"{V2}/one/status", None, ""),
        ("GET", V2, None, ""),
        ("GET", f"/apis/{GROUP}/v2/lamps", None, ""),
        ("GET", f"{V2}?watch=1", None, ""),
        ("POST", V2, lamp("v2", "two"), ""),
        ("PUT", f"{V2}/one", lamp("v2"), ""),
        ("PATCH", f"{V2}/one", {"spec": {}}, MERGE),
        ("PATCH", f"{V2}/one?fieldManager=me", lamp("v2"), APPLY),
        ("DELETE", f"{V2}/one", None, ""),
        ("DELETE", V2, None, ""),
    ],
)
def test_request_in_a_version_that_needs_the_webhook_gets_500(
    server: DevServer, method: str, path: str, body: Any, media: str
) -> None:
    before = server.request("GET", f"{V1}/one").json
    reply = server.request(method, path, body, headers={"Content-Type": media} if media else {})
    assert (reply.status, reply.json["kind"], reply.json["message"]) == (500, "Status", WHY)
    assert server.request("GET", f"{V1}/one").json == before


def test_stored_version_is_served_without_the_webhook(server: DevServer) -> None:
    assert server.request("POST", V1, lamp("v1", "other", watt=1)).status == 201
    patched = server.request("PATCH", f"{V1}/other", {"spec": {"watt": 2}}, headers={"Content-Type": MERGE})
    assert patched.json["spec"] == {"watt": 2}
    assert server.request("DELETE", f"{V1}/other").status == 200


def test_policy_for_the_other_version_refuses_the_write(server: DevServer) -> None:
    reply = server.request("POST", V1, lamp("v1", "judged"))
    assert (reply.status, reply.json["message"]) == (500, f"Internal error occurred: {WHY}")
    assert server.request("GET", f"{V1}/judged").status == 404


def test_server_warns_at_start_about_versions_that_cannot_be_used(server: DevServer) -> None:
    warning = (
        "spec.conversion: Sluice does not call conversion webhooks: requests in v2 get 500, "
        "only the stored version v1 can be used"
    )
    until(lambda: warning in server.log.read_text(), "the warning is logged")


def test_stored_version_of_a_followed_definition_does_not_change(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "lamps.yaml", definition())
    with dev_server(tmp_path, f"--crds={file}") as server:
        assert server.request("POST", V1, lamp("v1", watt=7)).status == 201
        write(file, definition(stored="v2"))
        refusal = "spec.versions: Forbidden: the stored version may not change from v1 to v2"
        until(lambda: refusal in server.log.read_text(), "the change is refused")
        assert server.request("GET", f"{V1}/one").json["spec"] == {"watt": 7}


def test_apply_over_a_manager_of_the_other_version_is_an_error(tmp_path: pathlib.Path) -> None:
    """The manager wrote before the definition had a webhook."""
    file = write(tmp_path / "lamps.yaml", definition(other="watt", webhook=False))
    applied = json.dumps(lamp("v1", watt=2))
    with dev_server(tmp_path, f"--crds={file}") as server:
        assert server.request("POST", f"{V2}?fieldManager=other", lamp("v2", watt=7)).status == 201
        write(file, definition(other="watt"))
        until(lambda: server.request("GET", V2).status == 500, "the definition has a webhook")
        reply = server.request("PATCH", f"{V1}/one?fieldManager=me", applied, headers={"Content-Type": APPLY})
        assert (reply.status, WHY in reply.json["message"]) == (500, True), reply.text
        assert server.request("GET", f"{V1}/one").json["spec"] == {"watt": 7}
