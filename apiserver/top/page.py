"""The page of `sluice top`, drawn with rich. Only this module imports rich, which is an optional library."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from apiserver.cluster.errors import ClusterError
from apiserver.top.reading import Reading
from apiserver.top.summary import BUDGET_SECONDS, Counted, Summary, summarised

PIPE_COLUMNS = 140
"""The width where no terminal has one: all columns are whole."""
Read = Callable[[], Awaitable[Reading]]


def drawn(summary: Summary, about: str) -> RenderableType:
    """Return the whole page."""
    small = [
        _counted("code", summary.codes),
        _counted("user", summary.users),
        _counted("list", summary.lists),
        _counted("flow", summary.flows),
    ]
    return Group(
        _head(summary, about),
        _requests(summary),
        _kept(summary),
        Columns([table for table in small if table is not None], padding=(0, 3)),
    )


def _head(summary: Summary, about: str) -> Text:
    writable = [each for each in summary.kept if each.writable]
    store = "writable" if len(writable) == len(summary.kept) else f"writable in {len(writable)} of {len(summary.kept)}"
    loop = f"{summary.loop_busy:.0%} busy, p99 of a step {_seconds(summary.loop_p99)}, {summary.loop_long:.1f}/s above"
    memory = f"objects {_bytes(summary.objects_bytes)}, history {_bytes(summary.history_bytes)}"
    requests = f"in flight {summary.in_flight:.0f}, dropped {summary.dropped:.1f}/s"
    lines = [
        f"sluice {summary.version} at {about}, rates of {summary.seconds:.1f} s",
        f"CPU {summary.cpu:.2f} cores   loop {loop} {BUDGET_SECONDS * 1000:.0f} ms   {requests}",
        f"memory {_bytes(summary.memory)}: {memory}, encodings {_bytes(summary.encoding_bytes)}",
        f"store {store}, p99 of a question {_seconds(summary.barrier_p99)}, replicas in step {summary.replicas:.0f}",
    ]
    text = Text("\n".join(lines))
    if len(writable) != len(summary.kept):
        text.stylize("bold red", len("\n".join(lines[:3])) + 1)
    return text


def _requests(summary: Summary) -> Table:
    table = _table("verb", "requests of", "per s", "4xx/s", "5xx/s", "mean", "p99", left=2)
    for each in summary.requests:
        style = "red" if each.failed else ""
        cells = (_rate(each.rate), _rate(each.refused), _rate(each.failed), _seconds(each.mean), _seconds(each.p99))
        table.add_row(each.verb, each.resource, *cells, style=style)
    return table


def _kept(summary: Summary) -> Table:
    table = _table(
        "resource", "objects", "bytes", "watchers", "behind", "writes/s", "events/s", "commit p99", "lag", left=1
    )
    for each in summary.kept:
        cells = (
            f"{each.objects:.0f}",
            _bytes(each.size),
            f"{each.watchers:.0f}",
            f"{each.behind:.0f}",
            _rate(each.writes),
            _rate(each.events),
            _seconds(each.commit_p99),
            _seconds(each.lag),
        )
        table.add_row(each.resource.rstrip("."), *cells, style="" if each.writable else "red")
    return table


def _counted(title: str, rows: Sequence[Counted]) -> Table | None:
    if not rows:
        return None
    table = _table(title, "per s", left=1)
    for each in rows:
        table.add_row(each.name, _rate(each.rate))
    return table


def _table(*columns: str, left: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < left else "right", no_wrap=True)
    return table


def _rate(value: float) -> str:
    return "-" if not value else f"{value:.1f}"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "long"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


async def followed(read: Read, about: str, *, interval: float, once: bool, stop: asyncio.Event) -> None:
    """Draw a page every `interval` seconds until `stop`, in place; with `once`, and where there is no terminal, a single one.

    A server that does not answer meanwhile is named on the page. Raises what the first two readings raise.
    """
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    before = await read()
    await _pause(interval, stop)
    after = await read()
    if once or not console.is_terminal:
        console.print(drawn(summarised(before, after), about))
        return
    with Live(drawn(summarised(before, after), about), console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            await _pause(interval, stop)
            try:
                before, after = after, await read()
            except ClusterError as error:
                live.update(Text(f"{about}: {error}", style="red"), refresh=True)
                continue
            live.update(drawn(summarised(before, after), about), refresh=True)


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait for some seconds, or until `stop`."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
