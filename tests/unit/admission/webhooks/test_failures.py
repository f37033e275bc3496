"""Messages to clients about a webhook that denied a request."""

from __future__ import annotations

import asyncio
import json

import pytest

from apiserver.admission.webhooks import failures


@pytest.mark.parametrize(("causes", "waits"), [(0, False), (failures.MANY_CAUSES, False), (20_000, True)])
async def test_a_denial_with_many_causes_is_made_while_others_go_on(causes: int, waits: bool) -> None:
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "went on")
    sent = [{"field": f"f{at}", "message": "m"} for at in range(causes)]

    denial = await failures.denied("w.example.com", {"message": "no", "details": {"causes": sent}})

    assert denial.error.message == 'admission webhook "w.example.com" denied the request: no'
    told = (denial.error.details or {}).get("causes", [])
    assert [{**cause} for cause in told] == [{"message": c["message"], "field": c["field"]} for c in sent[: len(told)]]
    assert bool(told) is bool(causes)
    assert bool(others) is waits


def test_a_denial_is_bounded_whatever_its_status_says() -> None:
    long = "\u2028" * (1 << 20)
    words = dict.fromkeys(("name", "group", "kind", "uid"), long)
    cause = dict.fromkeys(("reason", "message", "field"), long)
    status = {
        "message": long,
        "reason": long,
        "status": long,
        "metadata": dict.fromkeys(("selfLink", "resourceVersion", "continue"), long),
        "details": {**words, "causes": [cause, None]},
    }

    told = failures.denial("w.example.com", status).error.status()

    assert len(json.dumps(told, ensure_ascii=True)) < 1 << 20
    assert list(told["metadata"]) == ["selfLink", "resourceVersion", "continue"]


def test_a_cause_that_is_null_is_one_that_says_nothing() -> None:
    told = failures.denial("w.example.com", {"details": {"causes": [None, {"field": "f"}]}}).error.details
    assert told == {"causes": [{}, {"field": "f"}]}
