"""kube-apiserver: can it be asked, is it ready, which release is it, and what time has it?"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping

import orjson

from apiserver.apimachinery import releases
from apiserver.cluster.errors import ClusterError, Refused, Unreadable
from apiserver.cluster.front import released
from apiserver.doctor.findings import Answers, Check, found, good
from apiserver.doctor.installation import Installation

SKEW_SECONDS = 5.0
"""The Date header has whole seconds, and tokens and certificates tolerate little more."""


async def reachable(installation: Installation) -> Answers:
    try:
        answer = await installation.version()
    except ClusterError as error:
        code = "kube-apiserver-unauthorized" if _refuses(error) else "kube-apiserver-unreachable"
        yield found(code, str(error), "kubectl cluster-info")
        return
    if answer.status == 401:
        text = "kube-apiserver answers 401 to the credentials of the kubeconfig"
        yield found("kube-apiserver-unauthorized", text, "kubectl auth whoami")
        return
    ready = await installation.cluster.probe("/readyz", query={"verbose": ""})
    if ready.status == 200:
        yield good(f"{installation.cluster.server} is ready")
    elif ready.status not in (401, 403):
        failed = [line for line in ready.body.decode("utf-8", "replace").splitlines() if line.startswith("[-]")]
        text = "; ".join(failed) or f"/readyz answers {ready.status}"
        yield found("kube-apiserver-not-ready", text, "kubectl get --raw '/readyz?verbose'")


def _refuses(error: ClusterError) -> bool:
    return isinstance(error, Refused) and error.code == 401


async def release(installation: Installation) -> Answers:
    answer = await installation.version()
    try:
        document = orjson.loads(answer.body)
        told = released(document)
    except (ValueError, Unreadable):
        text = f"/version of kube-apiserver answers {answer.status} without a release"
        yield found("version-unknown", text, "kubectl version")
        return
    nearest, git = releases.nearest(told), document.get("gitVersion", "")
    if nearest != told:
        supported = ", ".join(map(str, releases.SUPPORTED))
        text = f"kube-apiserver is {told} ({git}); Sluice can be {supported} and serves as {nearest}"
        yield found("version-unknown", text, "see docs/versions.md; upgrade Sluice before the control plane")
    elif installation.emulated and installation.emulated != str(told):
        text = f"kube-apiserver is {told}, and --emulated-version fixes Sluice to {installation.emulated}"
        yield found("version-emulated", text, "remove --emulated-version: Sluice then follows kube-apiserver")
    else:
        emulated = f" ({git})," if git else ","
        yield good(f"Kubernetes {told}{emulated} which Sluice can be")


async def clock(installation: Installation) -> Answers:
    answer = await installation.version()
    offset = skew(answer.headers, installation.wall())
    if offset is None:
        return
    if abs(offset) >= SKEW_SECONDS:
        text = f"kube-apiserver's clock is {offset:+.0f} s off this machine's"
        yield found("clock-skew", text, "timedatectl set-ntp true   # on the machine whose clock is wrong")
    else:
        yield good("the clocks of the server and of this machine agree")


def skew(headers: Mapping[str, str], now: float) -> float | None:
    """Return a server's clock less this one's in seconds, from its Date header; None without a readable one."""
    text = headers.get("Date")
    try:
        return None if text is None else email.utils.parsedate_to_datetime(text).timestamp() + 0.5 - now
    except ValueError:
        return None


CHECKS = (
    Check("kube-apiserver", "whether kube-apiserver answers and is ready", reachable, aggregated=False),
    Check(
        "version", "whether Sluice knows kube-apiserver's release, emulated ones included", release, aggregated=False
    ),
    Check("clock", "whether kube-apiserver's clock agrees with this machine's", clock, aggregated=False),
)
