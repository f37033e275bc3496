"""The tables of README.md, made of the results that are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench import bounds, results
from bench.bounds import Bound
from bench.results import OURS, THEIRS, THROUGH, Results
from bench.workloads import share_of

README = Path(__file__).with_name("README.md")
PERFORMANCE = README.parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- made of results/published.json by bench.picture -->", "<!-- end of what is made -->"
AGGREGATED = "<!-- made of results/aggregated.json by bench --aggregated --publish -->"
OPERATIONS = ("writes", "large", "reads", "lists", "reports")


def page(text: str, found: Results) -> str:
    """README.md with the tables of these results. Raises ValueError when it has no place for them."""
    return _filled(text, BEGIN, made(found))


def aggregated_page(text: str, found: Results) -> str:
    """README.md with the table of these results through kube-apiserver."""
    return _filled(text, AGGREGATED, "\n\n".join((_run(found), _through(found), _verdicts(found, bounds.AGGREGATED))))


def performance_page(text: str, found: Results) -> str:
    """docs/performance.md with the short table of these results through kube-apiserver."""
    return _filled(text, AGGREGATED, f"{_run(found)}\n\n{_through_shortly(found)}")


def publish_aggregated(found: Results) -> None:
    """The results through kube-apiserver, and their tables."""
    pages = {
        README: aggregated_page(README.read_text(), found),
        PERFORMANCE: performance_page(PERFORMANCE.read_text(), found),
    }
    found.write(results.PUBLISHED_AGGREGATED)
    for path, page in pages.items():
        path.write_text(page)


def _filled(text: str, begin: str, made: str) -> str:
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not (found and end):
        raise ValueError(f"{begin} and {END} must stand in README.md")
    return f"{before}{begin}\n\n{made}\n\n{END}{after}"


def made(found: Results) -> str:
    parts = (
        _run(found),
        _operations(found),
        _cold(found),
        _watches(found),
        _standing(found),
        _verdicts(found, bounds.BOUNDS),
    )
    return "\n\n".join(part for part in parts if part)


def number(value: float) -> str:
    """With about three digits."""
    if not value:
        return "0"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def _run(found: Results) -> str:
    facts = found.facts
    machine, versions = facts["machine"], facts["versions"]
    of = ", ".join(f"{name} {version}" for name, version in versions.items())
    quick = " with `--quick`: fewer samples, so less certain" if facts["quick"] else ""
    return (
        f"One run on {facts['date']}{quick}; {facts['slices']:,} slices, {machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_gb']} GB, Linux {machine['kernel']}; {of}."
    )


def _table(head: Iterable[str], lines: list[list[str]]) -> str:
    if not lines:
        return ""
    columns = list(head)
    text = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in text)


def _cell(found: Results, name: str, server: str, figure: str) -> str:
    value = found.figure(name, server, figure)
    return "" if value is None else number(value)


def _bounded(found: Results, name: str, figure: str) -> str:
    """The bound, and whether it is missed."""
    most, value = bounds.limit(name, figure), found.figure(name, OURS, figure)
    if most is None or value is None:
        return ""
    return f"**{most:g}: missed**" if value > most else f"{most:g}"


def _walls(found: Results, name: str, server: str) -> str:
    cells = [_cell(found, name, server, figure) for figure in ("p50_ms", "p99_ms")]
    return " / ".join(cells) if all(cells) else ""


def _times(found: Results, name: str, figure: str) -> str:
    ours, theirs = (found.figure(name, server, figure) for server in (OURS, THEIRS))
    return "" if not ours or theirs is None else f"{theirs / ours:.1f}"


def _operations(found: Results) -> str:
    head = (
        "workload (c = clients)",
        "Sluice: CPU ms",
        "bound",
        "p50 / p99 ms",
        "longest step ms",
        "peak MB",
        "kube-apiserver: CPU ms",
    )
    lines = [
        [
            name,
            _cell(found, name, OURS, "cpu_ms"),
            _bounded(found, name, "cpu_ms"),
            _walls(found, name, OURS),
            _cell(found, name, OURS, "longest_step_ms").removesuffix(".00").removesuffix(".0"),
            _cell(found, name, OURS, "peak_mb"),
            _cell(found, name, THEIRS, "cpu_ms"),
            _walls(found, name, THEIRS),
            _times(found, name, "cpu_ms"),
        ]
        for name in found.of(*OPERATIONS)
    ]
    return _table((*head, "p50 / p99 ms", "CPU, kube-apiserver / Sluice"), lines)


def _through(found: Results) -> str:
    """CPU of kube-apiserver's own group, and of Sluice's: of all processes, and of each that has a part in it."""
    head = (
        "workload (c = clients)",
        "own group: CPU ms",
        "kube-apiserver",
        "etcd",
        "through: CPU ms",
        "kube-apiserver",
        "Sluice",
        "Valkey",
        "own group / through",
        "goal",
        "direct: Sluice",
        "Sluice, through / direct",
        "goal",
    )
    lines = [
        [
            name,
            *(_cell(found, name, THEIRS, f) for f in ("cpu_ms", share_of("kube-apiserver"), share_of("etcd"))),
            _cell(found, name, THROUGH, "cpu_ms"),
            *(_cell(found, name, THROUGH, share_of(process)) for process in ("kube-apiserver", "sluice", "valkey")),
            *_aimed(found, name, "times"),
            _cell(found, name, OURS, share_of("sluice")),
            *_aimed(found, name, "of_direct"),
        ]
        for name in found.workloads
    ]
    return _table(head, lines)


def _through_shortly(found: Results) -> str:
    head = (
        "workload",
        "own group",
        "Sluice through kube-apiserver",
        "of this, Sluice and Valkey",
        "own group / through",
    )
    lines = []
    for name in found.workloads:
        part = sum(found.figure(name, THROUGH, share_of(process)) or 0.0 for process in ("sluice", "valkey"))
        own, through, times = (
            _cell(found, name, server, figure)
            for server, figure in ((THEIRS, "cpu_ms"), (THROUGH, "cpu_ms"), (THROUGH, "times"))
        )
        lines.append([f"`{name}`", own, through, number(part), times])
    return _table(head, lines)


def _aimed(found: Results, name: str, figure: str) -> tuple[str, str]:
    """The figure, and its bound with whether that is missed."""
    bounded = [
        v for v in bounds.judge(found, bounds.AGGREGATED) if (v.bound.workload, v.bound.figure) == (name, figure)
    ]
    goal = "".join(f"**{v.bound.limit:g}: missed**" if v.missed else f"{v.bound.limit:g}" for v in bounded)
    return _cell(found, name, THROUGH, figure), goal


def _cold(found: Results) -> str:
    head = (
        "made for the first time",
        "CPU ms",
        "least – most",
        "bound",
        "first byte ms: head",
        "body",
        "bound",
        "peak MB",
        "bound",
    )
    lines = [
        [
            name,
            _cell(found, name, OURS, "cpu_ms"),
            f"{_cell(found, name, OURS, 'cpu_least_ms')} – {_cell(found, name, OURS, 'cpu_most_ms')}",
            _bounded(found, name, "cpu_ms"),
            _cell(found, name, OURS, "head_ms"),
            _cell(found, name, OURS, "first_byte_ms"),
            _bounded(found, name, "first_byte_ms"),
            _cell(found, name, OURS, "peak_mb"),
            _bounded(found, name, "peak_mb"),
        ]
        for name in found.of("cold")
        if found.figure(name, OURS, "head_ms") is not None
    ]
    return _table(head, lines)


def _watches(found: Results) -> str:
    head = ("watches", "Sluice", "bare", "Sluice / bare", "bound", "kube-apiserver", "kube-apiserver / Sluice")
    lines = []
    for name in found.of("watches"):
        figure, unit, bare = ("cpu_us", "µs", "bare_us") if name.startswith("fan-out") else ("p50_ms", "ms", "bare_ms")
        lines.append(
            [
                f"{name}, {'CPU µs of a delivery' if unit == 'µs' else 'p50 ms'}",
                *(_cell(found, name, OURS, each) for each in (figure, bare, "of_bare")),
                _bounded(found, name, "of_bare"),
                _cell(found, name, THEIRS, figure),
                _times(found, name, figure),
            ]
        )
    return _table(head, lines)


def _standing(found: Results) -> str:
    """Memory, and starts."""
    lines = []
    for name, servers in found.workloads.items():
        if found.groups[name] not in {"memory", "start"} and name != "all forms of a list":
            continue
        start = found.figure(name, OURS, "start_s")
        lines.append(
            [
                name + ("" if start is None else f": served after {number(start)} s"),
                *(number(servers[each]["memory_mb"]) if each in servers else "" for each in (OURS, THEIRS)),
                _bounded(found, name, "memory_mb") or _bounded(found, name, "start_s"),
            ]
        )
    return _table(("resident, server + store", "Sluice MB", "kube-apiserver MB", "bound"), lines)


def _verdicts(found: Results, of: Sequence[Bound]) -> str:
    return "\n".join(_judged(found, of))


def _judged(found: Results, of: Sequence[Bound]) -> Iterator[str]:
    verdicts = bounds.judge(found, of)
    missed = [verdict for verdict in verdicts if verdict.missed]
    absent = sum(verdict.measured is None for verdict in verdicts)
    met = len(verdicts) - len(missed) - absent
    yield f"{met} of {len(verdicts)} bounds are met and {len(missed)} are missed. This run did not measure {absent}."
    if missed:
        yield ""
        yield "Missed:"
        yield ""
        for verdict in missed:
            assert verdict.measured is not None
            bound = verdict.bound
            yield f"* {bound.workload}: {number(verdict.measured)} instead of {bound.limit:g} {bounds.UNITS[bound.figure]}"
