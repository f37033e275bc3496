"""Quotas limit how many objects of a kind a namespace has, and say how many there are.

No controller runs here: the tests write what it would, the limits that are in force and what was used when it last counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.controlplane.plane import until
from tests.promises.admission.hooks import deny
from tests.promises.admission.rig import Rig
from tests.promises.api.client import NAMESPACES, Client, Object, claim

AMOUNTS = itertools.count(1001)
APPLY = "application/apply-patch+yaml"


class Quotas:
    """Those of one test. One more limit in each, on claim templates and reached, tells which state of it a server has seen."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.path = f"{NAMESPACES}/{rig.mine}/resourcequotas"
        self.claims, self.templates = (f"count/{plural}.{rig.group}" for plural in ("resourceclaims", PROBING))

    def limit(
        self, hard: Mapping[str, str], used: Mapping[str, str] | None = None, *, name: str = "q", **more: Any
    ) -> None:
        """A new quota as the controller leaves it; `status`: what there is of it. In force when this returns, unless not `told`."""
        spec = more.get("spec") or {"hard": dict(hard)}
        self.rig.api.create(self.path, {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})
        self.set(hard, used, name=name, **more)

    def set(
        self, hard: Mapping[str, str], used: Mapping[str, str] | None = None, *, name: str = "q", **more: Any
    ) -> None:
        amount = str(next(AMOUNTS))
        used = dict.fromkeys(hard, "0") if used is None else used
        seen = {self.templates: amount} if more.get("told", True) else {}
        quota = self.rig.api.get(f"{self.path}/{name}")
        quota["status"] = {"hard": {**hard, **seen}, "used": {**used, **seen}}
        self.rig.api.put(f"{self.path}/{name}/status", quota)
        if seen:
            until(lambda: f"limited: {self.templates}={amount}" in self._probe(), "the quota is in force", seconds=30)

    def used(self, name: str = "q") -> dict[str, str]:
        used: dict[str, str] = self.rig.api.get(f"{self.path}/{name}")["status"]["used"]
        return {name: amount for name, amount in used.items() if name != self.templates}

    def create(self, name: str = "c", **query: Any) -> str:
        """ "" when it was created, else why not."""
        return self.message(self.rig.api.ask("POST", self.rig.claims, claim(name), **query))

    def refusal(self, text: str, name: str = "c") -> str:
        return f'resourceclaims.{self.rig.group} "{name}" is forbidden: {text}'

    def exceeded(self, used: str, hard: str, *, quota: str = "q", name: str = "c") -> str:
        what = self.claims
        text = f"exceeded quota: {quota}, requested: {what}=1, used: {what}={used}, limited: {what}={hard}"
        return self.refusal(text, name)

    @staticmethod
    def message(reply: Any) -> str:
        if reply.status in (200, 201):
            return ""
        assert reply.status == 403, reply.text
        text: str = reply.json["message"]
        return text

    def _probe(self) -> str:
        path = self.rig.api.templates(self.rig.mine)
        reply = self.rig.api.ask("POST", path, template("probe"), dryRun="All")
        return "" if reply.status == 201 else str(reply.json["message"])


PROBING = "resourceclaimtemplates"


def template(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"spec": claim()["spec"]}}


@pytest.fixture
def quotas(rig: Rig) -> Quotas:
    return Quotas(rig)


def test_usage_is_claimed_before_a_creation_is_answered(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "3", "pods": "7"}, {quotas.claims: "1", "pods": "2"})
    before = quotas.rig.api.get(f"{quotas.path}/q")
    assert quotas.create("a") == ""
    assert quotas.used() == {quotas.claims: "2", "pods": "2"}
    assert quotas.create("b") == ""
    assert quotas.used() == {quotas.claims: "3", "pods": "2"}
    after = quotas.rig.api.get(f"{quotas.path}/q")
    for quota in (before, after):
        del quota["status"]["used"], quota["metadata"]["resourceVersion"], quota["metadata"]["managedFields"]
    assert before == after


def test_creation_that_exceeds_a_quota_is_refused_with_the_numbers(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1"}, {quotas.claims: "1"})
    refusal = quotas.rig.api.refusal("POST", quotas.rig.claims, claim("c"))
    assert (refusal.code, refusal.reason, refusal.message) == (403, "Forbidden", quotas.exceeded("1", "1"))
    assert refusal.details == {"name": "c", "group": quotas.rig.group, "kind": "resourceclaims"}
    assert quotas.rig.api.get(quotas.rig.claims)["items"] == []
    assert quotas.used() == {quotas.claims: "1"}


def test_refusal_contains_the_generated_name(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "0"})
    refusal = quotas.rig.api.refusal("POST", quotas.rig.claims, claim(generateName="gen-"))
    name = refusal.details["name"]
    assert name.startswith("gen-")
    assert refusal.message == quotas.exceeded("0", "0", name=name)


def test_at_the_limit_everything_else_goes_on(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1"})
    assert quotas.create() == ""
    path, api = f"{quotas.rig.claims}/c", quotas.rig.api
    api.patch(path, {"metadata": {"labels": {"x": "y"}}})
    api.put(path, api.get(path))
    api.patch(f"{path}/status", {"status": {}})
    api.patch(path, {"apiVersion": f"{quotas.rig.group}/v1", "kind": "ResourceClaim"}, kind=APPLY, fieldManager="m")
    api.delete(path, dryRun="All")
    api.delete(path)
    assert quotas.used() == {quotas.claims: "1"}


def test_a_dry_run_is_judged_and_claims_nothing(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1"})
    assert quotas.create("a", dryRun="All") == ""
    assert quotas.used() == {quotas.claims: "0"}
    assert quotas.create("a") == ""
    assert quotas.create("b", dryRun="All") == quotas.exceeded("1", "1", name="b")


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["NotTerminating"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}},
    ],
)
def test_a_quota_with_scopes_is_not_about_claims(quotas: Quotas, spec: Object) -> None:
    quotas.limit({quotas.claims: "0"}, name="scoped", spec={"hard": {"pods": "1"}, **spec}, told=False)
    quotas.limit({"pods": "0"})
    assert quotas.create() == ""
    assert quotas.used("scoped") == {quotas.claims: "0"}


def test_nothing_is_created_while_usage_is_unknown(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1", "pods": "1"}, {})
    unknown = quotas.refusal(f"status unknown for quota: q, resources: {quotas.claims}")
    assert quotas.create() == unknown
    quotas.set({quotas.claims: "1"}, {quotas.claims: "0"})
    assert quotas.create() == ""


def test_a_limit_holds_once_the_controller_has_taken_it_over(quotas: Quotas) -> None:
    quotas.limit({"pods": "1"}, spec={"hard": {quotas.claims: "0"}})
    assert quotas.create() == ""
    quotas.set({quotas.claims: "0"})
    assert quotas.create("d") == quotas.exceeded("0", "0", name="d")


def test_every_quota_has_to_allow_it(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "9"}, name="wide", told=False)
    quotas.limit({"pods": "1"}, name="other", told=False)
    quotas.limit({quotas.claims: "1"}, name="narrow")
    assert [quotas.create("a"), quotas.create("b")] == ["", quotas.exceeded("1", "1", quota="narrow", name="b")]
    assert [quotas.used(name) for name in ("wide", "other", "narrow")] == [
        {quotas.claims: "1"},
        {"pods": "0"},
        {quotas.claims: "1"},
    ]


def test_a_quota_names_the_kind_and_its_group(quotas: Quotas) -> None:
    names = ("count/resourceclaims", "count/resourceclaims.example.com", f"count/resourceslices.{quotas.rig.group}")
    quotas.limit(dict.fromkeys(names, "0"))
    assert quotas.create() == ""
    assert quotas.used() == dict.fromkeys(names, "0")


def test_each_kind_is_counted_by_itself(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "5"})
    reply = quotas.rig.api.ask("POST", quotas.rig.api.templates(quotas.rig.mine), template("t"))
    assert reply.status == 403
    assert reply.json["message"].startswith(f'{PROBING}.{quotas.rig.group} "t" is forbidden: exceeded quota: q, ')
    assert quotas.used() == {quotas.claims: "0"}


def test_objects_count_in_whatever_version_they_are_created(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1"})
    older = quotas.rig.claims.replace("/v1/", "/v1beta2/")
    assert quotas.message(quotas.rig.api.ask("POST", older, claim("a"))) == ""
    assert quotas.message(quotas.rig.api.ask("POST", older, claim("b"))) == quotas.exceeded("1", "1", name="b")
    assert quotas.create("b") == quotas.exceeded("1", "1", name="b")


def test_an_apply_that_creates_counts(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1"})
    api = quotas.rig.api
    found = []
    for name in ("a", "b"):
        applied = {"apiVersion": f"{quotas.rig.group}/v1", "kind": "ResourceClaim", **claim(name)}
        sent = {"Content-Type": APPLY}
        found.append(api.ask("PATCH", f"{quotas.rig.claims}/{name}", applied, headers=sent, fieldManager="m"))
    assert [quotas.message(reply) for reply in found] == ["", quotas.exceeded("1", "1", name="b")]


def test_an_object_that_is_not_valid_is_not_counted(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "1"})
    wrong = claim("c")
    wrong["spec"]["devices"]["requests"][0]["name"] = "-"
    assert quotas.rig.api.refusal("POST", quotas.rig.claims, wrong).code == 422
    assert quotas.used() == {quotas.claims: "0"}


def test_creation_that_a_webhook_denies_is_not_counted(quotas: Quotas) -> None:
    quotas.rig.webhook("validating", deny())
    quotas.limit({quotas.claims: "1"}, told=False)
    assert "denied the request" in quotas.rig.api.refusal("POST", quotas.rig.claims, claim("c")).message
    assert quotas.used() == {quotas.claims: "0"}


def test_failed_creation_stays_counted_until_the_controller_recounts(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "3"})
    assert quotas.create() == ""
    assert quotas.rig.api.refusal("POST", quotas.rig.claims, claim("c")).reason == "AlreadyExists"
    quotas.rig.api.delete(f"{quotas.rig.claims}/c")
    assert quotas.used() == {quotas.claims: "2"}
    quotas.set({quotas.claims: "3"}, {quotas.claims: "0"})
    assert quotas.create() == ""
    assert quotas.used() == {quotas.claims: "1"}


def test_amounts_are_written_in_their_shortest_form(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "2k"}, {quotas.claims: "1998"})
    assert quotas.create("a") == ""
    assert quotas.used() == {quotas.claims: "1999"}
    assert quotas.create("b") == ""
    assert quotas.used() == {quotas.claims: "2k"}
    assert quotas.create("c") == quotas.exceeded("2k", "2k")


def test_deleted_quota_limits_nothing(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "0"})
    assert quotas.create() == quotas.exceeded("0", "0")
    quotas.rig.api.delete(f"{quotas.path}/q")
    until(lambda: quotas.create(dryRun="All") == "", "the quota does not limit any more", seconds=30)
    assert quotas.create() == ""


def test_many_creations_at_once_get_exactly_what_is_left(quotas: Quotas) -> None:
    quotas.limit({quotas.claims: "20"})
    with ThreadPoolExecutor(10) as threads:
        found = list(threads.map(lambda part: _create_some(quotas, part), range(10)))
    verdicts = [verdict for part in found for verdict in part]
    assert verdicts.count("") == 20
    assert {text.partition(": ")[2].partition(",")[0] for text in verdicts if text} == {"exceeded quota: q"}
    assert quotas.used() == {quotas.claims: "20"}
    assert len(quotas.rig.api.get(quotas.rig.claims)["items"]) == 20


def _create_some(quotas: Quotas, part: int) -> Sequence[str]:
    """Five claims, one after another on a connection of their own; other parts do the same."""
    client = Client(quotas.rig.target)
    try:
        return [
            quotas.message(client.ask("POST", quotas.rig.claims, claim(f"c-{part}-{number}"))) for number in range(5)
        ]
    finally:
        client.close()
