"""The page and the JSON document of an examination. docs/doctor.md describes the document; members are added, never changed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import orjson

from apiserver import __version__
from apiserver.doctor.findings import Result, State, worst

FORM = "doctor.sluice.dev/v1"
"""The form of the JSON document."""
_WIDTH = 16
"""Columns before the text of a finding."""
_ORDER = {State.FAIL: 0, State.WARN: 1, State.SKIP: 2, State.OK: 3}


def page(results: Sequence[Result], about: str, columns: int) -> str:
    """Return one page of text: a line for each finding, and below it the command that mends it. The last line sums up."""
    lines = [f"sluice doctor {__version__}: {about}", ""]
    for result in results:
        for finding in result.findings:
            head = f"{finding.state.name:<5}{result.check} "
            text = " ".join(finding.text.split()) + ("" if finding.state is State.OK else f" [{finding.code}]")
            lines += textwrap.wrap(
                head.ljust(_WIDTH + 5) + text,
                columns,
                subsequent_indent=" " * (_WIDTH + 5),
                break_long_words=False,
                break_on_hyphens=False,
            )
            if finding.do:
                lines.append(f"{' ' * 5}do: {finding.do}")
    return "\n".join([*lines, "", _sum(results)]) + "\n"


def _sum(results: Sequence[Result]) -> str:
    states = [finding.state for result in results for finding in result.findings]
    counts = ", ".join(f"{states.count(state)} {state.name}" for state in _ORDER if state in states)
    match worst(list(results)):
        case State.FAIL:
            verdict = "something is broken"
        case State.WARN:
            verdict = "it works, with warnings"
        case _:
            verdict = "nothing is wrong" if State.SKIP not in states else "nothing is wrong in what could be asked"
    return f"{verdict}: {counts}"


def document(results: Sequence[Result], about: str) -> bytes:
    """Return the JSON document."""
    return orjson.dumps(
        {
            "form": FORM,
            "version": __version__,
            "about": about,
            "state": worst(list(results)).value,
            "checks": [
                {
                    "check": result.check,
                    "seconds": round(result.seconds, 4),
                    "findings": [
                        {"state": each.state.value, "code": each.code, "text": each.text, "do": each.do}
                        for each in result.findings
                    ],
                }
                for result in results
            ],
        },
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )


def exit_code(results: Sequence[Result]) -> int:
    """Return 1 if a finding breaks the installation, else 0."""
    return 1 if worst(list(results)) is State.FAIL else 0
