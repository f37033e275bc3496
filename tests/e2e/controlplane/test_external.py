"""The suite's face to a cluster of somebody else, put before our own."""

from __future__ import annotations

import base64
import pathlib
import re

import yaml

from tests.e2e import objects
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.external import External

SLICES = f"{objects.V1}/resourceslices"


def test_a_kubeconfig_with_files_and_several_contexts_does(bed: Bed, tmp_path: pathlib.Path) -> None:
    document = yaml.safe_load(bed.admin.read_text())
    cluster = document["clusters"][0]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(cluster["cluster"].pop("certificate-authority-data")))
    cluster["cluster"]["certificate-authority"] = "ca.crt"
    elsewhere = {"name": "elsewhere", "cluster": {"server": "https://elsewhere.invalid"}}
    document["clusters"].insert(0, elsewhere)
    document["contexts"].insert(0, {"name": "elsewhere", "context": {"cluster": "elsewhere", "user": "nobody"}})
    document["users"].insert(0, {"name": "nobody", "user": {}})
    (tmp_path / "config").write_text(yaml.safe_dump(document))

    external = External(tmp_path / "config", tmp_path / "external")

    assert external.admin.stat().st_mode & 0o077 == 0
    with external.connect() as admin:
        assert admin.ask("GET", SLICES).status == 200
    assert external.kubectl("get", "namespace", "default", "-o", "name").stdout == "namespace/default\n"


def test_objects_left_by_tests_are_deleted_and_no_others(bed: Bed, tmp_path: pathlib.Path) -> None:
    external = External(bed.admin, tmp_path / "external")
    with external.connect() as admin:
        for name in ("mine-4711-1-left", "of-somebody-4711-1"):
            assert admin.ask("POST", SLICES, objects.resource_slice(name)).status == 201
        external.clean(re.compile(r"mine-4711-\d+(-[a-z]+)*"))
        assert admin.ask("GET", f"{SLICES}/mine-4711-1-left").status == 404
        assert admin.ask("DELETE", f"{SLICES}/of-somebody-4711-1").status == 200
