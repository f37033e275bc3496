"""Sluice on a node, deployed as the README says: secrets from certs/make.sh, an overlay, the Job that creates the store."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

from tests.e2e.controlplane.bed import NAMESPACE, PROJECT, SERVICE
from tests.e2e.node import images
from tests.e2e.node.cluster import Node

APISERVICE = "v1.resource.sluice.dev"
STORE = "sluice-valkey"
JOB = "sluice-store-init"
PATIENCE = "--timeout=110s"


class Deployment:
    """`manifests/` of this checkout, with secrets of its own."""

    def __init__(self, node: Node, folder: pathlib.Path) -> None:
        self.node = node
        self.folder = folder
        shutil.copytree(PROJECT / "manifests", folder / "manifests")
        shutil.copytree(PROJECT / "certs", folder / "certs", ignore=shutil.ignore_patterns("out"))
        self.make_certs()

    def load_images(self) -> None:
        for archive in (images.valkey(), images.sluice()):
            self.node.load_image(archive)

    def deploy(self, overlay: str) -> None:
        """Returns when kube-apiserver finds it available."""
        self.apply(f"overlays/{overlay}")
        self.rolled_out(f"statefulset/{STORE}")
        self.create_store()
        self.rolled_out(f"deployment/{SERVICE}")
        self.until_available()

    def make_certs(self) -> None:
        """A second time it renews the serving pair."""
        subprocess.run([self.folder / "certs" / "make.sh"], check=True, capture_output=True)

    def apply(self, part: str) -> str:
        """What kubectl says of each object."""
        return self.node.kubectl("apply", "--kustomize", str(self.folder / "manifests" / part)).stdout

    def create_store(self) -> None:
        """Anew, if it ran before."""
        self.kubectl("delete", "job", JOB, "--ignore-not-found", "--wait")
        self.apply("store-init")
        self.kubectl("wait", f"job/{JOB}", "--for=condition=Complete", PATIENCE)

    def rolled_out(self, what: str) -> None:
        self.kubectl("rollout", "status", what, PATIENCE)

    def until_available(self) -> None:
        self.node.kubectl("wait", f"apiservice/{APISERVICE}", "--for=condition=Available", PATIENCE)

    def kubectl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """In its namespace."""
        return self.node.kubectl("--namespace", NAMESPACE, *words, check=check)

    def pods(self, component: str = "apiserver") -> list[dict[str, Any]]:
        """Those that are not going."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io%2Fcomponent%3D{component}"
        with self.node.connect() as admin:
            found: list[dict[str, Any]] = admin.ask("GET", path).json["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
