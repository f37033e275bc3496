"""The metrics' text: names, labels and buckets are a contract with dashboards."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import pytest
import yaml

from apiserver import collectors, metrics
from apiserver.apimachinery.releases import V1_37, at
from apiserver.verbs import watch
from tests.fixtures.cases import each_case

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def lines(name: str) -> list[str]:
    return [line for line in collectors.exposition_text().decode().splitlines() if line.startswith(name)]


UPSTREAM: dict[str, dict[str, Any]] = {
    name: family
    for part in yaml.safe_load((PROJECT / "tests" / "cases" / "metrics-1.37.yaml").read_text()).values()
    for name, family in part.items()
}
"""Help, type, labels and buckets of the shared metrics in kube-apiserver 1.37.2."""
NOT_IN_1_37 = {"apiserver_dropped_requests_total", "apiserver_storage_objects"}
"""Names that older releases had."""
DIFFERENCES = {
    ("kubernetes_build_info", "labels"): [
        "build_date",
        "git_commit",
        "git_version",
    ],  # the rest describes a build with Go
}


def ours() -> dict[str, collectors.Counter | collectors.Gauge | collectors.Histogram | collectors.Summary]:
    kinds = collectors.Counter | collectors.Gauge | collectors.Histogram | collectors.Summary
    found = {value.name: value for value in vars(metrics).values() if isinstance(value, kinds)}
    return {name: family for name, family in found.items() if not name.startswith("sluice_")}


def test_every_metric_of_upstream_that_we_share_is_recorded() -> None:
    assert ours().keys() == UPSTREAM.keys() | NOT_IN_1_37


@each_case("name", UPSTREAM)
def test_a_shared_metric_has_upstreams_help_type_labels_and_buckets(name: str) -> None:
    # The release that is served sets these.
    metrics.WATCH_LIST_SECONDS.divide(at(V1_37, watch.WATCH_LIST_BUCKETS))
    family = ours()[name]
    found: dict[str, Any] = {
        "help": family.text,
        "type": type(family).__name__.lower(),
        "labels": sorted(family.label_names),
    }
    if isinstance(family, collectors.Histogram):
        found["buckets"] = [bound for bound, _ in family._make().buckets()]
    expected = UPSTREAM[name] | {what: value for (of, what), value in DIFFERENCES.items() if of == name}
    assert found == expected


def test_service_level_buckets_count_what_finer_ones_hold() -> None:
    part = collectors.Distribution((1, 2, 4))
    for amount in (0.5, 1.5, 3, 9):
        part.observe(amount)
    assert collectors.Total((part, part), (2, 4)).buckets() == [("2", 4), ("4", 6), ("+Inf", 8)]


def test_a_request_is_counted_under_upstreams_labels() -> None:
    meter = metrics.RequestMeter(
        metrics.RequestLabels("GET", group="t.example", version="v1", resource="tests", scope="resource")
    )
    meter.record(200, 0.004, 300)
    labels = 'component="apiserver",dry_run="",group="t.example",resource="tests",scope="resource",subresource="",verb="GET",version="v1"'
    assert f'apiserver_request_total{{code="200",{labels}}} 1.0' in lines("apiserver_request_total")
    observed = [line for line in lines("apiserver_request_duration_seconds_bucket") if 'group="t.example"' in line]
    assert len(observed) == 24
    assert observed[0].startswith(
        'apiserver_request_duration_seconds_bucket{component="apiserver",dry_run="",group="t.example",le="0.005"'
    )
    assert all(line.endswith(" 1.0") for line in observed)
    sizes = [line for line in lines("apiserver_response_sizes_bucket") if 'group="t.example"' in line]
    assert [line.rpartition(" ")[2] for line in sizes] == ["1.0"] * 8


def test_dry_runs_stay_out_of_the_service_level_histogram() -> None:
    meter = metrics.RequestMeter(
        metrics.RequestLabels("POST", "All", group="dry.example", version="v1", resource="tests", scope="resource")
    )
    meter.record(201, 0.1, 0)
    assert not [line for line in lines("apiserver_request_sli_duration_seconds") if 'group="dry.example"' in line]
    assert not [line for line in lines("apiserver_response_sizes") if 'group="dry.example"' in line]


def test_the_time_of_webhooks_stays_out_of_the_service_level_histogram() -> None:
    meter = metrics.RequestMeter(
        metrics.RequestLabels("POST", group="slow.example", version="v1", resource="tests", scope="resource")
    )
    meter.record(201, 0.25, 0)
    meter.record(201, 2.0, 0, waited=1.5)

    def sums(name: str) -> list[float]:
        return [float(line.rpartition(" ")[2]) for line in lines(f"{name}_sum") if 'group="slow.example"' in line]

    assert sums("apiserver_request_duration_seconds") == [2.25]
    assert sums("apiserver_request_sli_duration_seconds") == [0.75]


def test_only_watches_are_long_running() -> None:
    assert metrics.RequestMeter(metrics.RequestLabels("LIST")).open is None
    gauge = metrics.RequestMeter(metrics.RequestLabels("WATCH", resource="longtests")).open
    assert gauge is not None
    gauge.inc()
    assert next(line for line in lines("apiserver_longrunning_requests") if "longtests" in line).endswith(" 1.0")


def test_buckets_are_cumulative_and_inclusive() -> None:
    d = collectors.Distribution((1, 10))
    for amount in (0.5, 1, 5, 11):
        d.observe(amount)
    assert d.buckets() == [("1", 2), ("10", 3), ("+Inf", 4)]
    assert (d.count, d.sum) == (4, 17.5)


def test_quantiles_are_right_to_one_percent_and_forget_what_is_old() -> None:
    now = 0.0
    d = collectors.Quantiles(50, clock=lambda: now)
    assert all(math.isnan(value) for _, value in d.quantiles()), "NaN where nothing was observed"
    for amount in range(1, 1001):
        d.observe(amount / 1000)
    assert dict(d.quantiles()) == pytest.approx({0.5: 0.5, 0.9: 0.9, 0.99: 0.99}, rel=0.011)
    now = 41.0
    d.observe(7)
    d.observe(7)
    assert dict(d.quantiles())[0.5] == pytest.approx(0.5, rel=0.011)
    now = 51.0
    assert dict(d.quantiles())[0.5] == pytest.approx(7, rel=0.011)
    now = 500.0
    d.observe(0)
    assert dict(d.quantiles())[0.99] == pytest.approx(1e-9, rel=0.03)
    assert (d.count, round(d.sum, 6)) == (1003, 514.5)


def test_a_summary_looks_as_prometheus_has_them() -> None:
    metrics.ADMISSION_STEP_SUMMARY.labels("admit", "SHOWN", "false").observe(0.25)
    name = "apiserver_admission_step_admission_duration_seconds_summary"
    shown = [line.rsplit(" ", 1) for line in lines(name) if "SHOWN" in line]
    labels = 'operation="SHOWN",{}rejected="false",type="admit"'
    assert [where for where, _ in shown] == [
        *(name + "{" + labels.format(f'quantile="{value}",') + "}" for value in ("0.5", "0.9", "0.99")),
        name + "_sum{" + labels.format("") + "}",
        name + "_count{" + labels.format("") + "}",
    ]
    assert [value for _, value in shown[3:]] == ["0.25", "1.0"]


def test_a_gauge_may_ask_when_it_is_read() -> None:
    metrics.TAIL_LAG_SECONDS.labels("asked.example").set_function(lambda: 7.0)
    assert 'sluice_tail_lag_seconds{resource="asked.example"} 7.0' in lines("sluice_tail_lag_seconds")
    metrics.TAIL_LAG_SECONDS.remove("asked.example")
    assert not [line for line in lines("sluice_tail_lag_seconds") if "asked.example" in line]


def test_the_number_of_label_values_is_checked() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        metrics.COMMITS.labels("only one")


def test_the_names_that_dashboards_read_are_there() -> None:
    text = collectors.exposition_text().decode()
    for name in (
        "apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds",
        "apiserver_longrunning_requests", "apiserver_response_sizes", "apiserver_current_inflight_requests",
        "apiserver_request_terminations_total", "apiserver_request_aborts_total", "apiserver_request_filter_duration_seconds",
        "apiserver_watch_events_total", "apiserver_watch_events_sizes", "apiserver_watch_list_duration_seconds",
        "apiserver_tls_handshake_errors_total", "apiserver_terminated_watchers_total", "apiserver_resource_objects",
        "authentication_attempts", "authentication_duration_seconds", "authenticated_user_requests",
        "authorization_attempts_total", "authorization_duration_seconds", "apiserver_client_certificate_expiration_seconds",
        "kubernetes_healthcheck", "kubernetes_healthchecks_total", "kubernetes_build_info", "process_resident_memory_bytes",
        "apiserver_delegated_authn_request_total", "apiserver_delegated_authn_request_duration_seconds",
        "apiserver_delegated_authz_request_total", "apiserver_delegated_authz_request_duration_seconds",
        "authentication_token_cache_request_total", "authentication_token_cache_request_duration_seconds",
        "authentication_token_cache_fetch_total", "authentication_token_cache_active_fetch_count",
        "rest_client_requests_total", "rest_client_request_duration_seconds",
        "sluice_commits_total", "sluice_barrier_duration_seconds", "sluice_tail_lag_seconds", "sluice_watchers",
        "sluice_dropped_watchers_total", "sluice_applied_revision_epoch", "sluice_applied_revision_number",
        "sluice_lost_writes_detected_total", "sluice_consistency_checks_total", "sluice_rebuilds_total",
        "sluice_task_failures_total",
    ):  # fmt: skip
        assert f"# HELP {name} " in text, name


def test_audit_is_counted_under_upstreams_names() -> None:
    metrics.AUDIT_ERRORS.labels("none").inc(0)
    metrics.AUDIT_LEVELS.labels("none").inc(0)
    told = collectors.exposition_text().decode()
    for name, labels, text in (
        ("event_total", "", "Counter of audit events generated and sent to the audit backend."),
        (
            "error_total",
            '{plugin="none"}',
            "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
        ),
        ("level_total", '{level="none"}', "Counter of policy levels for audit events (1 per request)."),
        (
            "requests_rejected_total",
            "",
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
        ),
    ):
        assert f"# HELP apiserver_audit_{name} [ALPHA] {text}\n# TYPE apiserver_audit_{name} counter\n" in told
        assert any(line.startswith(f"apiserver_audit_{name}{labels} ") for line in told.splitlines())
