"""Known differences from the recording (`../differential.yaml`), and whether a run has no others."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.e2e.corpus.comparison import Failure, Outcome, Step

FILE = pathlib.Path(__file__).resolve().parent.parent / "differential.yaml"
FLOOR = 0.99
"""Share of the steps that count which must agree."""
_PATTERN = re.compile(r"(?P<scenario>[\w.]+)(?: #(?P<first>\d+)(?:-(?P<last>\d+))?)?")


@dataclass(frozen=True)
class Pattern:
    """`scenario`, `scenario #3` or `scenario #3-5`. One that names steps means each of them, a whole scenario some of its steps."""

    text: str
    scenario: str
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, text: str) -> Pattern:
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} names no steps")
        first = int(match["first"] or 0)
        return cls(text, match["scenario"], first, int(match["last"] or first))

    def concerns(self, step: Step) -> bool:
        return step.scenario == self.scenario and (not self.first or self.first <= step.number <= self.last)


@dataclass(frozen=True)
class Entry:
    """Steps that differ for one reason; in which members they may do so (a regular expression), and on which way
    to the server (any, if none is named)."""

    reason: str
    patterns: Sequence[Pattern]
    members: str = ""
    way: str = ""
    release: str = ""
    """The recorded release, as in `1.37`; any, if none is named."""

    def concerns(self, step: Step) -> bool:
        return any(pattern.concerns(step) for pattern in self.patterns)

    def explains(self, failure: Failure) -> bool:
        return all(re.search(self.members, path) for path in failure.members)

    def stale(self, outcome: Outcome) -> list[str]:
        """Patterns whose steps are no longer what they say. Scenarios that were not played prove nothing."""
        played = {step.scenario for step in outcome.steps}
        return [p.text for p in self.patterns if p.scenario in played and not _holds(p, outcome)]


def _holds(pattern: Pattern, outcome: Outcome) -> bool:
    concerned = [step for step in outcome.steps if pattern.concerns(step)]
    failed = [step in outcome.failures for step in concerned]
    return any(failed) and (not pattern.first or (all(failed) and len(failed) == pattern.last - pattern.first + 1))


def load(file: pathlib.Path = FILE) -> list[Entry]:
    """The steps that count as failed, and may."""
    return [_entry(entry) for entry in yaml.safe_load(file.read_text())["differences"]]


def _entry(entry: Mapping[str, Any]) -> Entry:
    if not entry["reason"].strip():
        raise ValueError("an entry without a reason")
    patterns = [Pattern.of(text) for text in entry["steps"]]
    return Entry(
        entry["reason"],
        patterns,
        members=entry.get("members", ""),
        way=entry.get("way", ""),
        release=str(entry.get("kubernetes", "")),
    )


@dataclass(frozen=True)
class Verdict:
    """A run, held against what is known."""

    steps: Sequence[Step]
    passed: Sequence[Step]
    differing: Mapping[str, int]
    unlisted: Mapping[Step, Failure]
    stale: Sequence[str]

    @property
    def ratio(self) -> float:
        return len(self.passed) / len(self.steps)

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} of {len(self.steps)} steps agree: {self.ratio:.1%}"]
        lines += [f"differ: {count:3}  {reason}" for reason, count in self.differing.items() if count]
        lines += [f"listed, but no longer so: {text}" for text in self.stale]
        for step, failure in self.unlisted.items():
            lines += ["", f"NOT LISTED: {step}  {failure.title}", *(line[:400] for line in failure.lines[:12])]
        return "\n".join(lines)


def judge(outcome: Outcome, listed: Sequence[Entry], *, way: str = "", release: str = "") -> Verdict:
    known = [entry for entry in listed if entry.way in ("", way) and entry.release in ("", release)]
    unlisted = {}
    for step, failure in outcome.failures.items():
        entry = _first(known, step)
        if entry is None or not entry.explains(failure):
            unlisted[step] = failure
    return Verdict(
        steps=outcome.steps,
        passed=[step for step in outcome.steps if step not in outcome.failures],
        differing=_counts(known, outcome.failures),
        unlisted=unlisted,
        stale=[text for entry in known for text in entry.stale(outcome)],
    )


def _first(entries: Iterable[Entry], step: Step) -> Entry | None:
    return next((entry for entry in entries if entry.concerns(step)), None)


def _counts(entries: Sequence[Entry], steps: Iterable[Step]) -> dict[str, int]:
    found = dict.fromkeys((entry.reason for entry in entries), 0)
    for step in steps:
        if entry := _first(entries, step):
            found[entry.reason] += 1
    return found
