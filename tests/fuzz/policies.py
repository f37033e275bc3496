"""Random expressions evaluated by a kube-apiserver, as validations of a ValidatingAdmissionPolicy, and by us directly.

The result of a validation comes back as a warning: that it is false, or the error. Costs do not come back, but for reaching their limit.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apiserver.apimachinery.releases import Release
from kubecel.kubernetes import environments
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import CostExceeded, EvaluationError, ProgramError
from kubecel.values.types import BOOL, STRING, Type
from tests.e2e.controlplane import binaries
from tests.fixtures.server import Reply
from tests.fuzz.expressions import SCALARS, Expressions
from tests.fuzz.selectors import Difference

OBJECT = {
    "map(string,string)": ("object.data", "object.metadata.labels"),
    "string": ("object.metadata.name", "object.data.text", "object.data['number']"),
    "dyn": ("object", "object.data.missing", "object.immutable", "oldObject"),
    "bool": ("object.immutable", "has(object.data.missing)"),
}
"""First operands of a validation."""
RELEASE = Release(*map(int, binaries.minor().split(".")))
VALIDATIONS = 40
WARNED_CHARACTERS = 3_000
"""Characters of warnings in one answer: kube-apiserver cuts them above 4,096."""
SECONDS = 120.0
"""How long a policy may take until it is in force."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PREFIX = "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': "


class Server(Protocol):
    """Anything that answers requests."""

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Reply: ...


@dataclass(frozen=True, slots=True)
class Question:
    """A validation, and what we say of it: `true`, `false`, or an error."""

    expression: str
    ours: str

    @property
    def warned(self) -> int:
        """Characters of the warning that we expect."""
        return 0 if self.ours == "true" else 200 + len(self.expression) + len(self.ours)


def config_map(namespace: str) -> dict[str, Any]:
    """The object that policies are asked about."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "judged", "namespace": namespace, "labels": {"app": "web", "tier": ""}},
        "data": {"text": "hello wörld", "number": "17", "list": "a,b,,c"},
        "immutable": True,
    }


class Judge:
    """Evaluates as a policy does, for the same object."""

    def __init__(self, obj: dict[str, Any]) -> None:
        self._environment = environments.admission(RELEASE, params=False, authorizes=True).new
        self._variables = {"object": obj, "oldObject": None}

    def questions(self, seed: int) -> Iterator[Question]:
        """Without end: conditions, and values of scalar types written as text; those alone that compile, and that a header can carry."""
        choose, drawn = random.Random(seed), Expressions(seed, OBJECT)
        while True:
            of = choose.choice(SCALARS)
            text = drawn.draw() if choose.random() < 0.5 else f"string({drawn.draw(of)})"
            asked = self._question(text)
            if asked is not None and f"{asked.expression}{asked.ours}".isprintable():
                yield asked

    def _question(self, text: str) -> Question | None:
        try:
            if self._type(text) == STRING:
                value = self._value(text)
                text = f"({text}) == {json.dumps(value, ensure_ascii=False)}"
            return Question(text, "true" if self._value(text) else "false") if self._type(text) == BOOL else None
        except EvaluationError as error:
            # A text that cannot be made is compared with one, for there must be a condition.
            text = text if self._type(text) == BOOL else f'({text}) == ""'
            return Question(text, str(error))
        except (CompileError, ProgramError, CostExceeded):
            return None

    def _type(self, text: str) -> Type:
        return self._environment.compile(text).output

    def _value(self, text: str) -> Any:
        checked = self._environment.compile(text)
        return Program(checked, self._environment, cost_limit=environments.COST_LIMIT).evaluate(self._variables).value


def differences(server: Server, namespace: str, questions: Sequence[Question]) -> Iterator[Difference]:
    """Makes policies of them, one after the other, and creates the object, dry, under each."""
    for at, batch in enumerate(_batches(questions)):
        name = f"judged-{at}"
        yield from _judged(server, namespace, name, batch)
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            server.ask("DELETE", f"{_ADMISSION}/{kind}/{name}")


def _batches(questions: Sequence[Question]) -> Iterator[list[Question]]:
    batch: list[Question] = []
    for question in questions:
        warned = sum(asked.warned for asked in (*batch, question))
        if batch and (warned > WARNED_CHARACTERS or len(batch) == VALIDATIONS):
            yield batch
            batch = []
        batch.append(question)
    if batch:
        yield batch


def _judged(server: Server, namespace: str, name: str, batch: list[Question]) -> Iterator[Difference]:
    reply = server.ask("POST", f"{_ADMISSION}/validatingadmissionpolicies", _policy(namespace, name, batch))
    if reply.status != 201:
        yield from (Difference(asked.expression, reply.json["message"], asked.ours) for asked in batch[:1])
        return
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Warn"]}}
    assert server.ask("POST", f"{_ADMISSION}/validatingadmissionpolicybindings", binding).status == 201
    warnings = _warnings(server, namespace, name)
    for at, asked in enumerate(batch):
        failed = f"expression '{asked.expression}' resulted in error: "
        errors = [text.removeprefix(failed) for text in warnings if text.startswith(failed)]
        theirs = errors[0] if errors else "false" if f"false {at}" in warnings else "true"
        if theirs != asked.ours:
            yield Difference(asked.expression, theirs, asked.ours)


def _policy(namespace: str, name: str, batch: list[Question]) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    labels = {"kubernetes.io/metadata.name": namespace}
    validations = [{"expression": asked.expression, "message": f"false {at}"} for at, asked in enumerate(batch)]
    return {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": {"matchLabels": labels}, "resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "in force"}, *validations],
        },
    }


def _warnings(server: Server, namespace: str, name: str) -> list[str]:
    """Warnings of the policy, once it is in force."""
    prefix, until = _PREFIX.format(name=name), time.monotonic() + SECONDS
    while time.monotonic() < until:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        reply = server.ask("POST", path, config_map(namespace), dryRun="All")
        headers = [text.encode("latin-1").decode() for text in reply.headers.get_all("Warning") or ()]
        warnings = [json.loads(text.removeprefix("299 - ")) for text in headers]
        ours = [text.removeprefix(prefix) for text in warnings if text.startswith(prefix)]
        if "in force" in ours:
            return ours
    raise AssertionError(f"the policy {name} was not in force within {SECONDS:g} s")
