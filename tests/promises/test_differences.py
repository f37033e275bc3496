"""The list of differences names promises and targets that there are."""

from __future__ import annotations

import ast
import pathlib

from tests.promises.admission import differences as of_admission
from tests.promises.api import differences, target


def promises(folder: pathlib.Path = differences.FILE.parent) -> set[str]:
    found = set()
    for file in folder.glob("test_*.py"):
        found |= {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}
    return {name for name in found if name.startswith("test_")}


def test_a_difference_is_about_a_promise_on_some_of_the_targets() -> None:
    for difference in differences.read():
        assert difference.promise in promises()
        assert difference.targets
        assert set(difference.targets) < set(target.TARGETS)
        assert difference.reason


def test_no_promise_is_listed_twice_for_one_target() -> None:
    listed = [(difference.promise, name) for difference in differences.read() for name in difference.targets]

    assert len(listed) == len(set(listed))


def test_a_difference_of_admission_is_about_a_promise() -> None:
    assert of_admission.read().keys() <= promises(of_admission.FILE.parent)
    assert all(of_admission.read().values())
