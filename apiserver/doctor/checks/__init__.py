"""Every check of `sluice doctor`, in the order of its page: from kube-apiserver inwards to the store."""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.doctor.checks import (
    certificates,
    front,
    registration,
    rights,
    routing,
    server,
    stores,
    trust,
    workload,
)
from apiserver.doctor.findings import Check

CHECKS: Sequence[Check] = (
    *front.CHECKS,
    *registration.CHECKS,
    *routing.CHECKS,
    *workload.CHECKS,
    *certificates.CHECKS,
    *trust.CHECKS,
    *rights.CHECKS,
    *server.CHECKS,
    *stores.CHECKS,
)
