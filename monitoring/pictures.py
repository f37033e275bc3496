"""Draws series of a Prometheus as small SVG files, with text that can be searched. `tests/e2e/test_monitoring.py` shows how it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 180, 56, 28, 38
COLOURS = ("#3274d9", "#e0752d", "#299c46", "#a352cc", "#d44a3a", "#8a8a8a")
"""The lines that are drawn, in their order; further ones are left out."""

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points (Unix time, value) by legend."""


def svg(title: str, unit: str, series: Series) -> str:
    """Return a drawing of the series over their common time, from 0 to their largest value."""
    shown = dict(sorted(series.items())[: len(COLOURS)])
    points = [point for line in shown.values() for point in line]
    start, end = min(at for at, _ in points), max(at for at, _ in points)
    most = max(value for _, value in points) or 1.0
    plot = WIDTH - LEFT - 10, HEIGHT - TOP - BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="#fff" stroke="#ccc"/>',
        f'<text x="8" y="17" font-size="12">{escape(title)}</text>',
    ]
    for share in (0, 0.5, 1):
        y = TOP + plot[1] * (1 - share)
        out.append(f'<path d="M{LEFT} {y:.0f}h{plot[0]}" stroke="#eee"/>')
        out.append(f'<text x="{LEFT - 4}" y="{y + 3:.0f}" text-anchor="end">{escape(text(most * share, unit))}</text>')
    x = LEFT
    for colour, (legend, line) in zip(COLOURS, shown.items(), strict=False):
        path = " ".join(
            f"{LEFT + plot[0] * (at - start) / max(end - start, 1):.0f},{TOP + plot[1] * (1 - value / most):.0f}"
            for at, value in line
        )
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(f'<text x="{x}" y="{HEIGHT - 8}" fill="{colour}">{escape(legend)}</text>')
        x += 6 * len(legend) + 14
    out.append(f'<text x="{WIDTH - 10}" y="{HEIGHT - 24}" text-anchor="end" fill="#888">{end - start:.0f} s</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def text(value: float, unit: str) -> str:
    """Return a value with its unit as Grafana names it."""
    if unit == "bytes":
        return f"{value / 1e6:.3g} MB"
    if unit == "s":
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g}{'/s' if unit == 'reqps' else ''}"
