"""Every metric: name, help, labels, buckets. Knows nothing of the code that counts.

Names, help, labels and buckets of all but `sluice_*` are kube-apiserver's (kubernetes/apiserver `pkg/endpoints/metrics/metrics.go`), so
existing dashboards and alerts work. Metrics that only this server has are named `sluice_*`.

`labels(...)` costs more than counting: hot paths keep the child that it returns, as `RequestMeter` does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from apiserver import buildinfo
from apiserver.collectors import Counter, Distribution, Gauge, Histogram, Summary, Total, Value

COMPONENT = "apiserver"

Shown = Counter | Gauge
"""A family whose values are read at each scrape."""

_RESOURCE = ("verb", "group", "version", "resource", "subresource", "scope")
_RESOURCE_AND_COMPONENT = (*_RESOURCE, "component")
_REQUEST = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")

_REQUEST_SECONDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
_SLI_SECONDS = _REQUEST_SECONDS[2:]
_RESPONSE_BYTES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
_FILTER_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30)
_WATCH_EVENT_BYTES = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_AUTH_SECONDS = (
    0.001,
    0.002,
    0.004,
    0.008,
    0.016,
    0.032,
    0.064,
    0.128,
    0.256,
    0.512,
    1.024,
    2.048,
    4.096,
    8.192,
    16.384,
)
_CERTIFICATE_SECONDS = (
    0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000,
)  # fmt: skip
_DELEGATED_SECONDS = (0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10)
_CLIENT_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_DEFAULT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""prometheus/client_golang's DefBuckets, the default of upstream's histograms."""
_STEP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_STORE_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5)


# ---------------------------------------------------------------------------------------------------------------- requests

REQUESTS = Counter(
    "apiserver_request_total",
    "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource,"
    " scope, component, and HTTP response code.",
    *_REQUEST,
    "code",
)
REQUEST_SECONDS = Histogram(
    "apiserver_request_duration_seconds",
    "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource,"
    " subresource, scope and component.",
    _REQUEST_SECONDS,
    *_REQUEST,
)
REQUEST_SLI_SECONDS = Histogram(
    "apiserver_request_sli_duration_seconds",
    "[ALPHA] Response latency distribution (not counting webhook duration and priority & fairness queue wait "
    "times) in seconds for each verb, group, version, resource, subresource, scope and component.",
    _SLI_SECONDS,
    *_RESOURCE_AND_COMPONENT,
)
RESPONSE_BYTES = Histogram(
    "apiserver_response_sizes",
    "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope "
    "and component.",
    _RESPONSE_BYTES,
    *_RESOURCE_AND_COMPONENT,
)
LONG_RUNNING = Gauge(
    "apiserver_longrunning_requests",
    "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, "
    "resource, scope and component. Not all requests are tracked this way.",
    *_RESOURCE_AND_COMPONENT,
)
IN_FLIGHT = Gauge(
    "apiserver_current_inflight_requests",
    "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in "
    "last second.",
    "request_kind",
)
DEPRECATED_APIS = Gauge(
    "apiserver_requested_deprecated_apis",
    "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, "
    "subresource, and removed_release.",
    "group",
    "version",
    "resource",
    "subresource",
    "removed_release",
)
TERMINATIONS = Counter(
    "apiserver_request_terminations_total",
    "[ALPHA] Number of requests which apiserver terminated in self-defense.",
    "component", "verb", "group", "version", "resource", "subresource", "scope", "code",
)  # fmt: skip
ABORTS = Counter(
    "apiserver_request_aborts_total",
    "[ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, version, "
    "verb, resource, subresource and scope",
    *_RESOURCE,
)
DROPPED = Counter("apiserver_dropped_requests_total", "Requests answered 429 over the in-flight limit.", "request_kind")
FILTER_SECONDS = Histogram(
    "apiserver_request_filter_duration_seconds",
    "[ALPHA] Request filter latency distribution in seconds, for each filter type",
    _FILTER_SECONDS,
    "filter",
)
FIELD_VALIDATION_SECONDS = Histogram(
    "field_validation_request_duration_seconds",
    "[ALPHA] Response latency distribution in seconds for each field validation value",
    _SLI_SECONDS,
    "field_validation",
)
TIMESTAMP_COMPARISON_SECONDS = Histogram(
    "apiserver_request_timestamp_comparison_time",
    "[ALPHA] Time taken for comparison of old vs new objects in UPDATE or PATCH requests",
    (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5),
    "code_path",
)
CERTIFICATE_END = Gauge(
    "sluice_certificate_expiration_timestamp_seconds",
    "Unix time at which a certificate of this server ends (serving, client-ca, front-proxy-ca, store-client).",
    "certificate",
)
TLS_HANDSHAKE_ERRORS = Counter(
    "apiserver_tls_handshake_errors_total", "[ALPHA] Number of requests dropped with 'TLS handshake error from' error"
)
CLIENT_CERTIFICATE_SECONDS = Histogram(
    "apiserver_client_certificate_expiration_seconds",
    "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
    _CERTIFICATE_SECONDS,
)

# ---------------------------------------------------------------------------------------------------------------- watches

WATCH_EVENTS = Counter(
    "apiserver_watch_events_total", "[BETA] Number of events sent in watch clients", "group", "version", "resource"
)
WATCH_EVENT_BYTES = Histogram(
    "apiserver_watch_events_sizes",
    "[BETA] Watch event size distribution in bytes",
    _WATCH_EVENT_BYTES,
    "group",
    "version",
    "resource",
)
LISTS = Counter("sluice_lists_total", "Lists by the form in which they are written.", "form")
WATCH_LIST_SECONDS = Histogram(
    "apiserver_watch_list_duration_seconds",
    "[BETA] Response latency distribution in seconds for watch list requests broken by group, version, "
"resource and scope.",
    (),  # the release decides: verbs/watch.py
    "group", "version", "resource", "scope",
)  # fmt: skip
TERMINATED_WATCHERS = Counter(
    "apiserver_terminated_watchers_total",
    "[ALPHA] Counter of watchers closed due to unresponsiveness broken by resource type.",
    "group",
    "resource",
)
WATCH_SHARDS = Gauge(
    "apiserver_watch_shards_total",
    "[ALPHA] Number of active sharded watch connections broken by resource type.",
    "group",
    "resource",
)
FILTERED_EVENTS = Counter(
    "apiserver_watch_filtered_events_total",
    "[ALPHA] Counter of events filtered out by shard selector during watch dispatch, broken by resource type.",
    "group",
    "resource",
)

# ---------------------------------------------------------------------------------------------------------------- identity

AUTHENTICATED_REQUESTS = Counter(
    "authenticated_user_requests", "[ALPHA] Counter of authenticated requests broken out by username.", "username"
)
AUTHENTICATION_ATTEMPTS = Counter("authentication_attempts", "[ALPHA] Counter of authenticated attempts.", "result")
AUTHENTICATION_SECONDS = Histogram(
    "authentication_duration_seconds",
    "[ALPHA] Authentication duration in seconds broken out by result.",
    _AUTH_SECONDS,
    "result",
)
AUTHORIZATION_ATTEMPTS = Counter(
    "authorization_attempts_total",
    "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', "
    "'no-opinion' or 'error'.",
    "result",
)
AUTHORIZATION_SECONDS = Histogram(
    "authorization_duration_seconds",
    "[ALPHA] Authorization duration in seconds broken out by result.",
    _AUTH_SECONDS,
    "result",
)
# kubernetes/apiserver `pkg/endpoints/filters/impersonation/metrics/metrics.go`. `mode` is the mode of impersonation.
IMPERSONATIONS = Counter(
    "apiserver_impersonation_attempts_total",
    "[ALPHA] Total number of impersonation attempts split by mode and decision.",
    "mode",
    "decision",
)
IMPERSONATION_SECONDS = Histogram(
    "apiserver_impersonation_attempts_duration_seconds",
    "[ALPHA] Latency of impersonation attempts in seconds split by mode and decision.",
    _AUTH_SECONDS,
    "mode",
    "decision",
)
IMPERSONATION_QUESTIONS = Counter(
    "apiserver_impersonation_authorization_attempts_total",
    "[ALPHA] Total number of authorization checks made by the impersonation handler split by mode and decision.",
    "mode",
    "decision",
)
IMPERSONATION_QUESTION_SECONDS = Histogram(
    "apiserver_impersonation_authorization_attempts_duration_seconds",
    "[ALPHA] Latency of authorization checks made by the impersonation handler in seconds split by mode and decision.",
    _AUTH_SECONDS,
    "mode",
    "decision",
)

# ---------------------------------------------------------------------------------------------------------------- audit
# kubernetes/apiserver `pkg/audit/metrics.go`.

AUDIT_EVENTS = Counter(
    "apiserver_audit_event_total", "[ALPHA] Counter of audit events generated and sent to the audit backend."
)
AUDIT_ERRORS = Counter(
    "apiserver_audit_error_total",
    "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
    "plugin",
)
AUDIT_LEVELS = Counter(
    "apiserver_audit_level_total", "[ALPHA] Counter of policy levels for audit events (1 per request).", "level"
)
AUDIT_REJECTIONS = Counter(
    "apiserver_audit_requests_rejected_total",
    "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.",
)

# ---------------------------------------------------------------------------------------------------------------- flow control
# kubernetes/apiserver `pkg/util/flowcontrol/metrics/metrics.go`. Values that last are observed once for each nanosecond.
# fmt: off

_FLOW, _LEVEL = ("priority_level", "flow_schema"), ("priority_level",)
QUEUE_LENGTHS = (0, 10, 25, 50, 100, 250, 500, 1000)
_FLOW_SECONDS = (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_SEAT_SHARES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
_REQUEST_SHARES = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1)
_KIND_SHARES = (0, 0.001, 0.01, *_SEAT_SHARES[1:])
_DEMANDS = (0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6)

IN_QUEUE = Gauge("apiserver_current_inqueue_requests",
    "[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.", "request_kind")
FLOW_REJECTED = Counter("apiserver_flowcontrol_rejected_requests_total",
    "[BETA] Number of requests rejected by API Priority and Fairness subsystem", *_FLOW, "reason")
FLOW_DISPATCHED = Counter("apiserver_flowcontrol_dispatched_requests_total",
    "[BETA] Number of requests executed by API Priority and Fairness subsystem", *_FLOW)
FLOW_WAITING = Gauge("apiserver_flowcontrol_current_inqueue_requests",
    "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem", *_FLOW)
FLOW_WAITING_SEATS = Gauge("apiserver_flowcontrol_current_inqueue_seats",
    "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem", *_FLOW)
FLOW_QUEUE_LENGTH = Histogram("apiserver_flowcontrol_request_queue_length_after_enqueue",
    "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
    QUEUE_LENGTHS, *_FLOW)
FLOW_EXECUTING = Gauge("apiserver_flowcontrol_current_executing_requests",
    "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness "
    "subsystem", *_FLOW)
FLOW_EXECUTING_SEATS = Gauge("apiserver_flowcontrol_current_executing_seats",
    "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in "
    "the API Priority and Fairness subsystem", *_FLOW)
FLOW_WAIT_SECONDS = Histogram("apiserver_flowcontrol_request_wait_duration_seconds",
    "[BETA] Length of time a request spent waiting in its queue", _FLOW_SECONDS, *_FLOW, "execute")
FLOW_EXECUTION_SECONDS = Histogram("apiserver_flowcontrol_request_execution_seconds",
    "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness "
    "subsystem", _FLOW_SECONDS, *_FLOW, "type")
FLOW_WATCH_COUNT = Histogram("apiserver_flowcontrol_watch_count_samples",
    "[ALPHA] count of watchers for mutating requests in API Priority and Fairness", (0, 1, 10, 100, 1000, 10000), *_FLOW)
FLOW_ESTIMATED_SEATS = Histogram("apiserver_flowcontrol_work_estimated_seats",
    "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
    (1, 2, 4, 8, 16, 32, 64, 100), *_FLOW)
FLOW_NO_ACCOMMODATION = Counter("apiserver_flowcontrol_request_dispatch_no_accommodation_total",
    "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats", *_FLOW)
LEVEL_SEATS = Histogram("apiserver_flowcontrol_priority_level_seat_utilization",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, "
    "of utilization of seats for any stage of execution (but only initial stage for "
    "WATCHes)", _SEAT_SHARES, *_LEVEL, "phase")
LEVEL_REQUESTS = Histogram("apiserver_flowcontrol_priority_level_request_utilization",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, "
    "of number of requests (as a fraction of the relevant limit) waiting or in any "
    "stage of execution (but only initial stage for WATCHes)", _REQUEST_SHARES, *_LEVEL, "phase")
READ_WRITE_REQUESTS = Histogram("apiserver_flowcontrol_read_vs_write_current_requests",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, "
    "of the number of requests (as a fraction of the relevant limit) waiting or in "
    "regular stage of execution", _KIND_SHARES, "phase", "request_kind")
LEVEL_CURRENT_R = Gauge("apiserver_flowcontrol_current_r", "[ALPHA] R(time of last change)", *_LEVEL)
LEVEL_DISPATCH_R = Gauge("apiserver_flowcontrol_dispatch_r", "[ALPHA] R(time of last dispatch)", *_LEVEL)
LEVEL_LATEST_S = Gauge("apiserver_flowcontrol_latest_s", "[ALPHA] S(most recently dispatched request)", *_LEVEL)
LEVEL_NEXT_S = Gauge("apiserver_flowcontrol_next_s_bounds",
    "[ALPHA] min and max, over queues, of S(oldest waiting request in queue)", *_LEVEL, "bound")
LEVEL_NEXT_DISCOUNTED_S = Gauge("apiserver_flowcontrol_next_discounted_s_bounds",
    "[ALPHA] min and max, over queues, of S(oldest waiting request in queue) - estimated work in progress", *_LEVEL, "bound")
LEVEL_NOMINAL_SEATS = Gauge("apiserver_flowcontrol_nominal_limit_seats",
    "[BETA] Nominal number of execution seats configured for each priority level", *_LEVEL)
LEVEL_LOWER_SEATS = Gauge("apiserver_flowcontrol_lower_limit_seats",
    "[ALPHA] Configured lower bound on number of execution seats available to each priority level", *_LEVEL)
LEVEL_UPPER_SEATS = Gauge("apiserver_flowcontrol_upper_limit_seats",
    "[ALPHA] Configured upper bound on number of execution seats available to each priority level", *_LEVEL)
LEVEL_CURRENT_SEATS = Gauge("apiserver_flowcontrol_current_limit_seats",
    "[ALPHA] current derived number of execution seats available to each priority level", *_LEVEL)
LEVEL_TARGET_SEATS = Gauge("apiserver_flowcontrol_target_seats", "[ALPHA] Seat allocation targets", *_LEVEL)
LEVEL_DEMAND = Histogram("apiserver_flowcontrol_demand_seats",
    "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, "
    "of (the number of seats each priority level could use) / (nominal number of "
    "seats for that level)", _DEMANDS, *_LEVEL)
LEVEL_DEMAND_MOST = Gauge("apiserver_flowcontrol_demand_seats_high_watermark",
    "[ALPHA] High watermark, over last adjustment period, of demand_seats", *_LEVEL)
LEVEL_DEMAND_AVERAGE = Gauge("apiserver_flowcontrol_demand_seats_average",
    "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats", *_LEVEL)
LEVEL_DEMAND_DEVIATION = Gauge("apiserver_flowcontrol_demand_seats_stdev",
    "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats", *_LEVEL)
LEVEL_DEMAND_SMOOTHED = Gauge("apiserver_flowcontrol_demand_seats_smoothed", "[ALPHA] Smoothed seat demands", *_LEVEL)
FAIR_SHARE = Gauge("apiserver_flowcontrol_seat_fair_frac",
    "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it")
# fmt: on

# ---------------------------------------------------------------------------------------------------------------- admission
# kubernetes/apiserver `pkg/admission/metrics/metrics.go`, `pkg/admission/plugin/policy/{validating,mutating}/metrics/metrics.go`.
# `type` is admit or validate for steps, controllers and match conditions, admit or validating for webhooks. Codes above 600 count as 600.

_ADMISSION_SECONDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5)
_WEBHOOK_SECONDS = (*_ADMISSION_SECONDS, 10, 25)
_CONDITION_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
_POLICY_SECONDS = (0.0000005, 0.001, 0.01, 0.1, 1)
_CONDITION = ("name", "kind", "type", "operation")

ADMISSION_STEP_SECONDS = Histogram(
    "apiserver_admission_step_admission_duration_seconds",
    "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource "
"and step type (validate or admit).",
    _ADMISSION_SECONDS,
    "type", "operation", "rejected",
)  # fmt: skip
ADMISSION_STEP_SUMMARY = Summary(
    "apiserver_admission_step_admission_duration_seconds_summary",
    "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and"
" step type (validate or admit).",
    5 * 3600,
    "type", "operation", "rejected",
)  # fmt: skip
ADMISSION_CONTROLLER_SECONDS = Histogram(
    "apiserver_admission_controller_admission_duration_seconds",
    "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each "
"operation and API resource and type (validate or admit).",
    _ADMISSION_SECONDS,
    "name", "type", "operation", "rejected",
)  # fmt: skip
WEBHOOK_SECONDS = Histogram(
    "apiserver_admission_webhook_admission_duration_seconds",
    "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each "
"operation and API resource and type (validate or admit).",
    _WEBHOOK_SECONDS,
    "name", "type", "operation", "rejected",
)  # fmt: skip
WEBHOOK_REQUESTS = Counter(
    "apiserver_admission_webhook_request_total",
    "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type "
"(validating or admit) and operation. Additional labels specify whether the request was rejected or not "
"and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality "
"bounded.",
    "name", "type", "operation", "code", "rejected",
)  # fmt: skip
CRD_CONVERSION_SECONDS = Histogram(
    "apiserver_crd_conversion_webhook_duration_seconds",
    "[ALPHA] CRD webhook conversion duration in seconds",
    tuple(0.001 * 2**power for power in range(15)),
    "crd_name", "from_version", "to_version", "succeeded",
)  # fmt: skip
CONVERSIONS = Counter(
    "apiserver_conversion_webhook_request_total",
    "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
    "result", "failure_type",
)  # fmt: skip
CONVERSION_SECONDS = Histogram(
    "apiserver_conversion_webhook_duration_seconds",
    "[ALPHA] Conversion webhook request latency",
    (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60),
    "result", "failure_type",
)  # fmt: skip
WEBHOOK_REJECTIONS = Counter(
    "apiserver_admission_webhook_rejection_count",
    "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type "
"(validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or "
"apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection "
"code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code "
"is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality"
" bounded.",
    "name", "type", "operation", "error_type", "rejection_code",
)  # fmt: skip
WEBHOOK_FAIL_OPEN = Counter(
    "apiserver_admission_webhook_fail_open_count",
    "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type "
    "(validating or admit).",
    "name",
    "type",
)
MATCH_CONDITION_ERRORS = Counter(
    "apiserver_admission_match_condition_evaluation_errors_total",
    "[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the "
    "match condition and broken out for each kind containing matchConditions (webhook or policy), operation "
    "and admission type (validate or admit).",
    *_CONDITION,
)
MATCH_CONDITION_EXCLUSIONS = Counter(
    "apiserver_admission_match_condition_exclusions_total",
    "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing "
    "the match condition and broken out for each kind containing matchConditions (webhook or policy), "
    "operation and admission type (validate or admit).",
    *_CONDITION,
)
MATCH_CONDITION_SECONDS = Histogram(
    "apiserver_admission_match_condition_evaluation_seconds",
    "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each "
    "kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
    _CONDITION_SECONDS,
    *_CONDITION,
)
VALIDATING_POLICY_CHECKS = Counter(
    "apiserver_validating_admission_policy_check_total",
    "[BETA] Validation admission policy check total, labeled by policy and further identified by binding and "
"enforcement action taken.",
    "policy", "policy_binding", "error_type", "enforcement_action",
)  # fmt: skip
VALIDATING_POLICY_SECONDS = Histogram(
    "apiserver_validating_admission_policy_check_duration_seconds",
    "[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy "
"and further including binding and enforcement action taken.",
    _POLICY_SECONDS,
    "policy", "policy_binding", "error_type", "enforcement_action",
)  # fmt: skip
MUTATING_POLICY_CHECKS = Counter(
    "apiserver_mutating_admission_policy_check_total",
    "[ALPHA] Mutation admission policy check total, labeled by policy and further identified by binding.",
    "policy", "policy_binding", "error_type",
)  # fmt: skip
MUTATING_POLICY_SECONDS = Histogram(
    "apiserver_mutating_admission_policy_check_duration_seconds",
    "[ALPHA] Mutation admission latency for individual mutation expressions in seconds, labeled by policy and "
"binding.",
    _POLICY_SECONDS,
    "policy", "policy_binding", "error_type",
)  # fmt: skip

# Namespaces whose changes are checked against quotas: kubernetes/component-base `metrics/prometheus/workqueue/metrics.go`.
_WORKQUEUE_SECONDS = (1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10)
WORKQUEUE_ADDS = Counter("workqueue_adds_total", "[BETA] Total number of adds handled by workqueue", "name")
WORKQUEUE_DEPTH = Gauge("workqueue_depth", "[BETA] Current depth of workqueue", "name")
WORKQUEUE_QUEUE_SECONDS = Histogram(
    "workqueue_queue_duration_seconds",
    "[BETA] How long in seconds an item stays in workqueue before being requested.",
    _WORKQUEUE_SECONDS,
    "name",
)
WORKQUEUE_WORK_SECONDS = Histogram(
    "workqueue_work_duration_seconds",
    "[BETA] How long in seconds processing an item from workqueue takes.",
    _WORKQUEUE_SECONDS,
    "name",
)
WORKQUEUE_UNFINISHED = Gauge(
    "workqueue_unfinished_work_seconds",
    "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. "
    "Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at "
    "which this increases.",
    "name",
)
WORKQUEUE_LONGEST = Gauge(
    "workqueue_longest_running_processor_seconds",
    "[BETA] How many seconds has the longest running processor for workqueue been running.",
    "name",
)

# ---------------------------------------------------------------------------------------------------------------- delegation
# What is asked of kube-apiserver. `code` is an HTTP status, or "<error>" when there was no answer.

DELEGATED_AUTHN_REQUESTS = Counter(
    "apiserver_delegated_authn_request_total", "[ALPHA] Number of HTTP requests partitioned by status code.", "code"
)
DELEGATED_AUTHN_SECONDS = Histogram(
    "apiserver_delegated_authn_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by status code.",
    _DELEGATED_SECONDS,
    "code",
)
DELEGATED_AUTHZ_REQUESTS = Counter(
    "apiserver_delegated_authz_request_total",
    "[ALPHA] Number of HTTP requests partitioned by status code.",
    "code",
)
DELEGATED_AUTHZ_SECONDS = Histogram(
    "apiserver_delegated_authz_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by status code.",
    _DELEGATED_SECONDS,
    "code",
)
TOKEN_CACHE_REQUESTS = Counter("authentication_token_cache_request_total", "[ALPHA] ", "status")
TOKEN_CACHE_SECONDS = Histogram(
    "authentication_token_cache_request_duration_seconds",
    "[ALPHA] ",
    _DEFAULT_SECONDS,
    "status",
)
TOKEN_CACHE_FETCHES = Counter("authentication_token_cache_fetch_total", "[ALPHA] ", "status")
TOKEN_CACHE_ACTIVE_FETCHES = Gauge(
    "authentication_token_cache_active_fetch_count",
    "[ALPHA] ",
    "status",
)
CLIENT_REQUESTS = Counter(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    "code",
    "method",
    "host",
)
CLIENT_SECONDS = Histogram(
    "rest_client_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    _CLIENT_SECONDS,
    "verb",
    "host",
)

COPY_AGE_SECONDS = Gauge(
    "sluice_cluster_copy_age_seconds",
    "Time since kube-apiserver last confirmed the local copy of a collection; bookmarks come once a minute.",
    "collection",
)

# ---------------------------------------------------------------------------------------------------------------- health

HEALTHCHECK = Gauge(
    "kubernetes_healthcheck", "[STABLE] This metric records the result of a single healthcheck.", "name", "type"
)
HEALTHCHECKS = Counter(
    "kubernetes_healthchecks_total",
    "[STABLE] This metric records the results of all healthcheck.",
    "name",
    "type",
    "status",
)
FEATURE_ENABLED = Gauge(
    "kubernetes_feature_enabled",
    "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    "name",
    "stage",
)
CRDS = Gauge(
    "sluice_crds",
    "Definitions of --crds that are served, and their files and folders that are not served as they are now.",
    "state",
)
BUILD_INFO = Gauge(
    "kubernetes_build_info",
    "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree "
    "state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is "
    "running.",
    "git_version",
    "git_commit",
    "build_date",
)
BUILD_INFO.labels(buildinfo.version(), buildinfo.commit(), buildinfo.build_date()).set(1)
VERSION_INFO = Gauge(
    "version_info",
    "[ALPHA] Provides the compatibility version info of the component. The component label is the name of the component, usually kube, "
    "but is relevant for aggregated-apiservers.",
    "binary",
    "component",
    "emulation",
    "min_compat",
)


# ---------------------------------------------------------------------------------------------------------------- event loop

LOOP_STEP_SECONDS = Histogram(
    "sluice_event_loop_step_seconds",
    "CPU time of one step of the event loop, during which no other client is served; the budget is 0.02.",
    _STEP_SECONDS,
)
LOOP_TASKS = Gauge("sluice_event_loop_tasks", "Tasks of the event loop that have not ended.")
COLLECTION_SECONDS = Histogram(
    "sluice_garbage_collection_seconds",
    "CPU time of one garbage collection in any thread, during which no other thread computes.",
    _STEP_SECONDS,
    "generation",
)

# ---------------------------------------------------------------------------------------------------------------- storage


def resource_label(resource: str) -> str:
    """Return the label `resource` for a stored resource `<group>/<plural>`: `<plural>.<group>`, as errors print it."""
    group, _, plural = resource.partition("/")
    return f"{plural}.{group}"


RESOURCE_OBJECTS = Gauge(
    "apiserver_resource_objects",
    "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, "
    "the value will be -1.",
    "group",
    "resource",
)
STORAGE_OBJECTS = Gauge("apiserver_storage_objects", "Stored objects (name before 1.34).", "resource")
EVENTS_RECEIVED = Counter(
    "apiserver_watch_cache_events_received_total",
    "[ALPHA] Counter of events received in watch cache broken by resource type.",
    "group",
    "resource",
)
EVENT_WINDOW = Gauge(
    "apiserver_watch_cache_capacity",
    "[ALPHA] Total capacity of watch cache broken by resource type.",
    "group",
    "resource",
)
INIT_EVENTS = Counter(
    "apiserver_init_events_total",
    "[ALPHA] Counter of init events processed in watch cache broken by resource type.",
    "group",
    "resource",
)

COMMITS = Counter(
    "sluice_commits_total",
    "Writes by operation (create, update, delete) and outcome (committed, exists, moved, refused, unavailable, unknown).",
    "resource", "operation", "outcome",
)  # fmt: skip
COMMIT_SECONDS = Histogram(
    "sluice_commit_duration_seconds", "From sending a write to having it in memory.", _STORE_SECONDS, "resource"
)
BARRIER_SECONDS = Histogram(
    "sluice_barrier_duration_seconds", "Latency of consistent-read barriers.", _STORE_SECONDS, "resource"
)
BARRIERS = Counter(
    "sluice_barriers_total", "Consistent-read barriers by outcome (passed, failed).", "resource", "outcome"
)
TAIL_LAG_SECONDS = Gauge(
    "sluice_tail_lag_seconds",
    "For how long the log has been known to hold more than is applied; 0 when all is applied.",
    "resource",
)
TAIL_RECONNECTS = Counter("sluice_tail_reconnects_total", "Times that the log's reader connected again.", "resource")
WATCHERS = Gauge("sluice_watchers", "Open watchers by state (in_sync, behind).", "resource", "state")
DROPPED_WATCHERS = Counter(
    "sluice_dropped_watchers_total", "Watchers closed because they fell out of the window.", "resource"
)
APPLIED_EPOCH = Gauge("sluice_applied_revision_epoch", "Upper 32 bits of the resourceVersion applied last.", "resource")
APPLIED_NUMBER = Gauge(
    "sluice_applied_revision_number", "Lower 32 bits of the resourceVersion applied last.", "resource"
)
FLOOR_EPOCH = Gauge(
    "sluice_floor_revision_epoch", "Upper 32 bits of the oldest resourceVersion that can be watched from.", "resource"
)
FLOOR_NUMBER = Gauge(
    "sluice_floor_revision_number", "Lower 32 bits of the oldest resourceVersion that can be watched from.", "resource"
)
LOST_WRITES = Counter(
    "sluice_lost_writes_detected_total", "Acknowledged writes that a store failover lost.", "resource"
)
CONSISTENCY_CHECKS = Counter(
    "sluice_consistency_checks_total",
    "Comparisons of memory with the store by status (success, failure, error).",
    "resource",
    "status",
)
REBUILDS = Counter(
    "sluice_rebuilds_total",
    "Times that memory was filled anew by reason (start, gap, lineage, digest, broken).",
    "resource",
    "reason",
)
STORE_WRITABLE = Gauge(
    "sluice_store_writable", "1 while writes are accepted, 0 while they are answered 503.", "resource"
)
STORE_PRIMARY = Gauge("sluice_store_primary_info", "1 for each primary that is used now.", "address", "run_id")
STORE_FAILOVERS = Counter(
    "sluice_store_failovers_total",
    "Times that another primary was followed by reason (sentinels, epoch, disconnected, cluster).",
    "reason",
)
STORE_SENTINELS = Gauge("sluice_store_sentinels", "Sentinels by state (reachable, unreachable).", "state")
STORE_REPLICAS_IN_STEP = Gauge(
    "sluice_store_replicas_in_step", "Replicas of a primary that told their offset within 2 s.", "address"
)
STORE_REPLICAS_NEEDED = Gauge(
    "sluice_store_replicas_needed", "Replicas of a primary that must confirm a write (--store-durability).", "address"
)
STORE_MEMORY_BYTES = Gauge("sluice_store_memory_bytes", "Memory that a primary uses (used_memory).", "address")
STORE_MEMORY_LIMIT_BYTES = Gauge(
    "sluice_store_memory_limit_bytes", "Memory that a primary may use (maxmemory); 0 is no limit.", "address"
)
STORE_CONFIRM_SECONDS = Histogram(
    "sluice_store_confirm_seconds", "Time until replicas confirmed a batch of writes, or failed to.", _STORE_SECONDS
)
STORE_UNCONFIRMED_WRITES = Counter(
    "sluice_store_unconfirmed_writes_total", "Writes answered 504 because too few replicas confirmed them."
)
STORE_DEPOSED = Counter(
    "sluice_store_deposed_total",
    "Logs that refuse writes and consistent reads since another primary has taken them over.",
)
UNREADABLE_OBJECTS = Counter(
    "sluice_unreadable_objects_total", "Stored values that are not valid objects of their kind.", "resource"
)
TASK_FAILURES = Counter("sluice_task_failures_total", "Failures and restarts of tasks that must not end.", "task")
THREAD_POOL_CALLS = Gauge("sluice_thread_pool_calls", "Calls that run or wait, by thread pool.", "pool")
THREAD_POOL_REFUSALS = Counter(
    "sluice_thread_pool_refusals_total",
    "Calls refused because the queue was full, by thread pool.",
    "pool",
)
OBJECT_BYTES = Gauge("sluice_object_bytes", "Bytes of served JSON held in memory.", "resource")
HISTORY_BYTES = Gauge(
    "sluice_history_bytes", "Approximate bytes of events held in memory for watches and past states.", "resource"
)
ENCODING_BYTES = Gauge(
    "sluice_encoding_bytes", "Bytes of cached watch frames, table rows and other encodings of objects."
)
ENCODINGS = Counter(
    "sluice_encodings_total",
    "Cached encodings of list objects and compressed pieces of lists: cache hits (found) or misses (made).",
    "what",
    "outcome",
)


# ---------------------------------------------------------------------------------------------------------------- hot paths


@dataclass(frozen=True, slots=True)
class RequestLabels:
    """The labels of request metrics. Only values of served resources and fixed paths: clients must not invent label values."""

    verb: str
    dry_run: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""
    field_validation: str | None = None
    """None for requests without an object."""


@functools.cache
def _durations(full: tuple[str, ...], short: tuple[str, ...]) -> tuple[Distribution, Distribution, Distribution]:
    """Make the three distributions of request durations: without webhooks, with webhooks, and with webhooks less their time.

    Two metrics show sums of them. Dry runs are in one metric only.
    """
    plain, waiting, own = (Distribution(_REQUEST_SECONDS) for _ in range(3))
    REQUEST_SECONDS.adopt(Total((plain, waiting)), *full)
    if not full[1]:
        REQUEST_SLI_SECONDS.adopt(Total((plain, own), _SLI_SECONDS), *short)
    return plain, waiting, own


class RequestMeter:
    """The children of one label set, so that counting a request looks up only its code."""

    __slots__ = ("_codes", "_labels", "_own", "_seconds", "_sizes", "_validation", "_with_waits", "open")

    def __init__(self, labels: RequestLabels) -> None:
        full = (
            labels.verb,
            labels.dry_run,
            labels.group,
            labels.version,
            labels.resource,
            labels.subresource,
            labels.scope,
            COMPONENT,
        )
        self._labels = full
        short = (labels.verb, *full[2:])
        self._codes: dict[int, Value] = {}
        self._seconds, self._with_waits, self._own = _durations(full, short)
        self._sizes = RESPONSE_BYTES.labels(*short) if labels.verb in ("GET", "LIST") else None
        validation = labels.field_validation
        self._validation = None if validation is None else FIELD_VALIDATION_SECONDS.labels(validation)
        self.open = LONG_RUNNING.labels(*short) if labels.verb == "WATCH" else None

    def record(self, code: int, seconds: float, size: int, *, waited: float = 0.0) -> None:
        """Record a request. `waited` is the time that admission webhooks took."""
        counter = self._codes.get(code)
        if counter is None:
            counter = self._codes[code] = REQUESTS.labels(*self._labels, str(code))
        counter.inc()
        if waited:
            self._with_waits.observe(seconds)
            self._own.observe(seconds - waited)
        else:
            self._seconds.observe(seconds)
        if self._sizes is not None:
            self._sizes.observe(size)
        if self._validation is not None:
            self._validation.observe(seconds)

    def terminated(self, code: int) -> None:
        verb, _, *rest, component = self._labels
        TERMINATIONS.labels(component, verb, *rest, str(code)).inc()

    def aborted(self) -> None:
        verb, _, *rest, _component = self._labels
        ABORTS.labels(verb, *rest).inc()
