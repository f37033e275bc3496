"""Versions, compared within a resource."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from tests.e2e.corpus import play, ways


class Answer:
    """The harness's form of a response."""

    def __init__(self, *versions: str) -> None:
        self.status, self.body = 200, b"{}"
        self.headers: dict[str, str] = {}
        self.json = {"items": [{"metadata": {"name": "a", "resourceVersion": version}} for version in versions]}
        self.text, self.rv = "{}", "255959022681718990"

    def __getitem__(self, _: str) -> None:
        return None


class Side:
    run, group, standalone = "abcdef", "resource.sluice.dev", True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scenario of the real harness."""
    file = ways.corpus() / "harness.py"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the folder may be somebody else's
    spec = importlib.util.spec_from_file_location("harness", file)
    assert spec is not None
    assert spec.loader is not None
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    return play.session(harness)(Side(), "test")


def versions(session: Any, path: str, *given: str) -> list[str]:
    session.record(Answer(*given), "GET", path)
    return [item["metadata"]["resourceVersion"] for item in session.steps[-1]["body"]["items"]]


def test_versions_of_two_resources_are_not_compared(session: Any) -> None:
    assert versions(session, "/deviceclasses", "900") == ["rv@1.1"]
    assert versions(session, "/resourceslices?limit=1", "100", "900") == ["rv@2.1", "rv@2.2"]


def test_versions_of_one_resource_are(session: Any) -> None:
    assert versions(session, "/namespaces/n/resourceclaims", "900") == ["rv@1.1"]
    assert versions(session, "/resourceclaims", "100", "900") == ["<rv@2.1", "rv@1.1"]


def test_one_number_of_two_resources_is_two_versions(session: Any) -> None:
    assert versions(session, "/deviceclasses", "900") == ["rv@1.1"]
    assert versions(session, "/resourceslices", "900") == ["rv@2.1"]
    assert versions(session, "/deviceclasses/a", "900") == ["rv@1.1"]


async def test_unrecorded_requests_have_a_resource_and_are_no_step(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def request(*_: Any, **__: Any) -> Answer:
        return Answer()

    monkeypatch.setattr(type(session).__base__, "fetch", request)
    assert versions(session, "/deviceclasses", "900") == ["rv@1.1"]
    await session.fetch("GET", "/resourceslices/a")
    session.note_rv("900")
    session.note_rv("100")
    assert session.versions["resourceslices"] == {"900": "rv@1.2", "100": "rv@1.3"}
    assert versions(session, "/deviceclasses", "899") == ["<rv@2.1"]


async def test_a_deleted_namespace_is_known_before_the_scenario_goes_on(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def core(*_: Any) -> str:
        return ""

    async def fetch(_: Any, method: str, path: str, **__: Any) -> Answer:
        asked.append(f"{method} {path}")
        answer = Answer()
        answer.status = 201 if len(asked) < 3 else 403
        return answer

    harness_session = type(session).__base__
    monkeypatch.setattr(harness_session, "core", core)
    monkeypatch.setattr(harness_session, "fetch", fetch)
    monkeypatch.setattr(Side, "standalone", False)
    await session.core("DELETE", "/api/v1/namespaces/n")
    assert asked == ["POST /namespaces/n/resourceclaims?dryRun=All"] * 3
    await session.core("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/r")
    assert len(asked) == 3
