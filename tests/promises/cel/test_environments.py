"""The table of what the environments of Kubernetes have in them."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from kubecel.check.declarations import Overload
from kubecel.check.environment import Environment
from kubecel.kubernetes import environments
from tests.fixtures.cases import each_case

TABLE = yaml.load((pathlib.Path(__file__).parent / "environments.yaml").read_text(), yaml.CSafeLoader)

RELEASE = (1, 36)
"""The release that the table is of."""


def _signature(overload: Overload) -> str:
    arguments = [str(of) for of in overload.arguments]
    target = f"{arguments.pop(0)}." if overload.member else ""
    return f"{overload.id} {target}({', '.join(arguments)}) -> {overload.result}"


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _contents(environment: Environment) -> dict[str, list[str]]:
    return {
        "libraries": sorted(environment.libraries),
        "validators": [validator.name for validator in environment.validators],
    }


@pytest.mark.parametrize("version", TABLE["new"])
def test_a_new_expression_may_use_what_its_version_has(version: str) -> None:
    assert _contents(environments.base(RELEASE, compatibility=_version(version)).new) == TABLE["new"][version]


@pytest.mark.parametrize("version", TABLE["new"])
def test_a_stored_expression_may_use_everything_in_every_version(version: str) -> None:
    stored = environments.base(RELEASE, compatibility=_version(version)).stored
    assert _contents(stored) == {name: TABLE["stored"][name] for name in ("libraries", "validators")}


@each_case("function", TABLE["stored"]["functions"])
def test_a_function_has_the_overloads_of_kubernetes_in_its_order(function: str) -> None:
    overloads = environments.base(RELEASE).stored.functions[function].overloads
    assert [_signature(overload) for overload in overloads] == TABLE["stored"]["functions"][function]


def test_there_are_no_other_functions() -> None:
    assert environments.base(RELEASE).stored.functions.keys() == TABLE["stored"]["functions"].keys()


def test_release_adds_libraries_to_stored_expressions_first() -> None:
    """A new expression of 1.37 may use what 1.36 had."""
    before, newest = environments.base((1, 36)), environments.base((1, 37))
    assert "includes" in newest.stored.functions
    assert not any("includes" in of.functions for of in (before.new, before.stored, newest.new))
    assert "includes" in environments.base((1, 38)).new.functions
