"""The audit flags of policy, log and webhook, with kube-apiserver's names, defaults and messages.

The common flags of log and webhook are declared once. Upstream: kubernetes/apiserver `pkg/server/options/audit.go`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import ClassVar

from apiserver.config import topics
from apiserver.config.flags import flag, prefixed
from kubetext import durations
from kubetext.quoting import go_quote
from kubetext.strconv import parse_bool, parse_int

SERVERS = ("dev", "serve")
BATCH, BLOCKING, BLOCKING_STRICT = MODES = ("batch", "blocking", "blocking-strict")
"""Whether a request waits until its events are written, and whether it fails when the first one cannot be."""
LEGACY, JSON = FORMATS = ("legacy", "json")
VERSION = "audit.k8s.io/v1"
LOG, WEBHOOK = "log", "webhook"


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: invalid syntax")
    return value


def _given(text: str) -> float | None:
    return durations.parse(text) if text else None


# Each flag takes two lines, as in `config`. The help texts are upstream's.
# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How events are gathered in mode batch."""

    buffer_size: int = flag("buffer-size", SERVERS, parse_int, "10000",
        text="The size of the buffer to store events before batching and writing. Only used in batch mode.", value="N")
    max_size: int = flag("max-size", SERVERS, parse_int, "1",
        text="The maximum size of a batch. Only used in batch mode.", value="N")
    max_wait: float = flag("max-wait", SERVERS, durations.parse, "0s",
        text="The amount of time to wait before force writing the batch that hadn't reached the max size. Only used in batch mode.",
        value="DURATION")
    throttle_enable: bool = flag("throttle-enable", SERVERS, parse_bool, "false",
        text="Whether batching throttling is enabled. Only used in batch mode.", switch=True)
    throttle_qps: float = flag("throttle-qps", SERVERS, _rate, "0",
        text="Maximum average number of batches per second. Only used in batch mode.", value="RATE")
    throttle_burst: int = flag("throttle-burst", SERVERS, parse_int, "0",
        text="Maximum number of requests sent at the same moment if ThrottleQPS was not utilized before. Only used in batch mode.",
        value="N")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """The sizes in bytes above which events are truncated and batches divided."""

    enabled: bool = flag("enabled", SERVERS, parse_bool, "false",
        text="Whether event and batch truncating is enabled.", switch=True)
    max_batch_size: int = flag("max-batch-size", SERVERS, parse_int, str(10 << 20),
        text="Maximum size of the batch sent to the underlying backend. Actual serialized size can be several hundreds of bytes greater. "
        "If a batch exceeds this limit, it is split into several batches of smaller size.", value="BYTES")
    max_event_size: int = flag("max-event-size", SERVERS, parse_int, str(100 << 10),
        text="Maximum size of the audit event sent to the underlying backend. If the size of an event is greater than this number, first "
        "request and response are removed, and if this doesn't reduce the size enough, event is discarded.", value="BYTES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The common settings of log and webhook."""

    mode: str = flag("mode", SERVERS, str, BLOCKING,
        text="Strategy for sending audit events. Blocking indicates sending events should block server responses. Batch causes the backend "
        f"to buffer and write events asynchronously. Known modes are {','.join(MODES)}.", value="MODE", choices=MODES)
    version: str = flag("version", SERVERS, str, VERSION,
        text="API group and version used for serializing audit events written.", value="GROUP/VERSION", choices=(VERSION,))
    batch: Batch = prefixed("batch-")
    truncate: Truncate = prefixed("truncate-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Sink):
    """The log file, and how rotated files are kept."""

    path: str = flag("path", SERVERS, str, "",
        text="If set, all requests coming to the apiserver will be logged to this file. '-' means standard out.", value="FILE")
    max_age: int = flag("maxage", SERVERS, parse_int, "366",
        text="The maximum number of days to retain old audit log files based on the timestamp encoded in their filename. Setting a value "
        "of 0 means old audit log files are not removed based on age.", value="DAYS")
    max_backup: int = flag("maxbackup", SERVERS, parse_int, "100",
        text="The maximum number of old audit log files to retain. Setting a value of 0 will mean there's no restriction on the number of "
        "files.", value="N")
    max_size: int = flag("maxsize", SERVERS, parse_int, "100",
        text="The maximum size in megabytes of the audit log file before it gets rotated. Setting to 0 disables rotation (not "
        "recommended).", value="MEBIBYTES")
    format: str = flag("format", SERVERS, str, JSON,
        text='Format of saved audits. "legacy" indicates 1-line text format for each event. "json" indicates structured json format. Known '
        f"formats are {','.join(FORMATS)}.", value="FORMAT", choices=FORMATS)
    compress: bool = flag("compress", SERVERS, parse_bool, "false",
        text="If set, the rotated log files will be compressed using gzip.", switch=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Sink):
    """The webhook. The deprecated name of a flag wins over its new name."""

    config_file: str = flag("config-file", SERVERS, str, "",
        text="Path to a kubeconfig formatted file that defines the audit webhook configuration.", value="FILE")
    initial_backoff: float = flag("initial-backoff", SERVERS, durations.parse, "10s",
        text="The amount of time to wait before retrying the first failed request.", value="DURATION")
    former_backoff: float | None = flag("batch-initial-backoff", SERVERS, _given, "",
        text="Deprecated, use --audit-webhook-initial-backoff instead.", value="DURATION")

    @property
    def backoff(self) -> float:
        return self.initial_backoff if self.former_backoff is None else self.former_backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All audit settings. Without a policy nothing is recorded. The code that opens the named files reports errors in them."""

    TOPIC: ClassVar[str] = topics.AUDITING

    policy_file: str = flag("audit-policy-file", SERVERS, str, "",
        text="Path to the file that defines the audit policy configuration.", value="FILE", live=True)
    log: Log = prefixed("audit-log-")
    webhook: Webhook = prefixed("audit-webhook-", mode=BATCH, batch_max_size="400", batch_max_wait="30s",
        batch_throttle_enable="true", batch_throttle_qps="10", batch_throttle_burst="15")
# fmt: on


def errors(audit: Audit, wrong: Set[str]) -> Iterator[str]:
    """Yield errors that no flag shows by itself, except about an unused log or webhook. `wrong` are the flags that already have errors."""
    if audit.log.path:
        yield from _sink(LOG, audit.log, wrong)
        if audit.log.format not in FORMATS:
            yield f"invalid audit log format {audit.log.format}, allowed formats are {go_quote(','.join(FORMATS))}"
        numbers = {"maxage": audit.log.max_age, "maxbackup": audit.log.max_backup, "maxsize": audit.log.max_size}
        for name, number in numbers.items():
            if number < 0:
                yield f"--audit-log-{name} {number} can't be a negative number"
    if audit.webhook.config_file:
        yield from _sink(WEBHOOK, audit.webhook, wrong)


def _sink(plugin: str, sink: Sink, wrong: Set[str]) -> Iterator[str]:
    if sink.mode not in MODES:
        yield f"invalid audit {plugin} mode {sink.mode}, allowed modes are {go_quote(','.join(MODES))}"
    if sink.mode == BATCH:
        yield from _batch(plugin, sink.batch, wrong)
    size, most = sink.truncate.max_event_size, sink.truncate.max_batch_size
    if size <= 0:
        yield f"invalid audit truncate {plugin} max event size {size}, must be a positive number"
    named = {f"audit-{plugin}-truncate-max-{of}-size" for of in ("event", "batch")}
    if most < size and not named & wrong:
        yield f"invalid audit truncate {plugin} max batch size {most}, must be greater than max event size ({size})"
    if sink.version != VERSION:
        many = sink.version.count("/") > 1
        yield (
            f"unexpected GroupVersion string: {sink.version}"
            if many
            else f'invalid group version, allowed versions are ["{VERSION}"]'
        )


def _batch(plugin: str, batch: Batch, wrong: Set[str]) -> Iterator[str]:
    numbers: dict[str, float] = {"buffer size": batch.buffer_size, "max batch size": batch.max_size}
    if batch.throttle_enable:
        numbers |= {"throttle QPS": batch.throttle_qps, "throttle burst": batch.throttle_burst}
    names = {"max batch size": "max-size"}
    for number, value in numbers.items():
        flag_name = f"audit-{plugin}-batch-{names.get(number, number.lower().replace(' ', '-'))}"
        if value <= 0 and flag_name not in wrong:
            yield f"invalid audit batch {plugin} {number} {str(value).removesuffix('.0')}, must be a positive number"
