"""Versions, compared within a resource."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import pytest

from tests.e2e.corpus import play


class Answer:
    """What the harness makes of a response."""

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
def session(shared: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scenario of the real harness."""
    file = shared.parent / "differential" / "harness.py"
    if not file.exists():
        pytest.skip("the corpus is not beside this checkout")
    # The folder is not ours.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
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


async def test_a_version_in_the_name_of_a_step_is_left_out_if_the_server_gave_it_out(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(*_: Any, **__: Any) -> Answer:
        return Answer()

    given, made_up = Answer().rv, "99999999999999999999"
    assert session.title(f"GET /deviceclasses?resourceVersion={given}").endswith(given)
    monkeypatch.setattr(type(session).__base__, "fetch", fetch)
    await session.fetch("GET", "/deviceclasses")
    assert session.title(f"GET /deviceclasses?resourceVersion={given}") == "GET /deviceclasses?resourceVersion=RV"
    assert session.title(f"GET /deviceclasses?resourceVersion={made_up}").endswith(made_up)
