"""Webhooks and the store: when they are asked, how often, and what else is decided before and after them."""

from __future__ import annotations

import contextlib
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.e2e.controlplane.plane import until
from tests.promises.admission.hooks import add, allow, deny, patch
from tests.promises.admission.rig import PHASES, Rig
from tests.promises.api.client import ALLOCATED, JSON_PATCH, MERGE, NAMESPACES, Client, claim, version

APPLY = "application/apply-patch+yaml"
LABEL = {"metadata": {"labels": {"a": "b"}}}


def both(rig: Rig) -> None:
    """One webhook of each phase: `mutating` and `validating`."""
    for phase in PHASES:
        rig.webhook(phase, name=phase)


def asked(rig: Rig) -> list[str]:
    """Webhooks that were called since the last call of this function."""
    found = [f"{call.hook} {call.request['operation']}" for call in rig.calls()]
    told = rig.__dict__.setdefault("told", 0)
    rig.__dict__["told"] = len(found)
    return found[told:]


def test_write_refused_before_admission_reaches_no_webhook(rig: Rig) -> None:
    made = rig.api.create(rig.claims, claim("c", labels={"a": "b"}))
    absent = {**made, "metadata": {"name": "n", "resourceVersion": "1"}}
    both(rig)
    path = f"{rig.claims}/c"
    test = [{"op": "test", "path": "/metadata/name", "value": "x"}]
    missing = rig.claims.replace(rig.mine, f"{rig.mine}-missing")
    applied = json.dumps({"apiVersion": f"{rig.group}/v1", "kind": "ResourceClaim", **claim("c", labels={"a": "c"})})

    refusals = {
        "text that is no JSON": rig.api.refusal("POST", rig.claims, "{"),
        "another kind": rig.api.refusal("POST", rig.claims, claim("n") | {"kind": "X", "apiVersion": f"{rig.group}/v1"}),
        "an unknown member, strictly": rig.api.refusal("POST", rig.claims, claim("n") | {"x": 1}, fieldValidation="Strict"),
        "a namespace that is not there": rig.api.refusal("POST", missing, claim("n")),
        "an object that is not there": rig.api.refusal("PUT", f"{rig.claims}/n", absent),
        "to patch what is not there": rig.api.refusal("PATCH", f"{rig.claims}/n", LABEL, kind=MERGE),
        "to delete what is not there": rig.api.refusal("DELETE", f"{rig.claims}/n"),
        "a patch whose test fails": rig.api.refusal("PATCH", path, test, kind=JSON_PATCH),
        "a conflict of appliers": rig.api.refusal("PATCH", path, applied, kind=APPLY, fieldManager="f"),
        "a precondition": rig.api.refusal("DELETE", path, {"preconditions": {"uid": "other"}}),
        "an option": rig.api.refusal("POST", rig.claims, claim("n"), dryRun="Some"),
        "the user's rights": _refused(rig.user("nobody"), rig.claims),
    }  # fmt: skip

    assert asked(rig) == []
    assert {what: refusal.code for what, refusal in refusals.items()} == {
        "text that is no JSON": 400, "another kind": 400, "an unknown member, strictly": 400,
        "a namespace that is not there": 404, "an object that is not there": 404, "to patch what is not there": 404,
        "to delete what is not there": 404, "a patch whose test fails": 422, "a conflict of appliers": 409,
        "a precondition": 409, "an option": 422, "the user's rights": 403,
    }  # fmt: skip


def _refused(user: Client, path: str) -> Any:
    return user.refusal("POST", path, claim("n"))


def test_write_refused_between_the_phases_reaches_only_the_first(rig: Rig) -> None:
    made = rig.api.create(rig.claims, claim("c"))
    rig.api.patch(f"{rig.claims}/c", LABEL)
    both(rig)

    assert rig.api.refusal("POST", rig.claims, claim("Not A Name")).code == 422
    assert asked(rig) == ["mutating CREATE"]
    assert rig.api.refusal("PUT", f"{rig.claims}/c", made).code == 409
    assert asked(rig) == ["mutating UPDATE"]
    assert rig.api.refusal("PATCH", f"{rig.claims}/c", {"spec": {"devices": {"requests": []}}}, kind=MERGE).code == 422
    assert asked(rig) == ["mutating UPDATE"]


def test_name_conflict_is_reported_after_both_phases(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    both(rig)

    assert rig.api.refusal("POST", rig.claims, claim("c")).code == 409
    assert asked(rig) == ["mutating CREATE", "validating CREATE"]


def test_an_update_that_changes_nothing_is_shown_to_both(rig: Rig) -> None:
    made = rig.api.create(rig.claims, claim("c"))
    both(rig)

    assert version(rig.api.put(f"{rig.claims}/c", made)) == version(made)
    assert asked(rig) == ["mutating UPDATE", "validating UPDATE"]


def test_terminating_namespace_refuses_creations_whatever_webhooks_say(rig: Rig) -> None:
    ending = rig.api.namespace(f"{rig.mine}-ending")
    both(rig)
    rig.api.delete(f"{NAMESPACES}/{ending}")
    path = rig.claims.replace(rig.mine, ending, 1)

    def refused() -> bool:
        return rig.api.ask("POST", path, claim("n"), dryRun="All").status == 403

    until(refused, "the namespace is known to end")
    assert asked(rig) == []


def test_a_deletion_with_finalizers_is_judged_when_it_begins(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c", finalizers=["example.com/f"]))
    both(rig)

    rig.api.delete(f"{rig.claims}/c")
    assert asked(rig) == ["mutating DELETE", "validating DELETE"]
    rig.api.delete(f"{rig.claims}/c")
    assert asked(rig) == ["mutating DELETE", "validating DELETE"]
    gone = rig.api.patch(f"{rig.claims}/c", {"metadata": {"finalizers": None}})
    assert gone["metadata"]["deletionTimestamp"]
    assert asked(rig) == ["mutating UPDATE", "validating UPDATE"]
    assert rig.api.ask("GET", f"{rig.claims}/c").status == 404


def test_a_deletion_that_orphans_is_judged_once(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    both(rig)

    rig.api.delete(f"{rig.claims}/c", propagationPolicy="Orphan")

    assert asked(rig) == ["mutating DELETE", "validating DELETE"]
    assert rig.api.get(f"{rig.claims}/c")["metadata"]["finalizers"] == ["orphan"]


def test_a_deletion_that_is_denied_leaves_no_finalizer(rig: Rig) -> None:
    made = rig.api.create(rig.claims, claim("c"))
    rig.webhook("validating", deny(message="no"))

    rig.api.refusal("DELETE", f"{rig.claims}/c", propagationPolicy="Foreground")

    assert rig.api.get(f"{rig.claims}/c") == made


def test_each_object_of_a_collection_is_judged_by_itself(rig: Rig) -> None:
    for name in ("a", "b", "c"):
        rig.api.create(rig.claims, claim(name, labels={"name": name}))
    rig.webhook("validating", allow(), deny(message="not b"), name="v")

    refusal = rig.api.refusal("DELETE", rig.claims)

    assert refusal.message.endswith(" denied the request: not b")
    calls = rig.calls()
    assert [call.request["oldObject"]["metadata"]["name"] for call in calls] == ["a", "b"]
    assert all("name" not in call.request and call.request["object"] is None for call in calls)
    assert [item["metadata"]["name"] for item in rig.api.get(rig.claims)["items"]] == ["b", "c"]


def test_an_empty_collection_is_deleted_unseen(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("a"))
    both(rig)

    rig.api.delete(rig.claims, labelSelector="no=body")

    assert asked(rig) == []


def test_only_what_a_selector_leaves_is_judged(rig: Rig) -> None:
    for name in ("a", "b"):
        rig.api.create(rig.claims, claim(name, labels={"name": name}))
    both(rig)

    rig.api.delete(rig.claims, labelSelector="name=b", dryRun="All")

    assert asked(rig) == ["mutating DELETE", "validating DELETE"]
    assert [call.request["oldObject"]["metadata"]["name"] for call in rig.calls()] == ["b", "b"]
    assert len(rig.api.get(rig.claims)["items"]) == 2


def test_a_patch_that_was_overtaken_is_judged_again(rig: Rig) -> None:
    """Nothing is locked while a webhook thinks."""
    rig.api.create(rig.claims, claim("c", labels={"n": "0"}))
    held = {"hold": True, **patch(add("/metadata/annotations", {"by": "webhook"}))}
    selector = {"matchLabels": {"a": "b"}}
    rig.webhook("mutating", held, name="m", objectSelector=selector)
    rig.webhook("validating", name="v", objectSelector=selector)
    other = rig.user("other", "system:masters")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.api.patch, f"{rig.claims}/c", LABEL)
        rig.calls("m", count=1)
        other.patch(f"{rig.claims}/c", {"metadata": {"labels": {"n": "1"}}})
        rig.cluster.hooks.release(f"/{rig.mine}/m")
        made = answer.result()

    assert made["metadata"]["labels"] == {"n": "1", "a": "b"}
    assert made["metadata"]["annotations"] == {"by": "webhook"}
    first, *_, last = rig.calls("m")
    assert first.request["oldObject"]["metadata"]["labels"] == {"n": "0"}
    assert last.request["oldObject"]["metadata"]["labels"] == {"n": "1"}
    assert rig.calls("v")[-1].request["object"]["metadata"]["labels"] == {"n": "1", "a": "b"}


def test_an_update_that_was_overtaken_is_a_conflict(rig: Rig) -> None:
    made = rig.api.create(rig.claims, claim("c"))
    made["metadata"]["labels"] = {"a": "b"}
    rig.webhook("validating", {"hold": True}, name="v", objectSelector={"matchLabels": {"a": "b"}})
    other = rig.user("other", "system:masters")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.api.refusal, "PUT", f"{rig.claims}/c", made)
        rig.calls("v", count=1)
        other.patch(f"{rig.claims}/c", {"metadata": {"annotations": {"n": "1"}}})
        rig.cluster.hooks.release(f"/{rig.mine}/v")
        refusal = answer.result()

    assert (refusal.code, refusal.reason) == (409, "Conflict")
    assert [call.request["operation"] for call in rig.calls("v")] == ["UPDATE"]


def test_object_deleted_during_a_webhook_call_is_not_found(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook("validating", {"hold": True}, name="v", rules=[rig.rule(operations=["UPDATE"])])
    other = rig.user("other", "system:masters")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.api.refusal, "PATCH", f"{rig.claims}/c", LABEL, kind=MERGE)
        rig.calls("v", count=1)
        other.delete(f"{rig.claims}/c")
        rig.cluster.hooks.release(f"/{rig.mine}/v")
        refusal = answer.result()

    assert (refusal.code, refusal.reason) == (404, "NotFound")


def test_a_change_of_a_status_is_judged_as_one_of_its_subresource(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook("validating", deny(message="main"), name="main", rules=[rig.rule("resourceclaims")])
    rig.webhook("mutating", name="status", rules=[rig.rule("resourceclaims/status")])

    rig.api.patch(f"{rig.claims}/c/status", {"status": ALLOCATED})

    assert asked(rig) == ["status UPDATE"]


def test_slow_webhook_delays_no_other_request(rig: Rig) -> None:
    rig.webhook("mutating", {"hold": True}, name="m", objectSelector={"matchLabels": {"a": "b"}})
    others = [rig.user(f"other-{number}", "system:masters") for number in range(8)]

    with ThreadPoolExecutor(8) as pool:
        slow = [
            pool.submit(user.create, rig.claims, claim(f"slow-{number}", labels={"a": "b"}))
            for number, user in enumerate(others)
        ]
        rig.calls("m", count=8)
        for number in range(5):
            rig.api.create(rig.claims, claim(f"quick-{number}"))
        assert len(rig.api.get(rig.claims)["items"]) == 5
        rig.cluster.hooks.release(f"/{rig.mine}/m")
        for answer in slow:
            answer.result()

    assert len(rig.api.get(rig.claims)["items"]) == 13


def test_validating_webhooks_run_at_once_and_mutating_ones_in_order(rig: Rig) -> None:
    rig.webhooks(
        "mutating", rig.hook({"hold": True}, name="m1"), rig.hook({"hold": True}, name="m2"), name=f"{rig.mine}-m"
    )
    rig.webhooks(
        "validating", *(rig.hook({"hold": True}, name=f"v{number}") for number in range(5)), name=f"{rig.mine}-v"
    )

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.api.create, rig.claims, claim("c"))
        assert [call.hook for call in rig.calls(count=1)] == ["m1"]
        rig.cluster.hooks.release(f"/{rig.mine}/m1")
        assert [call.hook for call in rig.calls(count=2)] == ["m1", "m2"]
        rig.cluster.hooks.release(f"/{rig.mine}/m2")
        assert sorted(call.hook for call in rig.calls(count=7)[2:]) == ["v0", "v1", "v2", "v3", "v4"]
        for number in range(5):
            rig.cluster.hooks.release(f"/{rig.mine}/v{number}")
        answer.result()


def test_the_time_of_a_request_is_what_its_webhooks_have(rig: Rig) -> None:
    """In whole seconds, rounded up; never more than their own."""
    for phase in PHASES:
        rig.webhooks(phase, *(rig.hook(name=f"{phase}-{seconds}", timeoutSeconds=seconds) for seconds in (20, 5)))

    rig.api.create(rig.claims, claim("c"), timeout="10s")

    assert {call.hook: call.query for call in rig.calls()} == {
        "mutating-20": "timeout=10s",
        "mutating-5": "timeout=5s",
        "validating-20": "timeout=10s",
        "validating-5": "timeout=5s",
    }


def test_request_past_its_deadline_calls_no_further_webhook(rig: Rig) -> None:
    """Their failurePolicy does not matter."""
    hooks = [rig.hook({"hold": True}, name=name, failurePolicy="Ignore") for name in ("1", "2")]
    rig.webhooks("mutating", *hooks)

    # kube-apiserver may say so with a 504, or hang up.
    with contextlib.suppress(http.client.RemoteDisconnected):
        assert rig.api.ask("POST", rig.claims, claim("c"), timeout="1s").status == 504

    assert [call.hook for call in rig.calls()] == ["1"]
    assert rig.api.get(rig.claims)["items"] == []
