"""The answers of checks: findings with a state, a code of the catalogue, a text and the command that mends them."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apiserver.doctor.codes import CODES

if TYPE_CHECKING:
    from apiserver.doctor.installation import Installation


class State(enum.StrEnum):
    """From good to bad. SKIP is no finding: something could not be asked from here, or not by this user."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer. `do` is the command that mends it, or that asks further; it is empty for OK."""

    state: State
    code: str
    text: str
    do: str = ""


def good(text: str) -> Finding:
    return Finding(State.OK, "ok", text)


def found(code: str, text: str, do: str) -> Finding:
    """Return a finding with the state that the catalogue gives its code."""
    return Finding(State(CODES[code].state), code, text, do)


Answers = AsyncIterator[Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that doctor asks. `asks` completes "doctor asks whether ..." for people.

    `aggregated`: only where a kube-apiserver with aggregation is in front, not against `sluice dev`. `cluster`: it needs kube-apiserver.
    """

    name: str
    asks: str
    run: Callable[[Installation], Answers]
    cluster: bool = True
    aggregated: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The findings of one check, and the seconds that it took."""

    check: str
    findings: tuple[Finding, ...]
    seconds: float


def worst(results: list[Result]) -> State:
    """Return the worst state of all findings. SKIP counts as OK."""
    order = [State.OK, State.WARN, State.FAIL]
    states = {finding.state for result in results for finding in result.findings}
    return next((state for state in reversed(order) if state in states), State.OK)
