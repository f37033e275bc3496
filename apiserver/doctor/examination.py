"""Run the checks: first kube-apiserver, then all others at once, each within its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from apiserver.cluster.errors import ClusterError, Refused
from apiserver.doctor.checks import CHECKS
from apiserver.doctor.findings import Check, Finding, Result, State, found
from apiserver.doctor.installation import Installation


async def examine(installation: Installation, *, seconds: float, checks: Sequence[Check] = CHECKS) -> list[Result]:
    """Return the results in the order of the checks. Each check may take `seconds`. An opened installation is needed."""
    first, *others = checks
    results = [await _run(first, installation, seconds)]
    reached = all(finding.state is not State.FAIL for finding in results[0].findings) or any(
        finding.code == "kube-apiserver-not-ready" for finding in results[0].findings
    )
    if reached:
        await installation.detect(seconds)
    possible = [
        check
        for check in others
        if (not check.cluster or reached) and (not check.aggregated or installation.aggregated)
    ]
    results += await asyncio.gather(*(_run(check, installation, seconds) for check in possible))
    return [result for result in results if result.findings]


async def _run(check: Check, installation: Installation, seconds: float) -> Result:
    started, findings = time.monotonic(), list[Finding]()
    try:
        async with asyncio.timeout(seconds):
            async for finding in check.run(installation):
                findings.append(finding)
    except TimeoutError:
        text = f"{check.name}: no answer within {seconds:g} s"
        findings.append(found("timeout", text, f"sluice doctor --timeout={2 * seconds:g}s"))
    except Refused as error:
        findings.append(_refused(error))
    except ClusterError as error:
        findings.append(found("no-answer", str(error), "kubectl get --raw /readyz"))
    return Result(check.name, tuple(findings), time.monotonic() - started)


def _refused(error: Refused) -> Finding:
    if error.code in (401, 403):
        text = f"this user may not ask that: {error}"
        return Finding(
            State.SKIP, "not-permitted", text, "sluice doctor --context=…   # a user who may, such as an administrator"
        )
    return found("no-answer", f"kube-apiserver answers {error.code}: {error}", "kubectl get --raw /readyz")
