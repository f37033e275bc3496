"""The figures of one page, from two readings. Knows no terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apiserver.top.reading import Reading, bucket, increases

MOST_ROWS = 12
"""Rows of a table: the busiest."""
BUDGET_SECONDS = 0.02
"""The longest step of the event loop that is allowed (`runtime`)."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one verb and resource: per second in all, of these refused (4xx) and failed (5xx). `p99` is in seconds."""

    verb: str
    resource: str
    rate: float
    refused: float
    failed: float
    mean: float
    p99: float


@dataclass(frozen=True, slots=True)
class Kept:
    """One resource in memory: objects and bytes of JSON, watchers and those behind, writes and watch events per second, seconds of a
    commit, seconds that memory is behind the log."""

    resource: str
    objects: float
    size: float
    watchers: float
    behind: float
    writes: float
    events: float
    commit_p99: float
    lag: float
    writable: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """Something per second by a name: a code, a form, a kind of user, a flow."""

    name: str
    rate: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All figures. Rates are per second; `cpu` is in cores; `loop_busy` is the share of time in steps of the event loop."""

    seconds: float
    requests: tuple[Requests, ...]
    codes: tuple[Counted, ...]
    users: tuple[Counted, ...]
    flows: tuple[Counted, ...]
    lists: tuple[Counted, ...]
    kept: tuple[Kept, ...]
    in_flight: float
    dropped: float
    cpu: float
    loop_busy: float
    loop_p99: float
    loop_long: float
    memory: float
    objects_bytes: float
    history_bytes: float
    encoding_bytes: float
    barrier_p99: float
    replicas: float
    version: str


def summarised(before: Reading, after: Reading) -> Summary:
    """Return the figures between two readings. `before` may be empty: rates are then since the start of the counters."""
    seconds = max(after.at - before.at, 1e-9)

    def by(name: str, label: str) -> tuple[Counted, ...]:
        sums: dict[str, float] = {}
        for labels, rise in increases(before, after, name):
            sums[labels.get(label, "")] = sums.get(labels.get(label, ""), 0.0) + rise
        rates = [Counted(key or "-", rise / seconds) for key, rise in sums.items()]
        return tuple(sorted(rates, key=lambda each: -each.rate)[:MOST_ROWS])

    steps = _buckets(before, after, "sluice_event_loop_step_seconds", ())
    step_counts = steps.get((), {})
    everything = step_counts.get(math.inf, 0.0)
    return Summary(
        seconds=seconds,
        requests=_requests(before, after, seconds),
        codes=by("apiserver_request_total", "code"),
        users=by("authenticated_user_requests", "username"),
        flows=by("apiserver_flowcontrol_dispatched_requests_total", "flow_schema"),
        lists=by("sluice_lists_total", "form"),
        kept=_kept(before, after, seconds),
        in_flight=after.total("apiserver_current_inflight_requests"),
        dropped=_rise(before, after, "apiserver_dropped_requests_total") / seconds,
        cpu=_rise(before, after, "process_cpu_seconds_total") / seconds,
        loop_busy=_rise(before, after, "sluice_event_loop_step_seconds_sum") / seconds,
        loop_p99=bucket(step_counts, 0.99),
        loop_long=(everything - step_counts.get(BUDGET_SECONDS, everything)) / seconds,
        memory=after.total("process_resident_memory_bytes"),
        objects_bytes=after.total("sluice_object_bytes"),
        history_bytes=after.total("sluice_history_bytes"),
        encoding_bytes=after.total("sluice_encoding_bytes"),
        barrier_p99=bucket(_buckets(before, after, "sluice_barrier_duration_seconds", ()).get((), {}), 0.99),
        replicas=after.total("sluice_store_replicas_in_step"),
        version=next((labels.get("git_version", "") for labels, _ in after.each("kubernetes_build_info")), ""),
    )


def _rise(before: Reading, after: Reading, name: str) -> float:
    return sum(rise for _, rise in increases(before, after, name))


def _requests(before: Reading, after: Reading, seconds: float) -> tuple[Requests, ...]:
    """Return the rows of requests, the busiest first."""
    key = ("verb", "resource", "subresource")
    counts: dict[tuple[str, ...], list[float]] = {}
    for labels, rise in increases(before, after, "apiserver_request_total"):
        row = counts.setdefault(_key(labels, key), [0.0, 0.0, 0.0])
        row[0] += rise
        row[1] += rise if labels.get("code", "").startswith("4") else 0.0
        row[2] += rise if labels.get("code", "").startswith("5") else 0.0
    name = "apiserver_request_duration_seconds"
    sums, many = _sums(before, after, f"{name}_sum", key), _sums(before, after, f"{name}_count", key)
    buckets = _buckets(before, after, name, key)
    rows = [
        Requests(
            verb=of[0],
            resource="/".join(filter(None, of[1:])).replace("//", "/") or "-",
            rate=row[0] / seconds,
            refused=row[1] / seconds,
            failed=row[2] / seconds,
            mean=sums.get(of, 0.0) / many[of] if many.get(of) and of[0] != "WATCH" else math.nan,
            p99=bucket(buckets.get(of, {}), 0.99) if of[0] != "WATCH" else math.nan,
        )
        for of, row in counts.items()
    ]
    return tuple(sorted(rows, key=lambda each: -each.rate)[:MOST_ROWS])


def _kept(before: Reading, after: Reading, seconds: float) -> tuple[Kept, ...]:
    """Return the rows of resources, those with most writes, watchers and objects first."""
    commits = _buckets(before, after, "sluice_commit_duration_seconds", ("resource",))
    writes = _sums(before, after, "sluice_commits_total", ("resource",))
    events = _sums(before, after, "apiserver_watch_events_total", ("resource", "group"))
    objects = {labels["resource"]: value for labels, value in after.each("apiserver_storage_objects")}
    rows = [
        Kept(
            resource=name,
            objects=count,
            size=after.total("sluice_object_bytes", resource=name),
            watchers=after.total("sluice_watchers", resource=name),
            behind=after.total("sluice_watchers", resource=name, state="behind"),
            writes=writes.get((name,), 0.0) / seconds,
            events=events.get((name.partition(".")[0], name.partition(".")[2]), 0.0) / seconds,
            commit_p99=bucket(commits.get((name,), {}), 0.99),
            lag=after.total("sluice_tail_lag_seconds", resource=name),
            writable=after.total("sluice_store_writable", resource=name) > 0,
        )
        for name, count in objects.items()
    ]
    rows.sort(key=lambda each: (-each.writes, -each.watchers, -each.objects, each.resource))
    return tuple(rows[:MOST_ROWS])


def _key(labels: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in names)


def _sums(before: Reading, after: Reading, name: str, labels: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for have, rise in increases(before, after, name):
        key = _key(have, labels)
        found[key] = found.get(key, 0.0) + rise
    return found


def _buckets(
    before: Reading, after: Reading, name: str, labels: tuple[str, ...]
) -> dict[tuple[str, ...], dict[float, float]]:
    """Return the rises of a histogram's buckets by some of its labels and the bucket's bound."""
    found: dict[tuple[str, ...], dict[float, float]] = {}
    for (*key, bound), rise in _sums(before, after, f"{name}_bucket", (*labels, "le")).items():
        found.setdefault(tuple(key), {})[float(bound)] = rise
    return found
