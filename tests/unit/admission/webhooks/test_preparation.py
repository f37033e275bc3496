"""Log lines about webhooks before a request needs them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.admission.core.expressions import Expressions
from apiserver.admission.webhooks import configuration, preparation
from apiserver.admission.webhooks.calls import Caller, Target
from apiserver.admission.webhooks.preparation import Preparation
from apiserver.apimachinery.request import Decision, RequestInfo, User
from tests.unit.admission.webhooks import hook as plays
from tests.unit.admission.webhooks.hook import Hook

EVERYTHING = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]
EVERY_KIND = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
NOWHERE = {"url": "https://127.0.0.1:1/x"}


async def _decide(user: User, info: RequestInfo) -> Decision:
    return Decision(allowed=True)


def webhook(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "rules": EVERY_KIND, "clientConfig": NOWHERE, "failurePolicy": "Fail", **members}


def read(*webhooks: dict[str, Any]) -> list[configuration.Webhook]:
    items = {"c": {"metadata": {"name": "c"}, "webhooks": webhooks}}
    return list(configuration.read(items, Expressions(_decide), "validate").all)


def told(caplog: pytest.LogCaptureFixture) -> set[tuple[str, str]]:
    found = {(record.message, record.__dict__["webhook"]) for record in caplog.records}
    caplog.clear()
    return found


async def test_configuration_that_refuses_everything_is_logged_when_first_seen(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    made = Preparation(caller)
    condition = [{"name": "c", "expression": "object."}]
    found = (
        webhook("away"),
        webhook("away-ignored", failurePolicy="Ignore"),
        webhook("away-of-some", rules=[{**EVERY_KIND[0], "apiGroups": ["apps"]}]),
        webhook("away-of-labelled", objectSelector={"matchLabels": {"a": "b"}}),
        webhook("away-of-subresources", rules=EVERYTHING),
        webhook("impossible", clientConfig={"url": "http://a"}, rules=[]),
        webhook("impossible-ignored", clientConfig={"url": "http://a"}, failurePolicy="Ignore"),
        webhook("unevaluated", rules=[], matchConditions=condition),
    )
    await made.prepare(read(*found))
    assert told(caplog) == {
        (preparation.UNREACHABLE, "away"),
        (preparation.UNREACHABLE, "away-of-subresources"),
        (preparation.REFUSING, "impossible"),
        (preparation.IGNORED, "impossible-ignored"),
        (preparation.UNEVALUATED, "unevaluated"),
    }
    await made.prepare(read(*found))
    assert told(caplog) == set(), "nothing is new"
    await made.prepare(read(webhook("away", clientConfig={"url": "https://127.0.0.1:1/y"}), *found[1:]))
    assert told(caplog) == {(preparation.UNREACHABLE, "away")}


async def test_connection_for_authorization_is_open_before_the_first_call(
    hook: Hook, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    hook.plays = [plays.answer("{}")]
    await Preparation(caller).prepare(read(webhook("here", clientConfig=hook.config("/judge"))))
    assert (told(caplog), hook.seen) == (set(), [])
    await caller.reach(Target.of(hook.config("/judge")), seconds=10)
    assert await caller.call(Target.of(hook.config("/judge")), b"{}", seconds=10) == b"{}"
    assert len({seen.peer for seen in hook.seen}) == 1
