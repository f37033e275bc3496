"""Where Sluice differs: what `differences.yaml` says. An entry is a strict expected failure on `aggregated`: a promise that holds although
it is listed fails the run, and so does an entry that names no promise (tests/promises/test_differences.py)."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

FILE = pathlib.Path(__file__).with_suffix(".yaml")


def read() -> Mapping[str, str]:
    """Reasons, by promise."""
    document: list[dict[str, Any]] = yaml.safe_load(FILE.read_text()) or []
    return {entry["promise"]: entry["reason"] for entry in document}


def mark(items: Sequence[pytest.Function]) -> None:
    reasons = read()
    for item in items:
        reason = reasons.get(item.originalname)
        if reason and item.callspec.params.get("target") == "aggregated":
            item.add_marker(pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True))
