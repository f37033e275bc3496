"""Build the auditor of a configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from apiserver.audit import backends, policy
from apiserver.audit.record import Auditor
from apiserver.config.config import Audit, ConfigError


def open_auditor(audit: Audit, environ: Mapping[str, str]) -> Auditor | None:
    """Build the auditor; None when nothing is recorded. Raises ConfigError. The caller starts it on the event loop that uses it."""
    backend = backends.open_backend(audit, environ)
    if backend is None:
        return None
    try:
        return Auditor(policy.load(audit.policy_file), backend, now=lambda: time.time_ns() // 1000)
    except policy.InvalidPolicy as e:
        raise ConfigError([_worded(e)]) from None


def changed(auditor: Auditor | None, old: Audit, new: Audit) -> Callable[[], None]:
    """Read the policy of new settings, and return the function that makes it apply. Raises ConfigError."""
    if auditor is None or new.policy_file == old.policy_file:
        return lambda: None
    try:
        return partial(auditor.judge_by, policy.load(new.policy_file))
    except policy.InvalidPolicy as e:
        raise ConfigError([_worded(e)]) from None


def errors(audit: Audit, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors in the files that the configuration names."""
    yield from backends.errors(audit, environ)
    if audit.policy_file:
        try:
            policy.load(audit.policy_file)
        except policy.InvalidPolicy as e:
            yield _worded(e)


def _worded(error: policy.InvalidPolicy) -> str:
    return f"--audit-policy-file: loading audit policy file: {error}"
