"""What a webhook is told: the AdmissionReview of every sort of write."""

from __future__ import annotations

from tests.promises.admission.hooks import deny, warn
from tests.promises.admission.rig import Rig, warnings
from tests.promises.api.client import claim


def test_a_create_is_shown_with_all_that_is_known_of_it(rig: Rig) -> None:
    rig.webhook("validating", name="v")

    made = rig.api.create(rig.claims, claim("c", labels={"a": "b"}))

    [call] = rig.calls()
    assert (call.review["apiVersion"], call.review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert list(call.review) == ["kind", "apiVersion", "request"]
    shown = call.request.pop("object")
    uid = call.request.pop("uid")
    assert uid != made["metadata"]["uid"]
    assert call.request.pop("userInfo")["username"] == "kubernetes-admin"
    kind = {"group": rig.group, "version": "v1", "kind": "ResourceClaim"}
    resource = {"group": rig.group, "version": "v1", "resource": "resourceclaims"}
    options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert call.request == {
        "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
        "name": "c", "namespace": rig.mine, "operation": "CREATE", "oldObject": None, "dryRun": False, "options": options,
    }  # fmt: skip
    assert "resourceVersion" not in shown["metadata"]
    del made["metadata"]["resourceVersion"]
    assert shown == made


def test_a_denial_is_told_in_the_webhooks_words(rig: Rig) -> None:
    rig.webhook("validating", deny(message="not today"))

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    assert refusal.code == 400
    assert refusal.message == f'admission webhook "hook.{rig.mine}.example.com" denied the request: not today'


def test_both_phases_warn_in_their_order(rig: Rig) -> None:
    rig.webhook("validating", warn("second"), name="v")
    rig.webhook("mutating", warn("first"), name="m")

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert (reply.status, warnings(reply)) == (201, ["first", "second"])
    assert [call.hook for call in rig.calls()] == ["m", "v"]
