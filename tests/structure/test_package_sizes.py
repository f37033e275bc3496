"""A package is small enough to be read: each folder of modules counts by itself."""

from __future__ import annotations

import pathlib
from collections import Counter

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MOST_LINES = 4_500
PACKAGES = ("apiserver", "kubecel", "kubetext", "sluice", "structuredmerge")


def test_no_package_has_more_than_4500_lines() -> None:
    lines: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (PROJECT / package).rglob("*.py"):
            lines[str(path.parent.relative_to(PROJECT))] += path.read_bytes().count(b"\n")
    assert len(lines) > len(PACKAGES)
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
