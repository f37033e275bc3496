"""The definition that the README names."""

from __future__ import annotations

from pathlib import Path

from apiserver.apiextensions import loading
from apiserver.apiextensions.kinds import resources

EXAMPLE = Path(__file__).parents[3] / "examples" / "policyreports.yaml"


def test_example_is_served_without_a_warning() -> None:
    (found,) = loading.inspect([EXAMPLE])
    assert [*found.errors, *found.warnings] == []
    assert found.definition is not None
    (kind,) = resources(found.definition)
    assert [column.name for column in kind.columns] == ["Name", "Source", "Pass", "Fail", "Age"]
