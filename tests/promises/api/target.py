"""The servers that promises are held against, each of them started for the run. Knows no promise.

`dev` is `sluice dev`. `aggregated` is Sluice behind a real kube-apiserver. `upstream` is a real kube-apiserver that serves
`resource.k8s.io/v1` itself: the oracle.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.controlplane import bed, plane
from tests.e2e.controlplane.connection import Connection
from tests.fixtures.server import dev_server

VERSIONS = ("v1", "v1beta2", "v1beta1")
"""The versions that every target serves, the preferred one first."""
OWN_GROUP, UPSTREAM_GROUP = "resource.sluice.dev", "resource.k8s.io"
OLDER = "--runtime-config=api/beta=true"
UPSTREAMS = f"--runtime-config={','.join(f'{UPSTREAM_GROUP}/{version}=true' for version in VERSIONS)}"
"""Flags with which Sluice, and kube-apiserver, serve them. There, all beta versions would be those of every group."""
TRACEBACK, PANIC = b"Traceback", b"goroutine "
GATES = "--feature-gates=ShardedListAndWatch=true,AllowUnsafeMalformedObjectDeletion=true"
"""Gates that are off by default and have promises. None of them changes an answer to a client that does not use it."""


@dataclass(frozen=True)
class Target:
    """A server as its administrator sees it."""

    name: str
    group: str
    kubeconfig: pathlib.Path
    namespaces: bool
    """Whether a namespace is there only once it has been created."""
    logs: Mapping[pathlib.Path, bytes]
    """Logs of its processes, each with the text that an unhandled error leaves there."""

    @property
    def behind(self) -> bool:
        """Whether what answers stands behind a kube-apiserver."""
        return self.name == "aggregated"

    @property
    def v1(self) -> str:
        return f"/apis/{self.group}/v1"

    @functools.cached_property
    def _administrator(self) -> Connection:
        return Connection(self.kubeconfig)

    def connect(self) -> http.client.HTTPSConnection:
        """A connection of the administrator."""
        return self._administrator.connect()


@contextlib.contextmanager
def dev(folder: pathlib.Path) -> Iterator[Target]:
    """A development server without samples."""
    with dev_server(folder, GATES, OLDER) as server:
        yield Target("dev", OWN_GROUP, server.kubeconfig, False, {server.log: TRACEBACK})


@contextlib.contextmanager
def aggregated(folder: pathlib.Path) -> Iterator[Target]:
    """Sluice behind an APIService, asked through kube-apiserver."""
    # Nobody routes around a server that stops here, so it need not wait for that.
    with bed.Bed(folder, versions=VERSIONS, serve_flags=["--shutdown-delay-duration=0s", GATES, OLDER]) as cluster:
        logs = {replica.process.log: TRACEBACK for replica in cluster.replicas if replica.process}
        logs[cluster.plane.folder / "kube-apiserver.log"] = PANIC
        yield Target("aggregated", cluster.group, cluster.admin, True, logs)


@contextlib.contextmanager
def upstream(folder: pathlib.Path) -> Iterator[Target]:
    """kube-apiserver and etcd alone: no controller reacts to what a promise does."""
    cluster = plane.ControlPlane(folder, flags=[GATES, UPSTREAMS])
    try:
        cluster.start_etcd()
        age(cluster.etcd_url)
        cluster.start_apiserver()
        yield Target("upstream", UPSTREAM_GROUP, cluster.admin, True, {cluster.folder / "kube-apiserver.log": PANIC})
    finally:
        cluster.stop()


def age(etcd: str) -> None:
    """Give etcd a past and have it forgotten. Version 1 is then too old from the start, as it is in every cluster after some minutes."""

    def ask(method: str, message: Mapping[str, Any]) -> Any:
        with contextlib.closing(http.client.HTTPConnection(urlsplit(etcd).netloc, timeout=60)) as connection:
            connection.request("POST", f"/v3/kv/{method}", json.dumps(message))
            return json.load(connection.getresponse())

    def put() -> int:
        with contextlib.suppress(OSError):
            return int(ask("put", {"key": base64.b64encode(b"past").decode()})["header"]["revision"])
        return 0

    plane.until(lambda: put() > 5, "etcd has counted to five")
    ask("compaction", {"revision": put(), "physical": True})


TARGETS: Mapping[str, Callable[[pathlib.Path], contextlib.AbstractContextManager[Target]]] = {
    "dev": dev,
    "aggregated": aggregated,
    "upstream": upstream,
}
