"""Nodes without machines: each reports that it is ready, and that the pods which are bound to it run, until they are to end."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import threading
from collections.abc import Sequence
from typing import Any

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane

CORE = "/api/v1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MERGE = {"Content-Type": "application/merge-patch+json"}
LOOK_SECONDS, RENEW_SECONDS = 0.2, 10.0

Object = dict[str, Any]


class Kubelets:
    """Reports of kubelets to kube-apiserver, sent by one thread. Runs no container."""

    def __init__(self, plane: ControlPlane, names: Sequence[str]) -> None:
        self.plane = plane
        self.names = names
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def __enter__(self) -> Kubelets:
        with self.plane.connect() as admin:
            for name in self.names:
                self._register(admin, name)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _register(self, admin: Connection, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        assert admin.ask("POST", f"{CORE}/nodes", {"metadata": {"name": name, "labels": labels}}).status in (201, 409)
        room = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        status = {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.9"}],
            "nodeInfo": {"kubeletVersion": binaries.version()},
        }
        assert admin.ask("PATCH", f"{CORE}/nodes/{name}/status", {"status": status}, headers=MERGE).status == 200

    def _run(self) -> None:
        waited = RENEW_SECONDS
        with self.plane.connect() as admin:
            while True:
                # As kubelets do, while kube-apiserver restarts.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if waited >= RENEW_SECONDS:
                        for name in self.names:
                            self._renew(admin, name)
                        waited = 0.0
                    self._look(admin)
                if self._ended.wait(LOOK_SECONDS):
                    return
                waited += LOOK_SECONDS

    def _look(self, admin: Connection) -> None:
        listed = admin.ask("GET", f"{CORE}/pods?resourceVersion=0")
        for pod in listed.json["items"] if listed.status == 200 else ():
            if pod["spec"].get("nodeName") in self.names:
                self._sync(admin, pod)

    def _renew(self, admin: Connection, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now(micro=True)}
        if admin.ask("PATCH", f"{LEASES}/{name}", {"spec": spec}, headers=MERGE).status == 404:
            admin.ask("POST", LEASES, {"metadata": {"name": name}, "spec": spec})

    def _sync(self, admin: Connection, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"{CORE}/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            admin.ask("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
        elif pod["status"].get("phase") == "Pending":
            admin.ask("PATCH", f"{path}/status", {"status": _running(pod)}, headers=MERGE)


def _running(pod: Object) -> Object:
    kinds = ("Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers")
    scheduled = [item for item in pod["status"].get("conditions", ()) if item["type"] not in kinds]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in kinds]
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "started": True,
            "state": {"running": {"startedAt": _now()}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "startTime": _now(),
        "podIP": "192.0.2.10",
        "conditions": [*scheduled, *conditions],
        "containerStatuses": containers,
    }


def _now(*, micro: bool = False) -> str:
    now = dt.datetime.now(dt.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
