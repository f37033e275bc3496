"""Record scenarios again where the corpus beside the checkout does not fit: `python -m tests.e2e.corpus.record`.

* The 1.37.2 of `golden-1.37.json` was young: it still had version 1, as a server has in its first minutes only. `PAST` is recorded on a
  server whose etcd has forgotten a past.
* kube-apiserver in front changes headers of every server behind it. `BEHIND` is recorded from a kube-apiserver behind another one.
"""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import DRA_GROUP
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane, until
from tests.e2e.corpus import comparison, ways
from tests.promises.api import target

PAST = ("list.expired", "order.delete", "watch.old", "watch.clients")
"""Scenarios that need a server which no longer has version 1 (the corpus's README)."""
BEHIND = (
    "create.toolarge", "format.gzip", "order.limits", "watch.bookmarks.periodic", "watch.clients", "watch.empty.kinds",
    "watch.paths", "watch.start.defaulted", "watch.start.initialevents", "watch.table",
)  # fmt: skip
"""Scenarios with answers that kube-apiserver asks to be compressed, and unpacks."""
OLD = f"--runtime-config={DRA_GROUP}/v1=false"
NAME = "behind"


@contextlib.contextmanager
def aged(folder: pathlib.Path, *flags: str) -> Iterator[ControlPlane]:
    """etcd with a past, and kube-apiserver, which need not be ready if it has flags."""
    plane = ControlPlane(folder, flags=flags)
    try:
        plane.start_etcd()
        target.age(plane.etcd_url)
        plane.start_apiserver(ready=not flags)
        yield plane
    finally:
        plane.stop()


@contextlib.contextmanager
def stacked(folder: pathlib.Path) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    """A kube-apiserver in front, and the one behind it that serves the group, with namespaces of its own."""
    with aged(folder / "front", OLD) as front:
        trusts = f"--requestheader-client-ca-file={front.pki.proxy.file}"
        with aged(folder / "behind", trusts) as behind, front.connect() as admin:
            _register(admin, behind.port)
            until(lambda: admin.ask("GET", f"/apis/{DRA_GROUP}/v1").status == 200, "the group is served")
            yield front, behind


def _register(admin: Connection, port: int) -> None:
    """Lead the group to a port of this machine."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1.{DRA_GROUP}"},
        "spec": {
            "group": DRA_GROUP,
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "default", "name": NAME, "port": port},
        },
    }
    until(lambda: admin.ask("POST", "/api/v1/namespaces/default/services", service).status in (201, 409), "a Service")
    assert admin.ask("POST", "/apis/apiregistration.k8s.io/v1/apiservices", registration).status == 201


def record(scenarios: Sequence[str], file: pathlib.Path, asked: ControlPlane, core: ControlPlane) -> None:
    """`core` is the server that keeps namespaces."""
    command: list[str | pathlib.Path] = [
        sys.executable,
        str(ways.CORPUS / "run"),
        f"--a-kubeconfig={asked.admin}",
        f"--a-core-kubeconfig={core.admin}",
    ]
    command += [
        f"--record={file}",
        f"--only=^({'|'.join(scenarios)})$",
        f"--reference=kube-apiserver {binaries.version()}",
    ]
    subprocess.run(command, check=True)


def main() -> None:
    minor = binaries.minor()
    with tempfile.TemporaryDirectory(prefix="s-") as temporary:
        folder = pathlib.Path(temporary)
        if minor != comparison.FIRST:
            with aged(folder / "aged") as plane:
                record(PAST, comparison.again(minor), plane, plane)
        with stacked(folder / "stacked") as (front, behind):
            record(BEHIND, comparison.again(minor, behind=True), front, behind)


if __name__ == "__main__":
    main()
