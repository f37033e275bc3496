"""The flags about audit: upstream's names, defaults and words, for log and webhook alike."""

from __future__ import annotations

import pytest

from apiserver.config import config
from apiserver.config.config import Audit

UPSTREAM = {
    "audit-policy-file": "", "audit-log-path": "", "audit-log-maxage": "366", "audit-log-maxbackup": "100", "audit-log-maxsize": "100",
    "audit-log-format": "json", "audit-log-version": "audit.k8s.io/v1", "audit-log-compress": "false", "audit-log-mode": "blocking",
    "audit-log-batch-buffer-size": "10000", "audit-log-batch-max-size": "1", "audit-log-batch-max-wait": "0s",
    "audit-log-batch-throttle-enable": "false", "audit-log-batch-throttle-qps": "0", "audit-log-batch-throttle-burst": "0",
    "audit-log-truncate-enabled": "false", "audit-log-truncate-max-batch-size": "10485760", "audit-log-truncate-max-event-size": "102400",
    "audit-webhook-config-file": "", "audit-webhook-initial-backoff": "10s", "audit-webhook-batch-initial-backoff": "",
    "audit-webhook-version": "audit.k8s.io/v1", "audit-webhook-mode": "batch", "audit-webhook-batch-buffer-size": "10000",
    "audit-webhook-batch-max-size": "400", "audit-webhook-batch-max-wait": "30s", "audit-webhook-batch-throttle-enable": "true",
    "audit-webhook-batch-throttle-qps": "10", "audit-webhook-batch-throttle-burst": "15", "audit-webhook-truncate-enabled": "false",
    "audit-webhook-truncate-max-batch-size": "10485760", "audit-webhook-truncate-max-event-size": "102400",
}  # fmt: skip
"""Flags that `kube-apiserver --help` of 1.36.3 lists, and the deprecated flag that it hides."""


def audit(*flags: str, **environ: str) -> Audit:
    return config.parse(["dev", *flags], environ).audit


def mistakes(*flags: str) -> list[str]:
    with pytest.raises(config.ConfigError) as caught:
        audit(*flags)
    return caught.value.errors


def test_the_flags_and_their_defaults_are_upstreams() -> None:
    ours = {flag.name: flag for flag in config.FLAGS if flag.name.startswith("audit-")}
    assert {name: flag.default for name, flag in ours.items()} == UPSTREAM
    assert {flag.commands for flag in ours.values()} == {config.SERVERS}


def test_flags_shared_by_log_and_webhook_are_set_for_each() -> None:
    found = audit(
        "--audit-log-mode=batch", "--audit-log-batch-max-size=7", "--audit-webhook-batch-max-wait=1m", "--audit-log-truncate-enabled",
        "--audit-webhook-truncate-max-event-size=5",
        SLUICE_AUDIT_WEBHOOK_MODE="blocking-strict",
    )  # fmt: skip
    assert (found.log.mode, found.webhook.mode) == ("batch", "blocking-strict")
    assert (found.log.batch.max_size, found.webhook.batch.max_size) == (7, 400)
    assert (found.log.batch.max_wait, found.webhook.batch.max_wait) == (0, 60)
    assert (found.log.truncate.enabled, found.webhook.truncate.enabled) == (True, False)
    assert (found.log.truncate.max_event_size, found.webhook.truncate.max_event_size) == (102400, 5)


def test_the_former_name_of_the_backoff_is_understood() -> None:
    assert audit().webhook.backoff == 10
    assert audit("--audit-webhook-initial-backoff=2s").webhook.backoff == 2
    assert audit("--audit-webhook-batch-initial-backoff=3s").webhook.backoff == 3


def test_all_errors_get_upstreams_messages() -> None:
    told = mistakes(
        "--audit-log-path=-", "--audit-log-mode=fast", "--audit-log-format=xml", "--audit-log-version=audit.k8s.io/v1beta1",
        "--audit-log-maxage=-1", "--audit-log-maxbackup=-2", "--audit-log-maxsize=-3", "--audit-log-truncate-max-event-size=0",
        "--audit-webhook-config-file=/x", "--audit-webhook-batch-buffer-size=0", "--audit-webhook-batch-max-size=-1",
        "--audit-webhook-batch-throttle-qps=-0.5", "--audit-webhook-batch-throttle-burst=0", "--audit-webhook-version=a/b/c",
        "--audit-webhook-truncate-max-batch-size=10",
    )  # fmt: skip
    assert told == [
        'invalid audit log mode fast, allowed modes are "batch,blocking,blocking-strict"',
        "invalid audit truncate log max event size 0, must be a positive number",
        'invalid group version, allowed versions are ["audit.k8s.io/v1"]',
        'invalid audit log format xml, allowed formats are "legacy,json"',
        "--audit-log-maxage -1 can't be a negative number",
        "--audit-log-maxbackup -2 can't be a negative number",
        "--audit-log-maxsize -3 can't be a negative number",
        "invalid audit batch webhook buffer size 0, must be a positive number",
        "invalid audit batch webhook max batch size -1, must be a positive number",
        "invalid audit batch webhook throttle QPS -0.5, must be a positive number",
        "invalid audit batch webhook throttle burst 0, must be a positive number",
        "invalid audit truncate webhook max batch size 10, must be greater than max event size (102400)",
        "unexpected GroupVersion string: a/b/c",
    ]


def test_unused_flags_are_not_judged() -> None:
    audit("--audit-log-mode=fast", "--audit-webhook-mode=fast", "--audit-log-maxage=-1")
    audit("--audit-log-path=-", "--audit-log-batch-max-size=0")
    audit(
        "--audit-webhook-config-file=/x",
        "--audit-webhook-batch-throttle-enable=false",
        "--audit-webhook-batch-throttle-qps=0",
    )


def test_unparsable_value_is_reported_once() -> None:
    assert mistakes(
        "--audit-log-path=-", "--audit-log-maxage=old", "--audit-log-truncate-max-batch-size=1e6",
        "--audit-log-truncate-max-event-size=99999999", "--audit-webhook-batch-max-wait=5", "--audit-webhook-batch-throttle-qps=nan",
        "--audit-log-compress=yes", f"--audit-log-maxsize={10**20}",
    ) == [
        '--audit-log-truncate-max-batch-size: strconv.ParseInt: parsing "1e6": invalid syntax',
        '--audit-log-maxage: strconv.ParseInt: parsing "old": invalid syntax',
        f'--audit-log-maxsize: strconv.ParseInt: parsing "{10**20}": value out of range',
        '--audit-log-compress: strconv.ParseBool: parsing "yes": invalid syntax',
        '--audit-webhook-batch-max-wait: time: missing unit in duration "5"',
        '--audit-webhook-batch-throttle-qps: strconv.ParseFloat: parsing "nan": invalid syntax',
    ]  # fmt: skip
