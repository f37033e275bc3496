"""Flags of a server that may become every supported release."""

from __future__ import annotations

import dataclasses

import pytest

from apiserver import apigroups, resources
from apiserver.apimachinery.releases import NEWEST, SUPPORTED, V1_36, V1_37, Release
from apiserver.apimachinery.request import Query
from apiserver.config import config
from apiserver.config.config import Config
from apiserver.discovery.answers import Question
from apiserver.discovery.groups import Discovery
from apiserver.schema.featuregate import Spec, Stage, versioned
from apiserver.wire.forms import form
from kubecel.kubernetes import environments

UNTIL, SINCE = "OnlyBefore", "OnlySince"


@pytest.fixture(autouse=True)
def _gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that the newest release has locked, and one that no other release has."""
    before = versioned(
        UNTIL,
        Spec(V1_36, default=False, stage=Stage.ALPHA),
        Spec(V1_37, default=True, stage=Stage.GA, locked=True),
    )
    since = versioned(SINCE, Spec(V1_37, default=False, stage=Stage.ALPHA))
    monkeypatch.setattr(apigroups, "GATES", (*resources.GATES, before, since))


def given(*flags: str) -> Config:
    return config.parse(["dev", *flags], {})


def errors(*flags: str) -> list[str]:
    return apigroups.judged_everywhere(given(*flags).serving)[1]


def test_kinds_are_those_of_the_newest_release() -> None:
    served, told = apigroups.judged_everywhere(given().serving)
    assert served is not None
    assert (served.release, told) == (NEWEST, [])


@pytest.mark.parametrize("flag", [f"{UNTIL}=false", f"{SINCE}=true", f"{UNTIL}=false,{SINCE}=true"])
def test_gate_of_any_release_may_be_switched(flag: str) -> None:
    assert errors(f"--feature-gates={flag}") == []


def test_gate_that_no_release_can_have_is_an_error() -> None:
    assert errors(f"--feature-gates=Nonsense=true,DRAAdminAccess=false,{SINCE}=true") == [
        "--feature-gates: unrecognized feature gate: Nonsense",
        "--feature-gates: cannot set feature gate DRAAdminAccess to false, feature is locked to true",
    ]


def test_version_that_no_release_has_is_an_error() -> None:
    assert errors("--runtime-config=resource.sluice.dev/v9=true") == [
        "--runtime-config: group version resource.sluice.dev/v9 that has not been registered"
    ]


def test_kinds_that_cannot_be_loaded_are_an_error_once() -> None:
    (error,) = errors("--kinds=json", "--feature-gates=Nonsense=true")
    assert error.startswith("--kinds: json: ")


@pytest.mark.parametrize("release", SUPPORTED)
def test_gates_that_a_release_cannot_have_are_ignored_with_a_warning(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    asked = given(f"--feature-gates={UNTIL}=false,{SINCE}=true,DRADeviceTaints=true")
    fit = apigroups.as_release(asked, release)
    left = {V1_36: {UNTIL: False, "DRADeviceTaints": True}, V1_37: {SINCE: True, "DRADeviceTaints": True}}
    assert (fit.serving.emulated, fit.serving.feature_gates) == (release, left[release])
    (record,) = caplog.records
    assert record.__dict__["featureGate"] == (UNTIL if release == V1_37 else SINCE)
    apigroups.kinds(fit.serving)
    assert dataclasses.replace(fit, serving=asked.serving) == asked


def test_expressions_of_a_release_are_prepared_outside_of_the_event_loop() -> None:
    """`released` runs in a thread, and composing does not."""
    for release in SUPPORTED:
        environments.base.cache_clear()
        settings, served = apigroups.released(given(), release)
        made = environments.base.cache_info().misses
        resources.DeviceSelectors(apigroups.gates(settings.serving, served))
        assert environments.base.cache_info().misses == made


def test_composed_discovery_makes_no_form_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(form, "document", refuse)
    _, served = apigroups.released(given(), NEWEST)
    found = Discovery(served, version={})
    with pytest.raises(AssertionError):
        found.answer(Question(method="GET", path="/apis", query=Query("")))
