"""Random validating policies about claims, in force on kube-apiserver's own kinds and on ours behind it: the same requests must have the
same answers, statuses and warnings word for word."""

from __future__ import annotations

import json
import pathlib
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiserver.admission.core.expressions import Scope
from kubecel.kubernetes import environments
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import Panic, ProgramError
from kubecel.values.types import BOOL, STRING
from tests.fuzz.expressions import Expressions
from tests.fuzz.selectors import Difference
from tests.promises.admission import stage as requests
from tests.promises.admission.cluster import Cluster, started
from tests.promises.admission.rig import Rig
from tests.promises.admission.stage import Policy, Stage
from tests.promises.api.client import Client

BATCH = 60
"""Policies that are in force together."""
CLAIM = {
    "map(string,string)": ("object.metadata.labels", "object.metadata.annotations", "variables.labels"),
    "string": (
        "object.metadata.name",
        "request.operation",
        "object.kind",
        "object.metadata.labels.tier",
        "variables.text",
    ),
    "int": ("size(object.spec.devices.requests)", "object.spec.devices.requests[1].exactly.count", "variables.count"),
    "double": ("object.spec.devices.config[0].opaque.parameters.f",),
    "dyn": (
        "object.spec",
        "oldObject",
        "object.metadata.nope",
        "object.spec.devices.config[0].opaque.parameters",
        "request.options",
    ),
    "list(string)": ("object.spec.devices.requests.map(r, r.name)", "variables.names"),
    "bool": ("has(object.status)", "request.dryRun", "'tier' in object.metadata.labels", "variables.known"),
}
"""First operands of expressions, by type. None differs from one server to the other."""
VARIABLES = {
    "labels": "object.metadata.labels",
    "text": "object.metadata.annotations.note",
    "count": "size(variables.labels)",
    "names": "object.spec.devices.requests.map(r, r.name)",
    "known": "variables.count > 1",
}
ASKS: Sequence[tuple[requests.Ask, str]] = (
    (requests.create, "*"),
    (requests.create, "CREATE"),
    (requests.older, "*"),
    (requests.replace, "UPDATE"),
    (requests.delete, "DELETE"),
)
"""A request, and the operations of the policy that judges it: not those that make the object ready for it."""
OTHER = {"matchLabels": {"other": "label"}}


class Drawn:
    """Policies that both servers accept: what does not compile is left out, as a server that is asked for it would refuse it."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self._expressions = Expressions(seed, CLAIM)
        self._environments: dict[bool, Any] = {}

    def policy(self) -> Policy:
        choose = self._choose
        variables = [{"name": name, "expression": text} for name, text in VARIABLES.items()]
        spec: dict[str, Any] = {"variables": variables, "failurePolicy": choose.choice(("Fail", "Fail", "Ignore"))}
        spec["validations"] = [self._validation() for _ in range(choose.randrange(1, 5))]
        if choose.random() < 0.3:
            texts = [self._compiling("bool", composed=False) for _ in range(choose.randrange(1, 4))]
            spec["matchConditions"] = [{"name": f"c{at}", "expression": text} for at, text in enumerate(texts)]
        if choose.random() < 0.3:
            spec["auditAnnotations"] = [{"key": "k", "valueExpression": self._compiling("string")}]
        actions = choose.choice((["Deny"], ["Warn"], ["Warn", "Audit"], ["Deny", "Audit"]))
        ask, operation = choose.choice(ASKS)
        rule: dict[str, Any] = {"operations": [operation]}
        rule |= choose.choice(({}, {}, {}, {"apiVersions": ["v1beta1"]}, {"apiVersions": ["v1beta2"]}))
        match = choose.choice(
            ({}, {}, {"matchPolicy": "Exact"}, {"excludeResourceRules": [{**NAMED, "operations": ["DELETE"]}]})
        )
        binding = {
            "validationActions": actions,
            **choose.choice(({}, {}, {}, {"matchResources": {"objectSelector": OTHER}})),
        }
        return Policy(spec, bindings=(binding,), rule=rule, match=match, ask=ask)

    def _validation(self) -> Mapping[str, Any]:
        made: dict[str, Any] = {"expression": self._compiling("bool")}
        if self._choose.random() < 0.4:
            made["messageExpression"] = self._compiling("string")
        if self._choose.random() < 0.3:
            made["reason"] = self._choose.choice(("Forbidden", "Invalid", "RequestEntityTooLarge"))
        return made

    def _compiling(self, of: str, *, composed: bool = True) -> str:
        while True:
            text = self._expressions.draw(of)
            if (
                text.strip()
                and text.isprintable()
                and text.isascii()
                and len(text) < 300
                and self._is(text, of, composed=composed)
            ):
                return text

    def _is(self, text: str, of: str, *, composed: bool) -> bool:
        """By what a new expression may use."""
        if composed not in self._environments:
            scope = Scope(variables=VARIABLES.items())
            scope.compile()
            types = scope.types if composed else None
            shape = environments.composed(dict(types)) if types is not None else None
            self._environments[composed] = environments.admission(params=False, authorizes=False, variables=shape).new
        environment = self._environments[composed]
        try:
            checked = environment.compile(text)
            Program(checked, environment)
        except (CompileError, ProgramError, Panic):
            return False
        return bool(checked.output == (BOOL if of == "bool" else STRING))


NAMED = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}


def differences(seed: int, count: int) -> Iterator[Difference]:
    drawn = Drawn(seed)
    with tempfile.TemporaryDirectory(prefix="s-") as folder, started(pathlib.Path(folder)) as cluster:
        for start in range(0, count, BATCH):
            batch = {f"p{at}": drawn.policy() for at in range(start, min(count, start + BATCH))}
            theirs, ours = (_answers(cluster, name, start, batch) for name in ("upstream", "aggregated"))
            for key, policy in batch.items():
                if theirs[key] != ours[key]:
                    yield Difference(
                        json.dumps([policy.spec, policy.bindings, policy.rule, policy.match]), theirs[key], ours[key]
                    )


def _answers(cluster: Cluster, name: str, start: int, policies: Mapping[str, Policy]) -> dict[str, str]:
    """By the policies' names, without what differs between the two."""
    target = cluster.targets[name]
    api = Client(target)
    rig = Rig(cluster, target, api, api.namespace(f"fuzz-{name[0]}-{start}"))
    try:
        made = Stage(rig, "validating", policies)
        return {key: _answer(rig, made, key) for key in policies}
    finally:
        rig.leave()
        api.leave()
        api.close()


def _answer(rig: Rig, made: Stage, key: str) -> str:
    reply = made.reply(key)
    said = (
        {} if reply.status < 300 else {name: reply.json.get(name) for name in ("message", "reason", "details", "code")}
    )
    warnings = reply.headers.get_all("Warning", [])
    return str(json.dumps([reply.status, rig.normal(said), rig.normal(warnings)], sort_keys=True))
