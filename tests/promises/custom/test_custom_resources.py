"""Sluice answers requests for custom resources as kube-apiserver does, word for word."""

from __future__ import annotations

import json

import pytest

from apiserver.apimachinery.releases import Release
from tests.promises.api.client import Client
from tests.promises.custom.playing import played
from tests.promises.custom.scenarios import Kinds, Scenario, all_scenarios, expected

KINDS = Kinds()
SCENARIOS = list(all_scenarios())


@pytest.mark.parametrize("scenario", [pytest.param(one, id=f"{one.topic}: {one.promise}") for one in SCENARIOS])
def test_answers_are_those_of_kube_apiserver(api: Client, mine: str, scenario: Scenario, release: Release) -> None:
    if scenario.only and api.target.name not in scenario.only:
        pytest.skip(f"can be asked of {' and '.join(scenario.only)} only")
    for number, (step, answer) in enumerate(played(scenario, api.target.connect, mine, KINDS), 1):
        wanted = expected(step, str(release))
        told = f"step {number}: {step.get('do') or step.get('read')}"
        assert _text(answer) == _text(wanted), told


def test_scenarios_have_at_least_300_steps() -> None:
    assert sum(len(scenario.steps) for scenario in SCENARIOS) >= 300


def _text(answer: object) -> str:
    """With integers told from floats. Members have no order."""
    return json.dumps(answer, ensure_ascii=False, indent=1, sort_keys=True)
