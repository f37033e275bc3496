"""The release of the kube-apiserver in front, followed. It is the emulated one, where kube-apiserver emulates an older release.

While several kube-apiservers are upgraded one after the other, `/version` gives both releases in turn. A change therefore counts only
after `AGREEING` equal answers in a row, upwards and downwards. Upstream: kubernetes/apimachinery `pkg/version/types.go` Info.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import Release
from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError, Unreadable

logger = logging.getLogger(__name__)

PATH = "/version"
CALM_SECONDS, JITTER = 60.0, 0.2
"""The pause between questions while the release stands, and the random share that is added."""
BRIEF_SECONDS = 10.0
"""The pause while answers differ from the present release."""
AGREEING = 7
"""Equal answers in a row before a change counts: a minute of `BRIEF_SECONDS`, longer than load balancers stick to a server."""
FIRST_SECONDS = 1.0
"""The pause while the release was never known: readiness waits for it."""
DOUBTS = 5
"""Refusals in a row after which readiness does not wait any more. A starting kube-apiserver does not know the rights of users yet."""

_NUMBER = re.compile(r"([0-9]{1,6})\+?", re.ASCII)


class Front:
    """The release of the kube-apiserver in front, as the nearest one that this server can be.

    `ready` is set when the release is known, or cannot be asked for. `problem` says why the last question failed, "" if it did not.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.release: Release | None = None
        self.ready = asyncio.Event()
        self.problem = ""
        self._refusals = 0
        self._told: Release | None = None
        self._other: Release | None = None
        self._agreeing = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Ask again and again."""
        while True:
            await self.ask()
            await self._client.sleep(self._pause())

    async def other_than(self, release: Release) -> Release:
        """Wait until the release is known and differs from this one. Return it."""
        while self.release is None or self.release == release:
            await self._changed.wait()
        return self.release

    async def ask(self) -> None:
        """Ask once, and take the answer into account."""
        try:
            told = released(await self._client.ask("GET", PATH))
        except ClusterError as error:
            self._failed(error)
            return
        self.problem, self._refusals = "", 0
        found = releases.nearest(told)
        if told not in (found, self._told):
            about = {"kubeAPIServer": str(told), "release": str(found)}
            logger.warning("kube-apiserver has a release that this server does not know", extra=about)
        self._told = told
        self._agreeing = self._agreeing + 1 if found == self._other else 1
        self._other = found
        if self.release is None or (found != self.release and self._agreeing >= AGREEING):
            self._take(found)

    def _take(self, release: Release) -> None:
        logger.info("kube-apiserver's release is known", extra={"release": str(release), "before": str(self.release)})
        self.release = release
        self.ready.set()
        self._changed.set()
        self._changed = asyncio.Event()

    def _failed(self, error: ClusterError) -> None:
        text = str(error)
        if text != self.problem:
            logger.warning("kube-apiserver's version could not be read", extra={"error": text})
        self.problem = text
        self._refusals = self._refusals + 1 if isinstance(error, Unreadable) or _refused(error) else 0
        if self._refusals >= DOUBTS and not self.ready.is_set():
            about = {"error": text, "release": str(releases.NEWEST)}
            logger.warning("kube-apiserver does not say its version: the newest release is served", extra=about)
            self.ready.set()

    def _pause(self) -> float:
        if self.release is None and not self.ready.is_set():
            return FIRST_SECONDS
        differs = self.release is not None and self._other != self.release
        return (BRIEF_SECONDS if differs else CALM_SECONDS) * (1 + self._client.random() * JITTER)


def released(document: Mapping[str, object]) -> Release:
    """Return the release whose APIs the document of `/version` announces. Raises Unreadable."""
    for prefix in ("emulationM", "m"):
        major, minor = document.get(f"{prefix}ajor"), document.get(f"{prefix}inor")
        if major or minor:
            return Release(_number(major), _number(minor))
    raise Unreadable("kube-apiserver's version has no major and minor")


def _number(value: object) -> int:
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Unreadable(f"kube-apiserver's version has the number {str(value)[:64]!r}")
    return int(match[1])


def _refused(error: ClusterError) -> bool:
    return getattr(error, "code", 0) in (401, 403, 404, 405, 406)
