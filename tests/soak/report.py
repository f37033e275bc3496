"""The results of a soak: a JSON document, its table, and a picture of its curves."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from bench.results import machine, versions
from tests.soak.judge import Verdict
from tests.soak.run import Result

POINTS = 180
"""Kept of a curve; each is the mean of its neighbours."""
COLUMNS, WIDTH, HEIGHT, GAP, TOP = 4, 232, 88, 12, 56
_STYLE = """
  .page { fill: #ffffff } .frame { fill: none; stroke: #d8dee4 } .name, .head { fill: #1f2328 } .note { fill: #59636e }
  .curve { fill: none; stroke: #1f6feb; stroke-width: 1.5 } .rises .curve { stroke: #bc4c00 } .third { stroke: #d8dee4 }
  text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif } .head { font-size: 15px; font-weight: 600 }
  .note { font-size: 10px } .rises .name { font-weight: 700 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .frame, .third { stroke: #30363d } .name, .head { fill: #e6edf3 } .note { fill: #9198a1 }
    .curve { stroke: #4493f8 } .rises .curve { stroke: #ffa657 }
  }
"""

Document = Mapping[str, Any]


def document(result: Result) -> dict[str, Any]:
    """Everything that is kept of a run."""
    load = dataclasses.asdict(result.options.load)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "load": load | {"seed": result.options.seed, "restart_seconds": result.options.restart_seconds},
        "seconds": round(result.seconds, 1),
        "writes_a_second": rates(result.writes, result.seconds),
        "passed": result.passed,
        "counts": dict(sorted(result.counts.items())),
        "findings": result.findings,
        "curves": [
            _curve(name, verdict, result.series[name], result.seconds) for name, verdict in result.verdicts.items()
        ],
    }


def _curve(name: str, verdict: Verdict, points: Sequence[tuple[float, float]], seconds: float) -> dict[str, Any]:
    return {
        "name": name,
        "unit": verdict.curve.unit,
        "first": round(statistics.median(value for at, value in points if at < seconds / 3), 1),
        "middle": round(verdict.middle, 1),
        "last": round(verdict.last, 1),
        "most": round(verdict.curve.most(verdict.middle), 1),
        "verdict": verdict.word,
        "points": thinned(points),
    }


def rates(counted: Sequence[tuple[float, float]], seconds: float) -> list[float]:
    """The writes a second in each third: curves of thirds with different loads say less."""
    found = []
    for third in range(3):
        inside = [sample for sample in counted if third <= 3 * sample[0] / seconds < third + 1]
        (begin, before), (end, after) = inside[0], inside[-1]
        found.append(round((after - before) / (end - begin), 1) if end > begin else math.nan)
    return found


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most POINTS of them."""
    each = math.ceil(len(points) / POINTS)
    groups = [points[at : at + each] for at in range(0, len(points), each)] if each else []
    return [
        (round(sum(at for at, _ in group) / len(group), 1), round(sum(value for _, value in group) / len(group), 2))
        for group in groups
    ]


def table(found: Document) -> str:
    """Markdown: what was done, then each curve with its medians."""
    load, counts = found["load"], found["counts"]
    done = (
        f"One run on {found['date']}: {found['seconds'] / 60:.1f} minutes, {counts['writes']:,} writes "
        f"({', '.join(f'{rate:.0f}' for rate in found['writes_a_second'])} a second in the three thirds), {load['watchers']} watchers "
        f"({load['of_everything']} of all nodes), {counts.get('lists', 0):,} lists, {counts.get('restarts', 0)} restarts; "
        f"{described(found)}."
    )
    came = (
        f"{counts['events']:,} events came, in {counts.get('watches resumed', 0):,} resumed watches; "
        f"{counts.get('refused', 0)} answers 429 or 503; {len(found['findings'])} findings."
    )
    rows = [
        done,
        "",
        came,
        "",
        "| curve | first third | middle third | last third | at most | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for curve in found["curves"]:
        unit = f" ({curve['unit']})" if curve["unit"] else ""
        figures = " | ".join(number(curve[name]) for name in ("first", "middle", "last", "most"))
        rows.append(f"| {curve['name']}{unit} | {figures} | {curve['verdict']} |")
    return "\n".join([*rows, *(f"\n* {text}" for text in found["findings"])])


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def described(found: Document) -> str:
    known, of = found["machine"], ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"{known['cores']} cores ({known['processor']}), {known['memory_gb']} GB, Linux {known['kernel']}; {of}"


def picture(found: Document) -> str:
    """The curves, each from zero in a field of its own; thin lines part the thirds."""
    curves = found["curves"]
    rows = math.ceil(len(curves) / COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, TOP + rows * (HEIGHT + GAP)
    title = f"{found['seconds'] / 60:.0f} minutes of {found['load']['writes']:g} writes a second and {found['load']['watchers']} watchers"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="head" x="{GAP}" y="30">{escape(title)}</text>',
    ]
    for number, curve in enumerate(curves):
        x, y = GAP + number % COLUMNS * (WIDTH + GAP), TOP + number // COLUMNS * (HEIGHT + GAP)
        lines += _field(curve, found["seconds"], x, y)
    return "\n".join([*lines, "</svg>", ""])


def _field(curve: Document, seconds: float, x: int, y: int) -> Iterator[str]:
    most = max([value for _, value in curve["points"]] + [1e-9]) * 1.1
    plot, base = HEIGHT - 24, y + HEIGHT
    where = " ".join(
        f"{x + at / seconds * WIDTH:.1f},{base - value / most * plot:.1f}" for at, value in curve["points"]
    )
    yield f'<g class="{"rises" if curve["verdict"] == "RISES" else "flat"}">'
    yield f'<rect class="frame" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>'
    for third in (1, 2):
        at = x + third * WIDTH / 3
        yield f'<line class="third" x1="{at:.1f}" x2="{at:.1f}" y1="{y + 20}" y2="{base}"/>'
    yield f'<text class="name" x="{x + 6}" y="{y + 14}">{escape(curve["name"])}</text>'
    last = f"{number(curve['last'])} {curve['unit']}".strip()
    yield f'<text class="note" x="{x + WIDTH - 6}" y="{y + 14}" text-anchor="end">{escape(last)}</text>'
    yield f'<polyline class="curve" points="{where}"/>'
    yield "</g>"
