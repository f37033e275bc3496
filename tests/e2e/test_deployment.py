"""Every overlay of `manifests/`, put before a real kube-apiserver: each field is one that it knows, each value one that it takes."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import MANIFESTS, NAMESPACE, PROJECT, Bed

SERVED = {
    "apps", "apiregistration.k8s.io", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", ""
}  # fmt: skip
"""Groups of kube-apiserver itself. The others are those of cert-manager, which brings their definitions."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy with everything that certs/make.sh writes."""
    if shutil.which("openssl") is None:
        pytest.skip("certs/make.sh needs openssl")
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("manifests", "certs"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("out"))
    subprocess.run([copy / "certs" / "make.sh"], check=True, capture_output=True)
    return copy


def rendered(folder: pathlib.Path) -> list[dict[str, Any]]:
    done = subprocess.run([binaries.kubectl(), "kustomize", folder], check=True, capture_output=True, text=True)
    return [item for item in yaml.safe_load_all(done.stdout) if group(item) in SERVED]


def group(item: dict[str, Any]) -> str:
    return str(item["apiVersion"]).rpartition("/")[0]


@pytest.mark.parametrize(
    "folder",
    [
        *(f"overlays/{path.name}" for path in sorted((MANIFESTS / "overlays").iterdir()) if path.name != "bed"),
        "store-init",
    ],
)
def test_the_objects_of_an_overlay_are_accepted(bed: Bed, checkout: pathlib.Path, folder: str) -> None:
    """In a namespace of their own, since the bed's have fields that cannot be changed; nothing is kept."""
    objects = rendered(checkout / "manifests" / folder)
    namespace = folder.replace("overlays/", "dry-run-")
    bed.kubectl("create", "namespace", namespace)
    moved = yaml.safe_dump_all(objects).replace(NAMESPACE, namespace)

    words = ["--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-"]
    done = bed.kubectl("apply", *words, stdin=moved)

    assert len(done.stdout.splitlines()) == len(objects) > 0
    assert done.stderr == ""
