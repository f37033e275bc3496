"""Webhook plugins and the answers of webhooks: order, rounds, notes, counts, and messages to clients."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from apiserver import collectors
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.chain import Chain
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.sources import Nothing, Sources
from apiserver.admission.webhooks.asking import NOTED_TOGETHER
from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from apiserver.admission.webhooks.mutating import MutatingAdmissionWebhook
from apiserver.admission.webhooks.validating import ValidatingAdmissionWebhook
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import CreateOptions
from apiserver.apimachinery.request import Decision, Level
from apiserver.cluster.params import Params
from apiserver.codecs.json import rawjson
from tests.unit.admission.changes import KINDS, Namespaces, change, labelled

Answer = Mapping[str, Any] | Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}


def webhook(name: str, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": {"url": f"https://hooks.example.com/{name}"},
        "rules": [EVERYTHING],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **members,
    }


def patch(*operations: Mapping[str, Any]) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def label(name: str, value: str = "") -> dict[str, Any]:
    return patch({"op": "add", "path": f"/metadata/labels/{name}", "value": value})


class Hooks:
    """In place of the connections: what each webhook answers, by its name, and who was asked. None fails."""

    def __init__(self, **answers: Answer | None) -> None:
        self.answers = {name.replace("_", "."): answer for name, answer in answers.items()}
        self.asked: list[str] = []
        self.seconds: list[float] = []

    async def call(self, target: Target, review: bytes, *, seconds: float) -> bytes:
        name = target.path.removeprefix("/")
        self.asked.append(name)
        self.seconds.append(seconds)
        request = json.loads(review)["request"]
        answer = self.answers.get(name, {})
        if answer is None:
            raise CallFailed("no")
        members = await answer(request) if callable(answer) else answer
        response = {"uid": request["uid"], "allowed": True, **members}
        return json.dumps(
            {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        ).encode()


class Rig:
    """Both plugins, with configurations by name."""

    def __init__(self, hooks: Hooks, **configurations: Sequence[Mapping[str, Any]]) -> None:
        self.hooks, self.source = hooks, Nothing()
        self.configure(**configurations)
        empty = Nothing()
        sources = Sources(
            mutating_webhooks=self.source,
            validating_webhooks=self.source,
            mutating_policies=empty,
            mutating_bindings=empty,
            validating_policies=empty,
            validating_bindings=empty,
            quotas=empty,
            params=cast(Params, None),
        )
        matcher = Matcher(KINDS, Namespaces({"ns": {"metadata": {}}}))
        known = (sources, matcher, cast(Caller, hooks), Expressions(_nobody))
        self.mutating, self.validating = MutatingAdmissionWebhook(*known), ValidatingAdmissionWebhook(*known)

    def configure(self, **configurations: Sequence[Mapping[str, Any]]) -> None:
        self.source.items = {name.replace("_", "-"): {"webhooks": hooks} for name, hooks in configurations.items()}
        self.source.version += 1

    async def admit(self, attributes: Attributes | None = None) -> Attributes:
        attributes = attributes or change(new=labelled(x=""))
        await Chain([self.mutating]).admit(attributes)
        return attributes

    async def refused(self, attributes: Attributes | None = None, *, validating: bool = False) -> StatusError:
        judge = self.validating.validate(attributes or change()) if validating else self.admit(attributes)
        with pytest.raises(StatusError) as caught:
            await judge
        return caught.value


async def _nobody(*_: Any) -> Decision:
    return Decision(allowed=False)


def labels(attributes: Attributes) -> list[str]:
    assert attributes.object is not None
    return sorted(attributes.object["metadata"]["labels"].keys() - {"x"})


async def test_configurations_are_asked_by_name_and_their_webhooks_as_they_stand() -> None:
    rig = Rig(Hooks(), b=[webhook("1"), webhook("0")], a=[webhook("3"), webhook("2")])
    await rig.admit()
    assert rig.hooks.asked == ["3", "2", "1", "0"]


async def test_a_changed_configuration_holds_for_the_next_change() -> None:
    rig = Rig(Hooks(), a=[webhook("1")])
    await rig.admit()
    rig.configure(a=[webhook("2")])
    await rig.admit()
    rig.configure()
    await rig.admit()
    assert rig.hooks.asked == ["1", "2"]


async def test_each_webhook_sees_what_those_before_it_made_and_a_selector_too() -> None:
    picky = webhook("2", objectSelector={"matchLabels": {"a": ""}})
    rig = Rig(Hooks(**{"1": label("a"), "2": label("b")}), a=[picky], b=[webhook("1")], c=[picky])
    attributes = await rig.admit()
    assert (rig.hooks.asked, labels(attributes)) == (["1", "2"], ["a", "b"])


@pytest.mark.parametrize(
    ("policies", "answers", "asked"),
    [
        (["IfNeeded", "IfNeeded"], ["a", "b"], ["0", "1", "0"]),
        (["Never", "Never"], ["a", "b"], ["0", "1"]),
        (["IfNeeded", "Never"], ["a", ""], ["0", "1"]),
        (["IfNeeded", "IfNeeded", "IfNeeded"], ["a", "b", "c"], ["0", "1", "2", "0", "1"]),
        (["IfNeeded", "Never", "IfNeeded"], ["", "", "c"], ["0", "1", "2", "0"]),
        (["IfNeeded", "IfNeeded", "Never"], ["", "b", ""], ["0", "1", "2", "0"]),
    ],
)
async def test_plugin_with_reinvocation_is_called_once_more_after_changes(
    policies: Sequence[str], answers: Sequence[str], asked: Sequence[str]
) -> None:
    hooks = Hooks(**{str(i): label(name) if name else {} for i, name in enumerate(answers)})
    rig = Rig(hooks, a=[webhook(str(i), reinvocationPolicy=policy) for i, policy in enumerate(policies)])
    await rig.admit()
    assert hooks.asked == asked


async def test_changes_of_another_plugin_between_the_rounds_are_seen() -> None:
    hooks = Hooks(**{"0": label("a")})
    rig = Rig(hooks, a=[webhook("0", reinvocationPolicy="IfNeeded"), webhook("1")])

    class Later:
        async def admit(self, attributes: Attributes) -> Any:
            if attributes.reinvocation.again:
                return None
            assert attributes.object is not None
            return {**attributes.object, "metadata": {"name": "c", "labels": {"z": ""}}}

    await Chain([rig.mutating, Later()]).admit(change(new=labelled(x="")))
    assert hooks.asked == ["0", "1", "0"]


async def test_calls_and_patches_are_noted_for_the_record() -> None:
    rig = Rig(Hooks(**{"1": label("a", "<"), "2": None}), c=[webhook("1"), webhook("2", failurePolicy="Ignore")])
    rig.hooks.answers["1"] = {**label("a", "<"), "auditAnnotations": {"k": "v", "no key!": "x"}, "warnings": ["w"]}
    attributes = await rig.admit()
    place = "webhook.admission.k8s.io/round_0_index_"
    assert attributes.annotations.seen_at(Level.METADATA) == {
        "1/k": "v",
        f"mutation.{place}0": '{"configuration":"c","webhook":"1","mutated":true}',
        f"mutation.{place}1": '{"configuration":"c","webhook":"2","mutated":false}',
        f"failed-open.mutation.{place}1": "2",
    }
    operation = r'{"op":"add","path":"/metadata/labels/a","value":"\u003c"}'
    noted = attributes.annotations.seen_at(Level.REQUEST)[f"patch.{place}0"]
    assert noted == '{"configuration":"c","webhook":"1","patch":[' + operation + '],"patchType":"JSONPatch"}'
    assert attributes.warnings.headers() == ['299 - "w"']


async def test_a_patch_that_means_the_same_changes_nothing_but_is_noted() -> None:
    same = patch({"op": "add", "path": "/metadata/name", "value": "c"})
    rig = Rig(Hooks(**{"1": same}), c=[webhook("0", reinvocationPolicy="IfNeeded"), webhook("1")])
    attributes = await rig.admit()
    assert rig.hooks.asked == ["0", "1"]
    assert any(key.startswith("patch.") for key in attributes.annotations)


async def test_large_patch_is_noted_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: dict[str, bool] = {}
    escaped = rawjson.escaped

    def recorded(text: bytes) -> bytes:
        on_loop["patch" if b'"patch":' in text else "call"] = threading.current_thread() is threading.main_thread()
        return escaped(text)

    monkeypatch.setattr(rawjson, "escaped", recorded)
    large = patch({"op": "add", "path": "/metadata/annotations", "value": {f"k{at}": "v" for at in range(20_000)}})
    attributes = await Rig(Hooks(**{"1": large}), c=[webhook("1")]).admit()
    assert on_loop == {"patch": False, "call": True}
    noted = json.loads(attributes.annotations.seen_at(Level.REQUEST)["patch.webhook.admission.k8s.io/round_0_index_0"])
    assert len(noted["patch"][0]["value"]) == 20_000


async def test_validating_webhooks_run_at_once_and_the_first_refusal_counts() -> None:
    last = asyncio.Event()

    async def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        await last.wait()
        return {"allowed": False, "status": {"message": "slow"}}

    async def quick(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asyncio.get_running_loop().call_soon(last.set)
        return {"allowed": False, "status": {"message": "quick", "code": 403, "reason": "Forbidden"}}

    rig = Rig(Hooks(**{"1": slow, "2": quick}), a=[webhook("1"), webhook("2"), webhook("3")])
    error = await rig.refused(validating=True)
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message == 'admission webhook "2" denied the request: quick'
    assert rig.hooks.asked == ["1", "2", "3"]


async def test_fail_open_of_a_validating_webhook_is_noted_by_its_index() -> None:
    elsewhere = webhook("0", rules=[{**EVERYTHING, "resources": ["pods"]}])
    rig = Rig(Hooks(**{"2": None}), a=[elsewhere, webhook("1"), webhook("2", failurePolicy="Ignore")])
    attributes = change()
    await rig.validating.validate(attributes)
    assert attributes.annotations.seen_at(Level.METADATA) == {
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "2"
    }


@pytest.mark.parametrize(
    ("status", "code", "reason", "message"),
    [
        (None, 400, "", "denied the request without explanation"),
        ({"code": 200, "message": "m"}, 400, "", "denied the request: m"),
        ({"code": 429, "reason": "TooManyRequests"}, 429, "TooManyRequests", "denied the request: TooManyRequests"),
        ({"status": "Success", "code": 100000}, 500, "", "denied the request without explanation"),
        ({"code": 1000}, 500, "", "denied the request without explanation"),
        ({"code": 999}, 999, "", "denied the request without explanation"),
    ],
)
async def test_denial_gets_an_error_status(
    status: Mapping[str, Any] | None, code: int, reason: str, message: str
) -> None:
    rig = Rig(Hooks(w={"allowed": False, "status": status, **label("a")}), a=[webhook("w")])
    error = await rig.refused()
    assert (error.code, error.reason, error.message) == (code, reason, f'admission webhook "w" {message}')


@pytest.mark.parametrize(
    ("members", "answer", "code", "text"),
    [
        ({}, None, 500, 'Internal error occurred: failed calling webhook "w": failed to call webhook: no'),
        (
            {"admissionReviewVersions": ["v2"]},
            {},
            500,
            "could not create admission objects: webhook does not accept known",
        ),
        ({"clientConfig": {}}, {}, 500, "could not get REST client: "),
        ({}, {"uid": "x"}, 500, "received invalid webhook response: expected response.uid="),
        ({}, {"patch": "bm8=", "patchType": "JSONPatch"}, 500, "received undecodable patch in webhook response: "),
        ({}, {**label("a"), "patchType": "X"}, 500, 'unsupported patch type "X"'),
        (
            {},
            patch({"op": "remove", "path": "/x"}),
            500,
            "error in remove for path: '/x': Unable to remove nonexistent",
        ),
    ],
)
async def test_failed_calls_are_reported_and_counted(
    members: Mapping[str, Any], answer: Answer | None, code: int, text: str
) -> None:
    error = await Rig(Hooks(w=answer), a=[webhook("w", **members)]).refused()
    assert error.code == code
    assert text in error.message


async def test_failure_policy_does_not_cover_a_patch_that_does_not_fit() -> None:
    rig = Rig(Hooks(w=patch({"op": "remove", "path": "/x"})), a=[webhook("w", failurePolicy="Ignore")])
    assert (await rig.refused()).code == 500
    error = await rig.refused(change("DELETE"))
    why = 'admission webhook "w" attempted to modify the object, which is not supported for this operation'
    assert error.message == f"Internal error occurred: {why}"


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_dry_run_calls_no_webhook_with_side_effects(policy: str) -> None:
    rig = Rig(Hooks(), a=[webhook("w", sideEffects="Some", failurePolicy=policy)])
    error = await rig.refused(change(options=CreateOptions(dry_run=True)))
    assert (error.code, error.message) == (400, 'admission webhook "w" does not support dry run')
    assert rig.hooks.asked == []


async def test_a_webhook_has_no_longer_than_the_request() -> None:
    rig, now = Rig(Hooks(), a=[webhook("w", timeoutSeconds=7)]), asyncio.get_running_loop().time()
    await rig.admit()
    await rig.admit(change(until=now + 3))
    assert rig.hooks.seconds[0] == 7
    assert 0 < rig.hooks.seconds[1] <= 3


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("Ignore", "Timeout: request did not complete within requested timeout"),
        ("Fail", "Timeout: request did not complete within requested timeout - context deadline exceeded"),
    ],
)
async def test_request_past_its_deadline_is_a_timeout(policy: str, text: str) -> None:
    rig = Rig(Hooks(w=None), a=[webhook("w", failurePolicy=policy)])
    error = await rig.refused(change(until=0))
    assert (error.code, error.message) == (504, text)
    assert (await rig.refused(change(until=0), validating=True)).code == 504


async def test_calls_are_counted_by_what_became_of_them() -> None:
    denies = {"allowed": False, "status": {"code": 700}}
    rig = Rig(Hooks(m1=None, m2=denies), a=[webhook("m1", failurePolicy="Ignore"), webhook("m2")])
    await rig.refused()
    exposed = collectors.exposition_text().decode()
    for line in (
        'request_total{code="503",name="m1",operation="CREATE",rejected="false",type="admit"} 1',
        'request_total{code="600",name="m2",operation="CREATE",rejected="true",type="admit"} 1',
        'rejection_count{error_type="no_error",name="m2",operation="CREATE",rejection_code="600",type="admit"} 1',
        'fail_open_count{name="m1",type="admit"} 1',
    ):
        assert f"apiserver_admission_webhook_{line}" in exposed


async def test_where_no_webhook_is_configured_the_plugins_cost_next_to_nothing() -> None:
    rig, attributes, best = Rig(Hooks()), change(), 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            await rig.mutating.admit(attributes)
            await rig.validating.validate(attributes)
        best = min(best, (time.perf_counter() - began) / 100)
    assert best < 20e-6


async def test_thousands_of_annotations_in_one_answer_delay_no_other_request() -> None:
    rig = Rig(Hooks(**{"1": {"auditAnnotations": {f"k{at}": "v" for at in range(5000)}}}), one=[webhook("1")])
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await rig.admit()
    counting.cancel()
    assert turns >= 5000 // NOTED_TOGETHER
