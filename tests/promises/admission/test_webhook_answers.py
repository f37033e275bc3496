"""Answers of a webhook, and what the client gets of them: denials, warnings, audit annotations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.admission.hooks import add, allow, deny, patch, warn
from tests.promises.admission.rig import PHASES, Object, Phase, Rig, warnings
from tests.promises.api.client import claim

DENIED = 'admission webhook "hook.MINE.example.com" denied the request'
DENIALS: dict[str, tuple[Object, Object]] = {
    "nothing": ({}, {"code": 400, "message": f"{DENIED} without explanation"}),
    "a message": ({"message": "no"}, {"code": 400, "message": f"{DENIED}: no"}),
    "a reason": ({"reason": "Because"}, {"code": 400, "message": f"{DENIED}: Because", "reason": "Because"}),
    "both": (
        {"message": "no", "reason": "Forbidden"},
        {"code": 400, "message": f"{DENIED}: no", "reason": "Forbidden"},
    ),
    "a code": ({"code": 418, "message": "tea"}, {"code": 418, "message": f"{DENIED}: tea"}),
    "a code of success": ({"code": 200, "message": "fine"}, {"code": 400, "message": f"{DENIED}: fine"}),
    "a code of a redirect": ({"code": 302}, {"code": 400, "message": f"{DENIED} without explanation"}),
    "a code of the server": ({"code": 503, "message": "x"}, {"code": 503, "message": f"{DENIED}: x"}),
    "a status of success": ({"status": "Success", "message": "x"}, {"code": 400, "message": f"{DENIED}: x"}),
    "details": (
        {
            "code": 422,
            "message": "x",
            "details": {
                "name": "n", "group": "g", "kind": "k", "uid": "u",
                "causes": [{"reason": "R", "message": "M", "field": "spec.f"}],
            },
        },
        {
            "code": 422,
            "message": f"{DENIED}: x",
            "details": {
                "name": "n", "group": "g", "kind": "k", "uid": "u",
                "causes": [{"reason": "R", "message": "M", "field": "spec.f"}],
            },
        },
    ),
    "a time to come again": (
        {"code": 429, "message": "x", "details": {"retryAfterSeconds": 7}},
        {"code": 429, "message": f"{DENIED}: x", "details": {"retryAfterSeconds": 7}},
    ),
    "metadata": (
        {"message": "x", "metadata": {"continue": "7"}},
        {"code": 400, "message": f"{DENIED}: x", "metadata": {"continue": "7"}},
    ),
    "several lines": ({"message": "a\nb\n"}, {"code": 400, "message": f"{DENIED}: a\nb\n"}),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("what", DENIALS)
def test_a_denial_is_passed_on(rig: Rig, phase: Phase, what: str) -> None:
    status, expected = DENIALS[what]
    rig.webhook(phase, deny(**status))

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    usual = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert rig.normal(reply.json) == usual | expected
    assert reply.status == expected["code"]
    assert rig.api.get(rig.claims)["items"] == []
    assert reply.headers["Retry-After"] == ("7" if what == "a time to come again" else None)


def test_a_denial_without_a_status_is_without_explanation(rig: Rig) -> None:
    rig.webhook("validating", allow(allowed=None))

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    assert (refusal.code, rig.normal(refusal.message)) == (400, f"{DENIED} without explanation")


def test_a_denial_ends_the_round(rig: Rig) -> None:
    """A mutating denial skips all later webhooks; all validating webhooks run, whichever denies."""
    rig.webhooks(
        "mutating", rig.hook(name="1"), rig.hook(deny(message="x"), name="2"), rig.hook(name="3"), name=f"{rig.mine}-m"
    )
    rig.webhooks("validating", rig.hook(deny(message="y"), name="4"), rig.hook(name="5"), name=f"{rig.mine}-v")

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    assert rig.normal(refusal.message) == 'admission webhook "2.MINE.example.com" denied the request: x'
    assert [call.hook for call in rig.calls()] == ["1", "2"]

    rig.cluster.hooks.program(f"/{rig.mine}/2", [])
    refusal = rig.api.refusal("POST", rig.claims, claim("c"))
    assert rig.normal(refusal.message) == 'admission webhook "4.MINE.example.com" denied the request: y'
    assert sorted(call.hook for call in rig.calls()[2:]) == ["1", "2", "3", "4", "5"]


def test_first_answer_of_several_denying_webhooks_is_returned(rig: Rig) -> None:
    rig.webhooks(
        "validating",
        rig.hook({**deny(message="late"), "hold": True}, name="a"),
        rig.hook(deny(message="early"), name="b"),
    )
    rig.cluster.hooks.program(f"/{rig.mine}/a", [{**deny(message="late"), "delay": 0.5}])

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    assert refusal.message.endswith(": early")
    assert all(call.answered for call in rig.calls()), "all are waited for"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("write", ["create", "update", "delete", "deletecollection", "status"])
def test_every_sort_of_write_can_be_denied(rig: Rig, phase: Phase, write: str) -> None:
    made = rig.api.create(rig.claims, claim("c"))
    rig.webhook(phase, deny(code=403, message="no", reason="Forbidden"))

    ways: dict[str, tuple[str, str, Any]] = {
        "create": ("POST", rig.claims, claim("d")),
        "update": ("PUT", f"{rig.claims}/c", made),
        "delete": ("DELETE", f"{rig.claims}/c", None),
        "deletecollection": ("DELETE", rig.claims, None),
        "status": ("PUT", f"{rig.claims}/c/status", made),
    }
    refusal = rig.api.refusal(*ways[write])

    assert (refusal.code, refusal.reason, rig.normal(refusal.message)) == (403, "Forbidden", f"{DENIED}: no")
    assert rig.api.get(rig.claims)["items"] == [
        {name: value for name, value in made.items() if name not in ("kind", "apiVersion")}
    ]


WARNINGS: dict[str, tuple[list[str], list[str]]] = {
    "in their order, each once": (["b", "a", "b"], ["b", "a"]),
    "with quotes and backslashes": (['say "x" \\ y'], ['say "x" \\ y']),
    "with characters of their own": (["é → ✓"], ["é → ✓"]),
    "unless they hold control characters": (["a\nb", "\x00", "c"], ["c"]),
    "and not empty": (["", "a"], ["a"]),
    "cut when they are long": (["x" * 5000], ["x" * 256]),
    "cut when they are long together": (["x" * 2100, "y" * 2100], ["x" * 256, "y" * 256]),
}


@pytest.mark.parametrize("what", WARNINGS)
def test_warnings_of_webhooks_reach_the_client(rig: Rig, what: str) -> None:
    given, told = WARNINGS[what]
    rig.webhook("validating", warn(*given))

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert reply.status == 201
    assert [text.encode("latin-1").decode() for text in warnings(reply)] == told


def test_warnings_reach_the_client_of_a_denied_request_too(rig: Rig) -> None:
    rig.webhook("mutating", warn("first"), name="m")
    rig.webhook("validating", {"review": {"response": {"allowed": False, "warnings": ["second"]}}})

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert (reply.status, warnings(reply)) == (400, ["first", "second"])


def test_warnings_for_every_object_of_a_collection_reach_the_client(rig: Rig) -> None:
    for name in ("a", "b"):
        rig.api.create(rig.claims, claim(name))
    rig.webhook("validating", warn("one"), warn("two"))

    reply = rig.api.ask("DELETE", rig.claims)

    assert (reply.status, warnings(reply)) == (200, ["one", "two"])


def test_decisions_are_noted_for_the_auditor(rig: Rig) -> None:
    operation = add("/metadata/labels", {"a": "b"})
    rig.webhooks(
        "mutating",
        rig.hook(patch(operation, auditAnnotations={"why": "so", "bad/key/": "x"}), name="m"),
        rig.hook(name="n"),
        name=f"{rig.mine}-m",
    )
    rig.webhook("validating", allow(auditAnnotations={"key": "value"}), name="v")

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    assert reply.status == 201
    noted = {key: value for key, value in rig.annotations(reply).items() if "authorization" not in key}
    mutation = "mutation.webhook.admission.k8s.io/round_0_index_"
    assert {key: rig.normal(value) for key, value in noted.items()} == {
        f"m.{rig.mine}.example.com/why": "so",
        f"v.{rig.mine}.example.com/key": "value",
        f"{mutation}0": '{"configuration":"MINE-m","webhook":"m.MINE.example.com","mutated":true}',
        f"{mutation}1": '{"configuration":"MINE-m","webhook":"n.MINE.example.com","mutated":false}',
    }
    assert json.loads(noted[f"{mutation}0"])["mutated"]
