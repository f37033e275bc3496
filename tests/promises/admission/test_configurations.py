"""Configurations hold from when they are followed until they are deleted."""

from __future__ import annotations

import pytest

from tests.promises.admission.hooks import deny
from tests.promises.admission.rig import POLICIES, REGISTRATION, WEBHOOKS, Phase, Rig
from tests.promises.api.client import claim

PHASES: tuple[Phase, ...] = ("mutating", "validating")


@pytest.mark.parametrize("phase", PHASES)
def test_a_webhook_is_called_from_its_creation_to_its_deletion(rig: Rig, phase: Phase) -> None:
    path = f"{REGISTRATION}/{WEBHOOKS[phase][1]}"
    name = rig.webhook(phase, deny(message="first"))
    assert rig.api.refusal("POST", rig.claims, claim("c")).message.endswith(": first")

    configuration = rig.api.get(f"{path}/{name}")
    configuration["webhooks"] = [rig.hook(deny(message="second"), name="other")]
    rig.api.put(f"{path}/{name}", configuration)
    rig.wait_until_in_force("webhooks", phase)
    assert rig.api.refusal("POST", rig.claims, claim("c")).message.endswith(": second")

    rig.api.delete(f"{path}/{name}")
    rig.wait_until_in_force("webhooks", phase)
    rig.api.create(rig.claims, claim("c"))
    assert [call.hook for call in rig.calls()] == ["hook", "other"]


def test_a_validating_policy_holds_as_long_as_it_is_bound(rig: Rig) -> None:
    name = rig.policy("validating", {"validations": [{"expression": "object.metadata.name != 'c'"}]})
    assert rig.api.refusal("POST", rig.claims, claim("c")).code == 422
    rig.api.create(rig.claims, claim("d"))

    rig.api.delete(f"{REGISTRATION}/{POLICIES['validating'][1].replace('policies', 'policybindings')}/{name}")
    rig.wait_until_in_force("policies", "validating")
    rig.api.create(rig.claims, claim("c"))


def test_a_mutating_policy_holds_as_long_as_it_is_there(rig: Rig) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'by': 'policy'}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    name = rig.policy("mutating", {"mutations": [mutation]})
    assert rig.api.create(rig.claims, claim("c"))["metadata"]["labels"] == {"by": "policy"}

    rig.api.delete(f"{REGISTRATION}/{POLICIES['mutating'][1]}/{name}")
    rig.wait_until_in_force("policies", "mutating")
    assert "labels" not in rig.api.create(rig.claims, claim("d"))["metadata"]
