"""Where targets differ: what `differences.yaml` says, and the promises that say themselves whom they can be asked of.

A listed difference is a strict expected failure: a promise that holds although it is listed fails the run, and so does an entry that
names no promise. Only failed assertions are expected; a target that breaks is never a difference.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

FILE = pathlib.Path(__file__).with_suffix(".yaml")
ONLY = "only"


@dataclass(frozen=True)
class Difference:
    """One entry: the promise by the name of its test."""

    promise: str
    targets: Sequence[str]
    reason: str


def read() -> list[Difference]:
    document: list[dict[str, Any]] = yaml.safe_load(FILE.read_text()) or []
    return [Difference(**entry) for entry in document]


def mark(items: Sequence[pytest.Function]) -> None:
    """Expects what is listed, and leaves out what a target cannot be asked about."""
    reasons = {
        (difference.promise, target): difference.reason for difference in read() for target in difference.targets
    }
    for item in items:
        target = item.callspec.params["target"]
        if reason := reasons.get((item.originalname, str(target))):
            item.add_marker(pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True))
        for only in item.iter_markers(ONLY):
            if target not in only.args:
                item.add_marker(pytest.mark.skip(reason=only.kwargs["reason"]))
