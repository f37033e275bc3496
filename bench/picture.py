"""The picture of a run: `python -m bench.picture RESULTS > bench/lists.svg`. With `--publish` it becomes what README.md shows.

Bars of CPU for each list, ours above kube-apiserver's, on a scale where each step is ten times the last; a tick where ours must end.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from bench import bounds, results, tables
from bench.results import OURS, THEIRS, Results

PICTURE = Path(__file__).with_name("lists.svg")
WIDTH, NAMES, RIGHT, TOP, FOOT = 960, 250, 150, 92, 34
ROW, BAR = 34, 11
STYLE = """
  .page { fill: #ffffff } .grid { stroke: #d8dee4 } .name, .value, .head { fill: #1f2328 } .note, .scale { fill: #59636e }
  .ours { fill: #1f6feb } .theirs { fill: #a8b1bc } .bound { stroke: #1f2328; stroke-width: 2.5 }
  .missed .ours { fill: #bc4c00 } .missed .own { font-weight: 700 }
  text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif } .head { font-size: 15px; font-weight: 600 }
  .scale, .note { font-size: 11px } .value { font-variant-numeric: tabular-nums }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .grid { stroke: #30363d } .name, .value, .head { fill: #e6edf3 } .note, .scale { fill: #9198a1 }
    .ours { fill: #4493f8 } .theirs { fill: #6e7681 } .bound { stroke: #e6edf3 } .missed .ours { fill: #ffa657 }
  }
"""


@dataclass(frozen=True)
class Row:
    """One workload. `theirs`: kube-apiserver has no cold lists, so beside those stands its list in the same form."""

    name: str
    ours: float
    theirs: float | None
    bound: float | None

    @property
    def missed(self) -> bool:
        return self.bound is not None and self.ours > self.bound

    def values(self) -> str:
        text = f"{tables.number(self.ours)} ms"
        if self.missed:
            text += f", missed {self.bound:g}"
        return text


def rows(found: Results) -> list[Row]:
    """The workloads of one client, and those cold lists that have a bound."""
    drawn = []
    for name in found.of("lists", "cold"):
        ours, bound = found.figure(name, OURS, "cpu_ms"), bounds.limit(name, "cpu_ms")
        if ours is None or name.endswith(" c8") or (found.groups[name] == "cold" and bound is None):
            continue
        theirs = found.figure(name.replace(" cold", " c1"), THEIRS, "cpu_ms")
        drawn.append(Row(name.removesuffix(" c1"), ours, theirs, bound))
    return drawn


def draw(found: Results) -> str:
    """The whole file. Raises ValueError when there is no list in the results."""
    drawn = rows(found)
    if not drawn:
        raise ValueError("there is no list in these results")
    figures = [v for row in drawn for v in (row.ours, row.theirs, row.bound) if v is not None]
    least, most = math.floor(math.log10(min(figures))), math.ceil(math.log10(max(figures)))
    scale = Scale(least, max(most, least + 1))
    height = TOP + ROW * len(drawn) + FOOT
    count = f"{found.facts['slices']:,} slices"
    title = f"CPU of one list of {count}: Sluice"
    if any(row.theirs is not None for row in drawn):
        title += " beside kube-apiserver"
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">\n',
            f'<title id="title">{escape(title)}</title>\n',
            f'<desc id="desc">{escape(_description(drawn))}</desc>\n',
            f"<style>{STYLE}</style>\n",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>\n',
            f'<text class="head" x="16" y="26">{escape(title)}</text>\n',
            *_legend(drawn),
            *scale.grid(height),
            *(_row(row, TOP + ROW * at, scale) for at, row in enumerate(drawn)),
            f'<text class="note" x="16" y="{height - 12}">{escape(_footnote(found))}</text>\n',
            "</svg>\n",
        )
    )


def _description(drawn: list[Row]) -> str:
    """The figures, for who does not see the bars."""
    parts = []
    for row in drawn:
        theirs = "" if row.theirs is None else f", kube-apiserver {tables.number(row.theirs)} ms"
        bound = "" if row.bound is None else f" ({'missed' if row.missed else 'met'} bound {row.bound:g})"
        parts.append(f"{row.name}: Sluice {tables.number(row.ours)} ms{bound}{theirs}")
    return "; ".join(parts) + "."


def _footnote(found: Results) -> str:
    date = found.facts["date"]
    return f"Milliseconds of CPU of server and store, logarithmic. {date}, {found.facts['machine']['cores']} cores."


def _legend(drawn: list[Row]) -> Iterator[str]:
    words = [("ours", "Sluice")]
    if any(row.theirs is not None for row in drawn):
        words.append(("theirs", "kube-apiserver and etcd"))
    at = 16
    for kind, text in words:
        yield f'<rect class="{kind}" x="{at}" y="43" width="22" height="{BAR}"/>\n'
        yield f'<text class="name" x="{at + 28}" y="53">{text}</text>\n'
        at += 46 + 8 * len(text)
    yield f'<line class="bound" x1="{at}" x2="{at}" y1="41" y2="56"/>\n'
    yield f'<text class="name" x="{at + 8}" y="53">bound of ours</text>\n'


class Scale:
    """Powers of ten between two of them."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._least) / (self._most - self._least) if value > 0 else 0.0
        return round(NAMES + max(0.0, share) * (WIDTH - NAMES - RIGHT), 1)

    def grid(self, height: int) -> Iterator[str]:
        for power in range(self._least, self._most + 1):
            x = self.at(10.0**power)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height - FOOT}"/>\n'
            yield f'<text class="scale" x="{x}" y="{TOP - 14}" text-anchor="middle">{10.0**power:,g} ms</text>\n'


def _row(row: Row, top: int, scale: Scale) -> str:
    y, end = top + 3, scale.at(row.ours)
    parts = [f'<g class="workload{" missed" if row.missed else ""}">\n']
    parts.append(f'<text class="name" x="{NAMES - 10}" y="{y + BAR + 3}" text-anchor="end">{escape(row.name)}</text>\n')
    parts.append(f'<rect class="ours" x="{NAMES}" y="{y}" width="{end - NAMES:.1f}" height="{BAR}"/>\n')
    beyond = end if row.bound is None else max(end, scale.at(row.bound))
    parts.append(f'<text class="value own" x="{beyond + 6:.1f}" y="{y + BAR - 1}">{row.values()}</text>\n')
    if row.theirs is not None:
        end, y = scale.at(row.theirs), y + BAR + 2
        parts.append(f'<rect class="theirs" x="{NAMES}" y="{y}" width="{end - NAMES:.1f}" height="{BAR}"/>\n')
        times = f"{tables.number(row.theirs)} ms, {row.theirs / row.ours:.1f} times"
        parts.append(f'<text class="value" x="{end + 6:.1f}" y="{y + BAR - 1}">{times}</text>\n')
    if row.bound is not None:
        x = scale.at(row.bound)
        parts.append(f'<line class="bound" x1="{x}" x2="{x}" y1="{top}" y2="{top + BAR + 6}"/>\n')
    return "".join(parts) + "</g>\n"


def publish(found: Results) -> None:
    """The results, the picture and the tables of README.md, all of the same run."""
    picture, page = draw(found), tables.page(tables.README.read_text(), found)
    found.write(results.PUBLISHED)
    PICTURE.write_text(picture)
    tables.README.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the file of a run, as bench/results/last.json")
    parser.add_argument(
        "--publish", action="store_true", help="write bench/lists.svg, the tables and the file they follow from"
    )
    wanted = parser.parse_args()
    found = results.read(wanted.results)
    if wanted.publish:
        publish(found)
    else:
        sys.stdout.write(draw(found))


if __name__ == "__main__":
    main()
