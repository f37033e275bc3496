"""What clients are told of a webhook that said no."""

from __future__ import annotations

import asyncio

import pytest

from apiserver.admission.webhook import failures


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
