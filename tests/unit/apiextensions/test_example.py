"""The definition that the README names."""

from __future__ import annotations

from pathlib import Path

import pytest

from apiserver.apiextensions import loading
from apiserver.apiextensions.kinds import resources
from apiserver.kinds.served import InvalidKinds, Kinds
from apiserver.resources import RESOURCES

EXAMPLE = Path(__file__).parents[3] / "examples" / "policyreports.yaml"


def test_example_is_served_without_a_warning() -> None:
    (found,) = loading.inspect([EXAMPLE])
    assert [*found.errors, *found.warnings] == []
    assert found.definition is not None
    (kind,) = resources(found.definition)
    assert [column.name for column in kind.columns] == ["Name", "Source", "Pass", "Fail", "Age"]


def test_group_of_definitions_has_no_other_kinds() -> None:
    """Its paths have answers of their own, so a group belongs to definitions or to declared kinds."""
    (found,) = loading.inspect([EXAMPLE])
    assert found.definition is not None
    custom = resources(found.definition)
    Kinds(RESOURCES, group="resource.example.org", custom=custom)
    with pytest.raises(InvalidKinds, match=r"the group examples\.sluice\.dev has other kinds"):
        Kinds(RESOURCES, group="examples.sluice.dev", custom=custom)
