"""Sluice itself: its health checks with their reasons, its version and clock, and the latency of each hop."""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from apiserver import __version__
from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError
from apiserver.doctor.checks.front import SKEW_SECONDS, skew
from apiserver.doctor.findings import Answers, Check, Finding, State, found, good
from apiserver.doctor.installation import Installation

SLOW_SECONDS = 1.0
TIMES = 3
"""Requests for one latency; the quickest counts, because the first one opens the connection."""
_FAILED = re.compile(r"^\[-\](\S+) failed(?:, not counted)?: (.*)$", re.MULTILINE)
_CODES = {"store": "server-store", "crds": "server-crds"}


async def ready(installation: Installation) -> Answers:
    names = installation.names
    logs = f"kubectl -n {names.namespace} logs deployment/{names.service}" if installation.aggregated else "see its log"
    try:
        client = await installation.itself()
        answer = await client.probe("/readyz", query={"verbose": ""})
    except ClusterError as error:
        proxied = await _proxied(installation)
        if proxied is None:
            yield unreached(installation, error)
            return
        lines = list(readiness(proxied, logs))
        for finding in lines or [good("/readyz of Sluice is 200, asked through kube-apiserver's proxy")]:
            yield finding
        return
    if answer.status in (401, 403):
        yield Finding(
            State.SKIP,
            "not-permitted",
            f"this user may not ask /readyz of Sluice: {answer.status}",
            "kubectl auth whoami",
        )
        return
    text = answer.body.decode("utf-8", "replace")
    for name in {match[1] for match in _FAILED.finditer(text) if match[2] == "reason withheld"}:
        why = await client.probe(f"/readyz/{name}")
        if why.status == 500:
            reason = why.body.decode("utf-8", "replace").removeprefix("internal server error: ").strip()
            text = text.replace(f"[-]{name} failed: reason withheld", f"[-]{name} failed: {reason}")
            text = text.replace(
                f"[-]{name} failed, not counted: reason withheld", f"[-]{name} failed, not counted: {reason}"
            )
    wrong = list(readiness(text, logs))
    for finding in wrong or [good("/readyz of Sluice is 200 in every check")]:
        yield finding


async def _proxied(installation: Installation) -> str | None:
    """Return /readyz?verbose by the proxy of kube-apiserver for Services, None if it does not lead to Sluice."""
    if not installation.aggregated or await installation.outside():
        return None
    names = installation.names
    path = f"/api/v1/namespaces/{names.namespace}/services/https:{names.service}:https/proxy/readyz"
    try:
        answer = await installation.cluster.probe(path, query={"verbose": ""})
    except ClusterError:
        return None
    text = answer.body.decode("utf-8", "replace")
    return text if "[+]ping" in text else None


def readiness(text: str, logs: str) -> Iterator[Finding]:
    """Read a page of health checks."""
    for match in _FAILED.finditer(text):
        name, reason = match.groups()
        code = _CODES.get(name, "server-not-ready")
        remedy = "sluice store check --redis-url=…" if name == "store" else logs
        yield found(code, f"/readyz/{name} of Sluice fails: {reason}", remedy)


def unreached(installation: Installation, error: Exception) -> Finding:
    """Say how the server itself can be asked."""
    remedy = "kubectl -n {0} port-forward deployment/{1} 10250 &   # then: sluice doctor --server=127.0.0.1:10250"
    names = installation.names
    return Finding(State.SKIP, "not-reachable", str(error), remedy.format(names.namespace, names.service))


async def version(installation: Installation) -> Answers:
    try:
        client = await installation.itself()
        answer = await client.probe("/version")
    except ClusterError:
        return
    offset = skew(answer.headers, installation.wall())
    if offset is not None and abs(offset) >= SKEW_SECONDS:
        text = f"the clock of Sluice's machine is {offset:+.0f} s off this machine's"
        yield found("clock-skew", text, "timedatectl set-ntp true   # on the machine whose clock is wrong")
    try:
        told = orjson.loads(answer.body).get("gitVersion", "")
    except (ValueError, AttributeError):
        return
    _, plus, theirs = told.partition("+sluice-")
    if plus and theirs != __version__:
        text = f"the server is Sluice {theirs}, and this doctor is of {__version__}: it may not know what that needs"
        yield found("version-differs", text, f"pip install sluice-apiserver=={theirs}")
    else:
        yield good(f"Sluice answers as {told}")


async def latency(installation: Installation) -> Answers:
    hops = [("kube-apiserver" if installation.aggregated else "Sluice", installation.cluster, "/version")]
    if installation.aggregated and installation.registered:
        spec = installation.registered[0]["spec"]
        hops.append(("through it to Sluice", installation.cluster, f"/apis/{spec['group']}/{spec['version']}"))
        try:
            hops.append(("Sluice itself", await installation.itself(), "/livez"))
        except ClusterError:
            pass
    shown, slow = [], []
    for name, client, path in hops:
        try:
            seconds = await _quickest(client, path)
        except ClusterError:
            continue
        shown.append(f"{name} {seconds * 1000:.1f} ms")
        slow += [f"{name} takes {seconds:.1f} s"] if seconds >= SLOW_SECONDS else []
    if slow:
        yield found("slow", "; ".join(slow), "sluice top   # and the CPU of kube-apiserver's machine")
    elif shown:
        yield good(", ".join(shown))


async def _quickest(client: Client, path: str) -> float:
    return min([(await client.probe(path)).seconds for _ in range(TIMES)])


CHECKS = (
    Check("readyz", "whether every health check of Sluice passes", ready, aggregated=False),
    Check("server", "which version the server has, and what time", version, aggregated=False),
    Check("latency", "how long each hop takes", latency, aggregated=False),
)
