"""Match conditions select the webhooks that are called."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.fixtures.server import Reply
from tests.promises.admission.cluster import Cluster
from tests.promises.admission.hooks import warn
from tests.promises.admission.rig import Object, Phase, Rig, warnings
from tests.promises.api.client import Client, claim
from tests.promises.api.target import Target

PHASES: tuple[Phase, ...] = ("mutating", "validating")
DIVIDED = "1 / (size(object.spec) - 1) == 0"
CHECK = "authorizer.group('apps').resource('deployments').check('create').allowed()"
LOOP = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, {})"
COSTLY = "true"
for _ in range(7):
    COSTLY = LOOP.format(COSTLY)

CALLED: Mapping[str, tuple[Sequence[str], bool]] = {
    "no-condition": ([], True),
    "true": (["true"], True),
    "false": (["true", "false"], False),
    "object": (["object.metadata.name == 'c' && object.kind == 'ResourceClaim'"], True),
    "no-old-object": (["oldObject == null"], True),
    "labels": (["has(object.metadata.labels) && object.metadata.labels.tier == 'web'"], True),
    "operation": (["request.operation == 'CREATE'", "request.dryRun"], True),
    "kind": (["request.kind.kind == 'ResourceClaim' && request.resource.resource == 'resourceclaims'"], True),
    "user": (["'system:masters' in request.userInfo.groups"], True),
    "another-user": (["request.userInfo.username == 'somebody-else'"], False),
    "authorizer": (["authorizer.requestResource.check('create').allowed()"], True),
    "service-account": (
        ["authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('get').allowed()"],
        False,
    ),
    "no-namespace": (["namespaceObject == null"], True),
    "error-and-false": ([DIVIDED, "false"], False),
    "error-absorbed": ([f"{DIVIDED} || true"], True),
    "error-ignored": ([DIVIDED], False),
    "error-of-a-namespace-ignored": (["namespaceObject.metadata.name == 'x'"], False),
    "costly-ignored": ([COSTLY], False),
    "costly-together-ignored": ([COSTLY, COSTLY, COSTLY], False),
    "checks": ([CHECK] * 7, True),
    "checks-too-many-ignored": ([CHECK] * 8, False),
}
FAILED = "expression '{}' resulted in error: {}"
REFUSED: Mapping[str, tuple[Sequence[str], str]] = {
    "error": (["true", DIVIDED], FAILED.format(DIVIDED, "division by zero")),
    "errors": (
        [DIVIDED, "object.nope == 1", DIVIDED],
        f"[{FAILED.format(DIVIDED, 'division by zero')}, {FAILED.format('object.nope == 1', 'no such key: nope')}]",
    ),
    "costly": ([COSTLY], FAILED.format(COSTLY, "operation cancelled: actual cost limit exceeded")),
    "costly-together": (
        [COSTLY] * 3,
        "validation failed due to running out of cost budget, no further validation rules will be run",
    ),
    "namespace": (
        ["namespaceObject.metadata.name == 'x'"],
        FAILED.format("namespaceObject.metadata.name == 'x'", "no such key: metadata"),
    ),
}
_NUMBERS = itertools.count()
LABEL = "promises.sluice.dev/refusing"


def _conditions(texts: Sequence[str]) -> list[Object]:
    return [{"name": f"c{at}", "expression": text} for at, text in enumerate(texts)]


class Asked:
    """One configuration for each phase with a webhook for each line of the tables; those that ignore failures are for every claim, the
    others each for those with its label. Each warns of its name."""

    def __init__(self, rig: Rig, phase: Phase) -> None:
        self.rig = rig
        hooks = [
            rig.hook(warn(f"called {key}"), name=key, failurePolicy="Ignore", matchConditions=_conditions(texts))
            for key, (texts, _) in CALLED.items()
        ]
        for key, (texts, _) in REFUSED.items():
            selector = {"matchLabels": {LABEL: key}}
            more: Object = {"failurePolicy": "Fail", "objectSelector": selector, "matchConditions": _conditions(texts)}
            hooks.append(rig.hook(warn(f"called {key}"), name=f"fail-{key}", **more))
        rig.webhooks(phase, *hooks)
        self._replies: dict[str, Reply] = {}

    def reply(self, label: str = "") -> Reply:
        """To the creation of a claim, with the label of a webhook that refuses."""
        if label not in self._replies:
            obj = claim("c", labels={"tier": "web", **({LABEL: label} if label else {})})
            self._replies[label] = self.rig.api.ask("POST", self.rig.claims, obj, dryRun="All")
        return self._replies[label]


@pytest.fixture(scope="module")
def known() -> Iterator[dict[tuple[str, Phase], Asked]]:
    made: dict[tuple[str, Phase], Asked] = {}
    yield made
    for asked in made.values():
        asked.rig.leave()
        asked.rig.api.leave()


@pytest.fixture(params=PHASES)
def asked(
    cluster: Cluster,
    target: Target,
    api: Client,
    known: dict[tuple[str, Phase], Asked],
    request: pytest.FixtureRequest,
) -> Asked:
    phase: Phase = request.param
    if (target.name, phase) not in known:
        mine = api.namespace(f"conditions-{phase}-{next(_NUMBERS)}")
        known[target.name, phase] = Asked(Rig(cluster, target, api, mine), phase)
    return known[target.name, phase]


@pytest.mark.parametrize("key", CALLED)
def test_a_webhook_is_called_if_its_conditions_hold(asked: Asked, key: str) -> None:
    reply = asked.reply()
    assert reply.status == 201, reply.text
    assert (f"called {key}" in warnings(reply)) is CALLED[key][1]


@pytest.mark.parametrize("key", REFUSED)
def test_conditions_that_fail_refuse_unless_failures_are_ignored(asked: Asked, key: str) -> None:
    reply = asked.reply(key)
    resource = f"resourceclaims.{asked.rig.group}"
    assert reply.status == 403, reply.text
    assert reply.json["reason"] == "Forbidden"
    assert reply.json["message"] == f'{resource} "c" is forbidden: {REFUSED[key][1]}'
    assert f"called {key}" not in warnings(reply)
