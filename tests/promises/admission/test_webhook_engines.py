"""Policy engines as they are deployed: the configurations of Kyverno and Gatekeeper, in their published shape, with a webhook server that
records in place of the engine.

Their rules name all groups. The tests add the name of their own namespace, so that nothing else in the cluster waits for
them, and the webhook server's address, and exclude the objects with which the rig probes."""

from __future__ import annotations

from typing import Any

from tests.e2e.controlplane.plane import until
from tests.promises.admission.hooks import add, allow, deny, patch
from tests.promises.admission.rig import NAME_LABEL, PROBE, Object, Rig, warnings
from tests.promises.api.client import ALLOCATED, JSON_PATCH, claim, device_class

UNLESS_PROBED = {"matchExpressions": [{"key": PROBE, "operator": "DoesNotExist"}]}
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}


def only_here(rig: Rig, *expressions: Object) -> Object:
    own = {"key": NAME_LABEL, "operator": "In", "values": [rig.mine]}
    return {"matchExpressions": [*expressions, own]}


def kyverno(rig: Rig, *answers: Object, name: str, **entry: Any) -> Object:
    """A webhook as Kyverno writes them: all operations, dry runs included, of everything outside of its own namespaces."""
    excluded = {"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system", "kyverno"]}
    return rig.hook(
        *answers,
        name=name,
        **{
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": only_here(rig, excluded),
            "objectSelector": UNLESS_PROBED,
            "rules": [{**EVERYTHING, "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"]}],
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": 10,
            **entry,
        },
    )


def gatekeeper(rig: Rig, *answers: Object, name: str, **entry: Any) -> Object:
    """A webhook as Gatekeeper writes them: what is created and updated, in the exact version, and its failures are nobody's concern."""
    unwatched = {"key": "admission.gatekeeper.sh/ignore", "operator": "DoesNotExist"}
    own = {"key": NAME_LABEL, "operator": "NotIn", "values": ["gatekeeper-system"]}
    subresources = [
        "pods/ephemeralcontainers", "pods/exec", "pods/log", "pods/eviction", "pods/portforward", "pods/proxy", "pods/attach",
        "pods/binding", "deployments/scale", "replicasets/scale", "statefulsets/scale", "replicationcontrollers/scale",
        "services/proxy", "nodes/proxy", "services/status",
    ]  # fmt: skip
    rule = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": ["*", *subresources],
        "operations": ["CREATE", "UPDATE"],
    }
    return rig.hook(
        *answers,
        name=name,
        **{
            "failurePolicy": "Ignore",
            "matchPolicy": "Exact",
            "namespaceSelector": only_here(rig, unwatched, own),
            "objectSelector": UNLESS_PROBED,
            "rules": [rule],
            "sideEffects": "None",
            "timeoutSeconds": 3,
            **entry,
        },
    )


def test_kyverno_mutates_then_validates_and_is_asked_of_every_operation(rig: Rig) -> None:
    annotation = {
        "policies.kyverno.io/last-applied-patches": "label.add-label.kyverno.io: added /metadata/labels/team\n"
    }
    operations = [add("/metadata/labels", {"team": "x"}), add("/metadata/annotations", annotation)]
    rig.webhooks(
        "mutating",
        kyverno(rig, patch(*operations), allow(), name="mutate.kyverno.svc-fail", reinvocationPolicy="IfNeeded",
                rules=[{**EVERYTHING, "operations": ["CREATE", "UPDATE"]}]),
        kyverno(rig, name="mutate.kyverno.svc-ignore", failurePolicy="Ignore"),
        name=f"{rig.mine}-kyverno-resource-mutating-webhook-cfg",
    )  # fmt: skip
    rig.webhooks(
        "validating",
        kyverno(rig, allow(warnings=["policy p.r: label team is suggested"]), name="validate.kyverno.svc-fail"),
        name=f"{rig.mine}-kyverno-resource-validating-webhook-cfg",
    )

    created = rig.api.ask("POST", rig.claims, claim("c"))
    assert (created.status, warnings(created)) == (201, ["policy p.r: label team is suggested"])
    assert created.json["metadata"]["labels"] == {"team": "x"}
    assert created.json["metadata"]["annotations"] == annotation
    rig.api.patch(f"{rig.claims}/c/status", {"status": ALLOCATED})
    rig.api.patch(f"{rig.claims}/c", [add("/metadata/labels/a", "b")], kind=JSON_PATCH, dryRun="All")
    rig.api.delete(f"{rig.claims}/c", dryRun="All")

    members = ("operation", "subResource", "dryRun")
    told = [
        (call.hook.replace(".kyverno.svc-", ""), *(call.request.get(name) for name in members)) for call in rig.calls()
    ]
    assert told == [
        ("mutatefail", "CREATE", None, False), ("mutateignore", "CREATE", None, False), ("validatefail", "CREATE", None, False),
        ("mutatefail", "UPDATE", "status", False), ("mutateignore", "UPDATE", "status", False),
        ("validatefail", "UPDATE", "status", False),
        ("mutatefail", "UPDATE", None, True), ("mutateignore", "UPDATE", None, True), ("validatefail", "UPDATE", None, True),
        ("mutateignore", "DELETE", None, True), ("validatefail", "DELETE", None, True),
    ]  # fmt: skip


def test_kyvernos_words_reach_the_user(rig: Rig) -> None:
    text = (
        "\n\nresource ResourceClaim/t/c was blocked due to the following policies \n\n"
        "require-labels:\n  check-team: 'validation error: label team is required.'\n"
    )
    rig.webhooks("validating", kyverno(rig, deny(message=text, status="Failure"), name="validate.kyverno.svc-fail"))

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    name = f"validate.kyverno.svc-fail.{rig.mine}.example.com"
    assert (refusal.code, refusal.message) == (400, f'admission webhook "{name}" denied the request: {text}')


def test_kyverno_sees_cluster_objects_with_any_namespace_selector(rig: Rig) -> None:
    rig.webhooks(
        "validating", kyverno(rig, name="validate.kyverno.svc-fail", objectSelector={"matchLabels": rig.label})
    )
    rig.later(f"{rig.classes}/{rig.mine}")

    rig.api.create(rig.classes, device_class(rig.mine, labels=rig.label))
    rig.api.delete(f"{rig.classes}/{rig.mine}")

    assert [call.request["operation"] for call in rig.calls()] == ["CREATE", "DELETE"]


def test_gatekeeper_is_called_in_the_requests_version_without_statuses(rig: Rig) -> None:
    rig.webhooks(
        "validating",
        gatekeeper(rig, name="validation.gatekeeper.sh"),
        gatekeeper(
            rig, name="check-ignore-label.gatekeeper.sh", failurePolicy="Fail",
            rules=[{"apiGroups": [""], "apiVersions": ["*"], "resources": ["namespaces"], "operations": ["CREATE", "UPDATE"]}],
        ),
        name=f"{rig.mine}-gatekeeper-validating-webhook-configuration",
    )  # fmt: skip
    older = rig.claims.replace("/v1/", "/v1beta2/")

    rig.api.create(older, claim("c"))
    rig.api.patch(f"{rig.claims}/c/status", {"status": ALLOCATED})
    rig.api.patch(f"{rig.claims}/c", {"metadata": {"labels": {"a": "b"}}})
    rig.api.delete(f"{rig.claims}/c")

    assert [(call.request["operation"], call.request["resource"]["version"]) for call in rig.calls()] == [
        ("CREATE", "v1beta2"),
        ("UPDATE", "v1"),
    ]


def test_gatekeepers_words_reach_the_user(rig: Rig) -> None:
    text = '[ns-must-have-gk] you must provide labels: {"gatekeeper"}\n[other] no'
    rig.webhooks(
        "validating", gatekeeper(rig, deny(code=403, reason=text, message=text), name="validation.gatekeeper.sh")
    )

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    name = f"validation.gatekeeper.sh.{rig.mine}.example.com"
    assert refusal == (403, text, f'admission webhook "{name}" denied the request: {text}')


def test_unreachable_gatekeeper_stops_no_write(rig: Rig) -> None:
    rig.webhooks("validating", gatekeeper(rig, {"close": True}, name="validation.gatekeeper.sh"))
    rig.webhooks(
        "mutating",
        gatekeeper(rig, {"close": True}, name="mutation.gatekeeper.sh", reinvocationPolicy="Never", timeoutSeconds=1),
    )

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert (reply.status, warnings(reply)) == (201, [])
    assert {call.hook for call in rig.calls()} == {"validation.gatekeeper.sh", "mutation.gatekeeper.sh"}


def test_a_namespace_can_be_taken_out_of_gatekeepers_sight(rig: Rig) -> None:
    path = f"/api/v1/namespaces/{rig.mine}"
    rig.webhooks("validating", gatekeeper(rig, deny(message="no"), name="validation.gatekeeper.sh"))
    rig.api.refusal("POST", rig.claims, claim("c"))

    rig.api.patch(path, {"metadata": {"labels": {"admission.gatekeeper.sh/ignore": ""}}})

    def created() -> bool:
        return rig.api.ask("POST", rig.claims, claim("c"), dryRun="All").status == 201

    until(created, "the namespace's labels are known")
