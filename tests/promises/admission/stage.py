"""Many policies in force together, each for the objects that carry its label: a table of promises needs to wait once."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fixtures.server import Reply
from tests.promises.admission.cluster import Cluster
from tests.promises.admission.rig import Object, Phase, Rig, warnings
from tests.promises.api.client import MERGE, Client
from tests.promises.api.target import Target

LABEL = "promises.sluice.dev/policy"
Ask = Callable[["Stage", str], Reply]


@dataclass(frozen=True)
class Policy:
    """One of a table. `spec` is added to a policy for what carries its label; `bindings` are its bindings, one Deny if none is named.
    `rule`, `match`: members of its rule and its matchConstraints that differ. `ask` makes the request, about an object with the label.
    MINE in a text stands for what the rig's test has for itself, and VERSION for the group and its first version."""

    spec: Mapping[str, Any]
    bindings: Sequence[Mapping[str, Any]] = ({},)
    rule: Mapping[str, Any] = field(default_factory=dict)
    match: Mapping[str, Any] = field(default_factory=dict)
    ask: Ask | None = None


class Stage:
    """The policies of a table on one target, in force, and the requests about them: each is made once, for all who ask what came of it."""

    def __init__(self, rig: Rig, phase: Phase, policies: Mapping[str, Policy]) -> None:
        self.rig, self.api = rig, rig.api
        self._policies = policies
        self._parameters()
        for key, policy in policies.items():
            self._install(phase, key, policy)
        rig.wait_until_in_force("policies", phase)

    def _parameters(self) -> None:
        """ConfigMaps `a` and `b` of the test's namespace and `c` of another one, and a class; Sluice may read them."""
        other = self.api.namespace(f"{self.rig.mine}-other")
        for namespace, name, x, most in (
            (self.rig.mine, "a", "1", "1"),
            (self.rig.mine, "b", "2", "2"),
            (other, "c", "1", "3"),
        ):
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            self.api.create(path, {"metadata": {"name": name, "labels": {"x": x}}, "data": {"most": most}})
        self.api.create(self.rig.classes, {"metadata": {"name": f"{self.rig.mine}-param"}, "spec": {}})
        self.rig.later(f"{self.rig.classes}/{self.rig.mine}-param")
        kinds = ("", "configmaps"), (self.rig.group, "deviceclasses")
        rules = [{"apiGroups": [group], "resources": [name], "verbs": ["list", "watch"]} for group, name in kinds]
        self.api.patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/sluice-params", {"rules": rules})

    def _install(self, phase: Phase, key: str, policy: Policy) -> None:
        policy = self._named(policy)
        match: Object = {
            "resourceRules": [self.rig.rule(**{"scope": "*", **policy.rule})],
            "objectSelector": {"matchLabels": {LABEL: self.label(key)}},
            **policy.match,
        }
        name = self.name(key)
        spec = {"matchConstraints": match, **policy.spec}
        self.rig.policy(phase, spec, name=name, bind=False, wait=False)
        for at, binding in enumerate(policy.bindings):
            self.rig.bind(phase, name, name=self.binding(key, at), wait=False, **binding)

    def _named(self, policy: Policy) -> Policy:
        members = [policy.spec, policy.bindings, policy.rule, policy.match]
        spec, bindings, rule, match = json.loads(self.named(json.dumps(members)))
        return Policy(spec, bindings, rule, match)

    def named(self, text: str) -> str:
        return text.replace("MINE", self.rig.mine).replace("VERSION", f"{self.rig.group}/v1")

    def name(self, key: str) -> str:
        """The name of the policy, of its first binding, and of the object."""
        return f"{self.rig.mine}-{key}"

    def binding(self, key: str, at: int) -> str:
        return self.name(key) if at == 0 else f"{self.name(key)}-{at}"

    def label(self, key: str) -> str:
        return f"{self.rig.mine}-{key}"

    @functools.cache  # noqa: B019 - lives as long as its module's tests
    def reply(self, key: str) -> Reply:
        """To the request of a policy: a claim is created, unless it says something else."""
        ask = self._policies[key].ask or create
        return ask(self, key)

    def warned(self, key: str) -> list[str]:
        """Warnings for the request, without the names of policy and binding."""
        reply = self.reply(key)
        assert reply.status < 300, reply.text[:2000]
        named = f"'{self.name(key)}' with binding '{self.name(key)}'"
        begins = f"Validation failed for ValidatingAdmissionPolicy {named}: "
        said = [text.encode("latin-1").decode() for text in warnings(reply) if " is deprecated in " not in text]
        assert all(text.startswith(begins) for text in said), said
        return [text.removeprefix(begins) for text in said]

    # Objects and requests

    def claim(self, key: str, **metadata: Any) -> Object:
        """One that has a bit of everything."""
        parameters = {"apiVersion": "gpu.example.com/v1", "kind": "Gpu", "n": 1, "f": 1.5, "list": [1, "a", None]}
        opaque = {"driver": "gpu.example.com", "parameters": parameters}
        requests = [
            {"name": "one", "exactly": {"deviceClassName": "gpu"}},
            {"name": "two", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
        ]
        usual: Object = {
            "name": self.name(key),
            "labels": {LABEL: self.label(key), "tier": "web"},
            "annotations": {"note": "héllo", "empty": ""},
        }
        devices = {"requests": requests, "config": [{"requests": ["one"], "opaque": opaque}]}
        return {"metadata": {**usual, **metadata}, "spec": {"devices": devices}}

    def stored(self, key: str, *, config: bool = True) -> Object:
        """The claim, created. A PATCH spells raw JSON anew, which makes it another: it needs one without `config`."""
        obj = self.claim(key)
        if not config:
            del obj["spec"]["devices"]["config"]
        made = self.api.create(self.rig.claims, obj)
        self.rig.later(self.path(key))
        return made

    def path(self, key: str) -> str:
        return f"{self.rig.claims}/{self.name(key)}"


class Stages:
    """One for each target, made when it is first asked for."""

    def __init__(self, policies: Mapping[str, Policy], name: str) -> None:
        self._policies, self._name = policies, name
        self._made: dict[str, Stage] = {}

    def on(self, cluster: Cluster, target: Target, api: Client) -> Stage:
        if target.name not in self._made:
            mine = api.namespace(f"{self._name}-{target.name}")
            self._made[target.name] = Stage(Rig(cluster, target, api, mine), "validating", self._policies)
        return self._made[target.name]

    def leave(self) -> None:
        for stage in self._made.values():
            stage.rig.leave()
            stage.api.leave()


def create(stage: Stage, key: str) -> Reply:
    return stage.api.ask("POST", stage.rig.claims, stage.claim(key), dryRun="All")


def generated(stage: Stage, key: str) -> Reply:
    obj = stage.claim(key, generateName=f"{stage.rig.mine}-")
    del obj["metadata"]["name"]
    reply = stage.api.ask("POST", stage.rig.claims, obj, fieldManager="promises", fieldValidation="Strict")
    stage.rig.later(f"{stage.rig.claims}/{reply.json['metadata'].get('name', '')}")
    return reply


def replace(stage: Stage, key: str) -> Reply:
    obj = stage.stored(key)
    obj["metadata"]["labels"]["tier"] = "db"
    return stage.api.ask("PUT", stage.path(key), obj)


def patch(stage: Stage, key: str) -> Reply:
    stage.stored(key, config=False)
    body = {"metadata": {"labels": {"tier": "db"}}}
    return stage.api.ask(
        "PATCH", stage.path(key), body, headers={"Content-Type": MERGE}, dryRun="All", fieldManager="promises"
    )


def apply(stage: Stage, key: str) -> Reply:
    obj = {"apiVersion": f"{stage.rig.group}/v1", "kind": "ResourceClaim", **stage.claim(key)}
    kind = "application/apply-patch+yaml"
    return stage.api.ask(
        "PATCH", stage.path(key), obj, headers={"Content-Type": kind}, dryRun="All", fieldManager="promises", force="1"
    )


def status(stage: Stage, key: str) -> Reply:
    obj = stage.stored(key)
    obj["status"] = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u-1"}]}
    node = {"key": "x", "operator": "Exists"}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [node]}]}
    obj["status"]["allocation"] = {"devices": {}, "nodeSelector": selector}
    return stage.api.ask("PUT", f"{stage.path(key)}/status", obj)


def delete(stage: Stage, key: str) -> Reply:
    stage.stored(key)
    return stage.api.ask("DELETE", stage.path(key), {"propagationPolicy": "Background", "gracePeriodSeconds": 7})


def delete_collection(stage: Stage, key: str) -> Reply:
    stage.stored(key)
    return stage.api.ask("DELETE", stage.rig.claims, labelSelector=f"{LABEL}={stage.label(key)}")


def class_(stage: Stage, key: str) -> Reply:
    labels = {LABEL: stage.label(key)}
    obj = {"metadata": {"name": stage.name(key), "labels": labels}, "spec": {}}
    return stage.api.ask("POST", stage.rig.classes, obj, dryRun="All")


def older(stage: Stage, key: str) -> Reply:
    """The claim by the oldest version of its kind."""
    obj = stage.claim(key)
    for request in obj["spec"]["devices"]["requests"]:
        request.update(request.pop("exactly"))
    return stage.api.ask("POST", stage.rig.claims.replace("/v1/", "/v1beta1/"), obj, dryRun="All")
