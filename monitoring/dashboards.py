"""Writes monitoring/dashboards/*.json, the dashboards of Grafana, from the declaration below: `python -m monitoring.dashboards`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"
TARGETS = 'job="sluice",namespace=~"$namespace"'
"""Replaces `@` in the queries. A Prometheus without the label `namespace` has the value "", which the variable's `.*` matches."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph. `queries` are pairs of an expression and its legend."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    note: str = ""
    quiet: bool = False
    """Whether it shows nothing while all is well."""


def _rate(name: str, by: str, *, where: str = "") -> str:
    return f"sum by ({by}) (rate({name}{{@{where}}}[$__rate_interval]))"


def _p99(name: str, by: str = "", *, where: str = "") -> str:
    return f"histogram_quantile(0.99, {_rate(f'{name}_bucket', f'{by}, le' if by else 'le', where=where)})"


RESOURCES = ',resource!=""'
LISTS = ',verb="LIST"'
BOARDS: dict[str, tuple[str, Sequence[Panel]]] = {
    "overview": (
        "Sluice / Overview",
        [
            Panel("Servers that answer", [("sum(up{@})", "answer"), ("count(up{@})", "all")]),
            Panel(
                "Requests by code", [(_rate("apiserver_request_total", "code", where=RESOURCES), "{{code}}")], "reqps"
            ),
            Panel(
                "Share of 5xx",
                [('sluice:apiserver_request_errors:ratio_rate5m{namespace=~"$namespace"}', "5 minutes")],
                "percentunit",
                "The service level allows 0.1 %.",
            ),
            Panel(
                "Latency, 99 of 100",
                [
                    (
                        _p99("apiserver_request_sli_duration_seconds", "verb", where=f'{RESOURCES},verb!="WATCH"'),
                        "{{verb}}",
                    )
                ],
                "s",
            ),
            Panel(
                "CPU",
                [("rate(process_cpu_seconds_total{@}[$__rate_interval])", "{{instance}}")],
                "short",
                "One process uses one core and some threads.",
            ),
            Panel(
                "Memory",
                [
                    ("process_resident_memory_bytes{@}", "resident {{instance}}"),
                    ("sum by (instance) (sluice_object_bytes{@})", "objects {{instance}}"),
                    ("sum by (instance) (sluice_history_bytes{@})", "history {{instance}}"),
                    ("sluice_encoding_bytes{@}", "encodings {{instance}}"),
                ],
                "bytes",
            ),
            Panel("Store accepts writes", [("min by (resource) (sluice_store_writable{@})", "{{resource}}")]),
            Panel("Objects", [("max by (group, resource) (apiserver_resource_objects{@})", "{{resource}}.{{group}}")]),
            Panel("Open watches", [("sum by (resource) (sluice_watchers{@})", "{{resource}}")]),
            Panel(
                "Certificates end in",
                [
                    (
                        "min by (certificate) (sluice_certificate_expiration_timestamp_seconds{@}) - time()",
                        "{{certificate}}",
                    )
                ],
                "s",
            ),
            Panel("Restarts within an hour", [("changes(process_start_time_seconds{@}[1h])", "{{instance}}")]),
            Panel(
                "Alerts that fire",
                [('count by (alertname) (ALERTS{alertname=~"Sluice.*",alertstate="firing"})', "{{alertname}}")],
                quiet=True,
            ),
        ],
    ),
    "requests": (
        "Sluice / Requests",
        [
            Panel("Requests by verb", [(_rate("apiserver_request_total", "verb"), "{{verb}}")], "reqps"),
            Panel(
                "Requests by resource",
                [(_rate("apiserver_request_total", "resource", where=RESOURCES), "{{resource}}")],
                "reqps",
            ),
            Panel(
                "Errors by verb and code",
                [(_rate("apiserver_request_total", "verb, code", where=',code=~"[45].."'), "{{verb}} {{code}}")],
                "reqps",
            ),
            Panel(
                "Latency of writes, 99 of 100",
                [
                    (
                        _p99(
                            "apiserver_request_duration_seconds", "verb", where=',verb=~"POST|PUT|PATCH|APPLY|DELETE"'
                        ),
                        "{{verb}}",
                    )
                ],
                "s",
            ),
            Panel(
                "Latency of reads, 99 of 100",
                [(_p99("apiserver_request_duration_seconds", "verb", where=',verb=~"GET|LIST"'), "{{verb}}")],
                "s",
            ),
            Panel(
                "Bytes sent",
                [(_rate("apiserver_response_sizes_sum", "verb, resource"), "{{verb}} {{resource}}")],
                "Bps",
            ),
            Panel(
                "Requests in progress",
                [("sum by (request_kind) (apiserver_current_inflight_requests{@})", "{{request_kind}}")],
            ),
            Panel(
                "Rejected by the limit",
                [(_rate("apiserver_dropped_requests_total", "request_kind"), "{{request_kind}}")],
                "reqps",
            ),
            Panel(
                "Filters, 99 of 100", [(_p99("apiserver_request_filter_duration_seconds", "filter"), "{{filter}}")], "s"
            ),
            Panel("Authentication", [(_rate("authentication_attempts", "result"), "{{result}}")], "reqps"),
            Panel("Authorization", [(_rate("authorization_attempts_total", "result"), "{{result}}")], "reqps"),
            Panel(
                "Admission plugins, 99 of 100",
                [(_p99("apiserver_admission_controller_admission_duration_seconds", "name"), "{{name}}")],
                "s",
            ),
            Panel(
                "Webhooks, 99 of 100",
                [(_p99("apiserver_admission_webhook_admission_duration_seconds", "name"), "{{name}}")],
                "s",
                quiet=True,
            ),
            Panel(
                "Requests to kube-apiserver by code",
                [(_rate("rest_client_requests_total", "code"), "{{code}}")],
                "reqps",
                "A server without a cluster sends none.",
                quiet=True,
            ),
            Panel(
                "Event loop, 99 of 100",
                [(_p99("sluice_event_loop_step_seconds", "instance"), "{{instance}}")],
                "s",
                "CPU time of one step. The limit is 20 ms.",
            ),
        ],
    ),
    "watches": (
        "Sluice / Watches and lists",
        [
            Panel("Watchers", [("sum by (resource, state) (sluice_watchers{@})", "{{resource}} {{state}}")]),
            Panel("Watchers behind", [('sum by (resource) (sluice_watchers{@,state="behind"})', "{{resource}}")]),
            Panel("Events sent", [(_rate("apiserver_watch_events_total", "resource"), "{{resource}}")], "reqps"),
            Panel(
                "Event sizes, 99 of 100", [(_p99("apiserver_watch_events_sizes", "resource"), "{{resource}}")], "bytes"
            ),
            Panel("Initial events", [(_rate("apiserver_init_events_total", "resource"), "{{resource}}")], "reqps"),
            Panel(
                "Closed because they did not keep up",
                [(_rate("sluice_dropped_watchers_total", "resource"), "{{resource}}")],
                "reqps",
            ),
            Panel("Events in memory", [("max by (resource) (apiserver_watch_cache_capacity{@})", "{{resource}}")]),
            Panel("History", [("max by (resource) (sluice_history_bytes{@})", "{{resource}}")], "bytes"),
            Panel(
                "Lists", [(_rate("apiserver_request_total", "resource", where=',verb="LIST"'), "{{resource}}")], "reqps"
            ),
            Panel(
                "Size of lists, mean",
                [
                    (
                        " / ".join(
                            _rate(f"apiserver_response_sizes_{part}", "resource", where=LISTS)
                            for part in ("sum", "count")
                        ),
                        "{{resource}}",
                    )
                ],
                "bytes",
            ),
            Panel("Encodings", [(_rate("sluice_encodings_total", "what, outcome"), "{{what}} {{outcome}}")], "reqps"),
            Panel("Cached encodings", [("sluice_encoding_bytes{@}", "{{instance}}")], "bytes"),
        ],
    ),
    "store": (
        "Sluice / Store",
        [
            Panel(
                "Primaries",
                [("count by (address, run_id) (sluice_store_primary_info{@})", "{{address}} {{run_id}}")],
                note="Servers that follow it.",
            ),
            Panel("Writes by outcome", [(_rate("sluice_commits_total", "outcome"), "{{outcome}}")], "reqps"),
            Panel("Writes, 99 of 100", [(_p99("sluice_commit_duration_seconds", "resource"), "{{resource}}")], "s"),
            Panel("Exact reads", [(_rate("sluice_barriers_total", "outcome"), "{{outcome}}")], "reqps"),
            Panel(
                "Exact reads, 99 of 100", [(_p99("sluice_barrier_duration_seconds", "resource"), "{{resource}}")], "s"
            ),
            Panel(
                "Memory behind the log",
                [("max by (instance, resource) (sluice_tail_lag_seconds{@})", "{{instance}} {{resource}}")],
                "s",
            ),
            Panel(
                "Memory of the store",
                [
                    ("max by (address) (sluice_store_memory_bytes{@})", "used {{address}}"),
                    ("max by (address) (sluice_store_memory_limit_bytes{@})", "limit {{address}}"),
                ],
                "bytes",
            ),
            Panel(
                "Replicas",
                [
                    ("min by (address) (sluice_store_replicas_in_step{@})", "in step {{address}}"),
                    ("max by (address) (sluice_store_replicas_needed{@})", "needed {{address}}"),
                ],
            ),
            Panel(
                "Confirmations by replicas, 99 of 100",
                [(_p99("sluice_store_confirm_seconds"), "p99")],
                "s",
                "Only with replicas.",
                quiet=True,
            ),
            Panel(
                "Unconfirmed and lost writes",
                [
                    ("sum(increase(sluice_store_unconfirmed_writes_total{@}[5m]))", "unconfirmed"),
                    ("sum(increase(sluice_lost_writes_detected_total{@}[5m]))", "lost"),
                ],
            ),
            Panel(
                "Changes of the primary within an hour",
                [("sum by (reason) (increase(sluice_store_failovers_total{@}[1h]))", "{{reason}}")],
                quiet=True,
            ),
            Panel(
                "Sentinels",
                [("min by (state) (sluice_store_sentinels{@})", "{{state}}")],
                note="Only with sentinels.",
                quiet=True,
            ),
            Panel(
                "Connections to the log within 15 minutes",
                [("sum by (resource) (increase(sluice_tail_reconnects_total{@}[15m]))", "{{resource}}")],
            ),
            Panel(
                "Memory filled again within an hour",
                [("sum by (resource, reason) (increase(sluice_rebuilds_total{@}[1h]))", "{{resource}} {{reason}}")],
            ),
        ],
    ),
}


def expression(query: str) -> str:
    """Return the query as Grafana gets it."""
    return query.replace("@", TARGETS)


def dashboard(name: str) -> dict[str, Any]:
    """Return one dashboard, in the schema of Grafana 10 and later."""
    title, panels = BOARDS[name]
    source = {"type": "prometheus", "uid": "${datasource}"}
    namespaces = {
        "name": "namespace",
        "type": "query",
        "datasource": source,
        "query": 'label_values(up{job="sluice"}, namespace)',
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }
    return {
        "uid": f"sluice-{name}",
        "title": title,
        "tags": ["sluice"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["sluice"], "title": "Sluice", "asDropdown": True}],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, namespaces]},
        "panels": [
            {
                "id": at + 1,
                "type": "timeseries",
                "title": panel.title,
                "description": panel.note,
                "datasource": source,
                "gridPos": {"x": at % 3 * 8, "y": at // 3 * 7, "w": 8, "h": 7},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + number), "expr": expression(query), "legendFormat": legend}
                    for number, (query, legend) in enumerate(panel.queries)
                ],
            }
            for at, panel in enumerate(panels)
        ],
    }


def files() -> dict[str, str]:
    """Return the files of the folder, by name."""
    return {f"{name}.json": json.dumps(dashboard(name), indent=1) + "\n" for name in BOARDS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
