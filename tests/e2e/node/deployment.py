"""Sluice on a node, deployed as the README says: secrets from certs/make.sh, an overlay, the Job that creates the store."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import yaml

from tests.e2e.controlplane.bed import DRA_GROUP, NAMESPACE, PROJECT, SERVED, SERVICE
from tests.e2e.controlplane.plane import until
from tests.e2e.node import images
from tests.e2e.node.cluster import Node

APISERVICE = "v1.resource.sluice.dev"
STORE = "sluice-valkey"
JOB = "sluice-store-init"
TAKEN_OVER = f"v1.{DRA_GROUP}"
PATIENCE = "--timeout=110s"
ONE_NODE = "one-node"
"""The overlay `ha-store` as a cluster of one node without cert-manager can have it."""
SMALL = {"cpu": "10m", "memory": "64Mi"}


def serving(*versions: str, v1: bool = True) -> str:
    """The flag by which kube-apiserver serves these versions of `resource.k8s.io` itself."""
    served = {**dict.fromkeys(versions, True), "v1": v1}
    words = (f"{DRA_GROUP}/{version}={str(on).lower()}" for version, on in served.items())
    return f"--runtime-config={','.join(words)}"


def take_the_digest_off(manifests: pathlib.Path) -> None:
    """Let a copy of the manifests name the store's image by its tag alone, as the stand-in is called."""
    file = manifests / "base" / "kustomization.yaml"
    name, _, tag = images.named_by_the_manifests().partition(":")
    document = {**yaml.safe_load(file.read_text()), "images": [{"name": name, "newTag": tag}]}
    file.write_text(yaml.safe_dump(document))


class Deployment:
    """`manifests/` of this checkout, with secrets of its own."""

    def __init__(self, node: Node, folder: pathlib.Path) -> None:
        self.node = node
        self.folder = folder
        shutil.copytree(PROJECT / "manifests", folder / "manifests")
        shutil.copytree(PROJECT / "certs", folder / "certs", ignore=shutil.ignore_patterns("out"))
        take_the_digest_off(folder / "manifests")
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

    def take_over(self, overlay: str, *flags: str, client_flags: Sequence[str] = ()) -> None:
        """Makes it the server of resource.k8s.io, in place of what it served, as docs/take-over.md has it for a cluster that runs; there is
        nothing to move. (Pods of a new cluster would wait for their only kube-apiserver, and that for them.) `flags` are for
        kube-apiserver, `client_flags` for its controllers and scheduler, when they start anew."""
        self.node.kubectl("delete", "apiservice", APISERVICE, "--ignore-not-found")
        self.kubectl("delete", "job,deployment,statefulset", "--all", "--cascade=foreground")
        prepared = self.kustomization("prepared", overlay, "take-over", "take-over/unregistered")
        self.node.kubectl("apply", "--kustomize", str(prepared))
        self.kubectl("wait", f"job/{JOB}", "--for=condition=Complete", PATIENCE)
        self.rolled_out(f"deployment/{SERVICE}")
        self.node.kubectl("label", "apiservice", TAKEN_OVER, "kube-aggregator.kubernetes.io/automanaged-")
        registered = self.kustomization("registered", overlay, "take-over")
        self.node.kubectl("apply", "--kustomize", str(registered))
        self.until_available(TAKEN_OVER)
        self.node.plane.restart(*flags, client_flags=client_flags)

    def register(self, version: str) -> None:
        """Make it the server of another version of the group that was taken over, as docs/take-over.md has it."""
        found = json.loads(self.node.kubectl("get", "apiservice", TAKEN_OVER, "--output=json").stdout)["spec"]
        name = f"{version}.{DRA_GROUP}"
        priority = found["versionPriority"] - SERVED[DRA_GROUP].index(version)
        self.node.apply(
            [
                {
                    "apiVersion": "apiregistration.k8s.io/v1",
                    "kind": "APIService",
                    "metadata": {"name": name},
                    "spec": {**found, "version": version, "versionPriority": priority},
                }
            ]
        )
        self.until_available(name)

    def kustomization(self, name: str, overlay: str, *components: str) -> pathlib.Path:
        """A folder with the overlay, the Job that creates the store, and components over both."""
        folder = self.folder / name
        folder.mkdir()
        document = {
            "resources": [f"../manifests/overlays/{overlay}", "../manifests/store-init"],
            "components": [f"../manifests/{component}" for component in components],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
        return folder

    def write_one_node(self) -> None:
        """Write the overlay `ONE_NODE`. Pods may share the node and ask for less of it, and the Secrets are those of certs/make.sh."""
        overlays = self.folder / "manifests" / "overlays"
        folder = overlays / ONE_NODE
        folder.mkdir()
        shutil.copy(overlays / "dev" / "cabundle.yaml", folder)
        requests = {"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests", "value": SMALL}
        together = {"op": "remove", "path": "/spec/template/spec/affinity"}
        left_out = {"$patch": "delete", "apiVersion": "cert-manager.io/v1", "metadata": {"name": "any"}}
        patches = [
            *((kind, {**left_out, "kind": kind}) for kind in ("Certificate", "Issuer")),
            ("Deployment", [requests]),
            ("StatefulSet", [requests, together]),
        ]
        document = {
            "resources": ["../ha-store", "../../../certs"],
            "patches": [{"target": {"kind": kind}, "patch": yaml.safe_dump(patch)} for kind, patch in patches],
            "replacements": [{"path": "cabundle.yaml"}],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))

    def make_certs(self, *, store_nodes: int = 1) -> None:
        """A second time it renews the serving pair."""
        make = self.folder / "certs" / "make.sh"
        out = make.parent / "out"
        subprocess.run([make, out, SERVICE, NAMESPACE, str(store_nodes)], check=True, capture_output=True)

    def apply(self, part: str) -> str:
        """kubectl's line for each object."""
        return self.node.kubectl("apply", "--kustomize", str(self.folder / "manifests" / part)).stdout

    def objects(self, part: str) -> list[dict[str, Any]]:
        """As the cluster has them."""
        done = self.node.kubectl("get", "--kustomize", str(self.folder / "manifests" / part), "--output", "json")
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def create_store(self) -> None:
        """Anew, if it ran before."""
        self.kubectl("delete", "job", JOB, "--ignore-not-found", "--wait")
        self.apply("store-init")
        self.kubectl("wait", f"job/{JOB}", "--for=condition=Complete", PATIENCE)

    def remove(self, overlay: str) -> None:
        """As manifests/README.md does it: pods and volumes before the namespace, which is slow to look again for what it waits for."""
        self.kubectl("delete", "deployment,statefulset,persistentvolumeclaim", "--all", "--cascade=foreground")
        for part in ("store-init", f"overlays/{overlay}"):
            self.node.kubectl("delete", "--kustomize", str(self.folder / "manifests" / part), "--ignore-not-found")

    def rolled_out(self, what: str) -> None:
        self.kubectl("rollout", "status", what, PATIENCE)

    def until_available(self, apiservice: str = APISERVICE) -> None:
        self.node.kubectl("wait", f"apiservice/{apiservice}", "--for=condition=Available", PATIENCE)

    def kubectl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """In its namespace."""
        return self.node.kubectl("--namespace", NAMESPACE, *words, check=check)

    def pods(self, component: str = "apiserver") -> list[dict[str, Any]]:
        """Those that are not going."""
        return [pod for pod in self._all(component) if "deletionTimestamp" not in pod["metadata"]]

    def names(self, component: str = "apiserver") -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(component)]

    def log(self) -> str:
        """The log of one server."""
        return self.kubectl("logs", f"deployment/{SERVICE}").stdout

    def ready(self) -> int:
        """How many servers are."""
        statuses = [condition for pod in self.pods() for condition in pod["status"].get("conditions", [])]
        return sum(condition["type"] == "Ready" and condition["status"] == "True" for condition in statuses)

    def restarts(self, names: Sequence[str]) -> int:
        """Restarts of the first containers of these servers, all together."""
        return sum(
            pod["status"]["containerStatuses"][0]["restartCount"]
            for pod in self.pods()
            if pod["metadata"]["name"] in names
        )

    def scale(self, replicas: int) -> None:
        """Returns when there are so many, and those that had to go have gone."""
        self.kubectl("scale", f"deployment/{SERVICE}", f"--replicas={replicas}")
        self.rolled_out(f"deployment/{SERVICE}")
        self.until_only(replicas)

    def until_only(self, replicas: int) -> None:
        """Wait until all servers are ready, and their predecessors have ended. One that stops still serves its watches."""
        until(lambda: len(self._all()) == self.ready() == replicas, f"{replicas} servers", seconds=180)

    def until_gone(self, name: str) -> None:
        self.kubectl("wait", f"pod/{name}", "--for=delete", PATIENCE)

    def _all(self, component: str = "apiserver") -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io%2Fcomponent%3D{component}"
        with self.node.connect() as admin:
            found: list[dict[str, Any]] = admin.ask("GET", path).json["items"]
        return found
