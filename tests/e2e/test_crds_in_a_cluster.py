"""The objects that `sluice manifests --crds` prints, in a real cluster: definitions of a mounted ConfigMap behind kube-apiserver."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane.bed import NAMESPACE, Bed
from tests.e2e.controlplane.plane import until
from tests.fixtures.definitions import GROUP, definition, write
from tests.fixtures.mounts import Mount

WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
GADGETS = f"/apis/{GROUP}/v1/namespaces/default/gadgets"

Object = dict[str, Any]


class PrintedBed(Bed):
    """Its Sluice serves the definitions of a folder that this test fills as the kubelet would."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "SLUICE_CRDS": str(self.mounted)}

    @property
    def mounted(self) -> pathlib.Path:
        folder = self.folder / "mounted"
        folder.mkdir(exist_ok=True)
        return folder

    def printed(self, *definitions: Object) -> list[Object]:
        """Return what `sluice manifests` prints for these definitions, with the port of the process in place of the Service's."""
        file = write(self.folder / "crds.yaml", *definitions)
        authority = self.folder / "ca.crt"
        authority.write_bytes(self.plane.pki.sluice.pem)
        objects = list(yaml.safe_load_all(self.sluice("manifests", f"--crds={file}", f"--ca-file={authority}").stdout))
        for item in objects:
            if item["kind"] == "APIService":
                item["spec"]["service"]["port"] = self.replicas[0].port
        return objects


@pytest.fixture(scope="module")
def printed_bed(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrintedBed]:
    bed = PrintedBed(tmp_path_factory.mktemp("printed"), controllers=True)
    with bed:
        yield bed


def contents(objects: list[Object]) -> dict[str, str]:
    [configmap] = [item for item in objects if item["kind"] == "ConfigMap"]
    files: dict[str, str] = configmap["data"]
    return files


def test_printed_objects_lead_to_definitions_of_a_mounted_configmap(printed_bed: PrintedBed) -> None:
    bed, mount = printed_bed, Mount(printed_bed.mounted)
    objects = bed.printed(definition("widgets"))
    words = ["apply", "--server-side", "--force-conflicts", "--validate=strict"]
    # kube-apiserver knows every field. Nobody runs pods here, so the Deployment is not kept.
    dry = bed.kubectl(*words, "--dry-run=server", "-o", "name", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert (len(dry.stdout.splitlines()), dry.stderr) == (len(objects), "")
    assert {item["metadata"]["namespace"] for item in objects if item["kind"] in {"ConfigMap", "Deployment"}} == {
        NAMESPACE
    }
    bed.kubectl(*words, "-f", "-", stdin=yaml.safe_dump_all(item for item in objects if item["kind"] != "Deployment"))
    mount.write(contents(objects))

    bed.kubectl("wait", f"apiservice/v1.{GROUP}", "--for=condition=Available", "--timeout=240s")
    for role in ("view", "edit"):
        bed.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er", "--namespace=default")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}}
    with bed.connect(bed.user("viewer")) as viewer, bed.connect(bed.user("editer")) as editor:
        until(lambda: viewer.ask("GET", WIDGETS).status == 200, "the default role covers it", seconds=240)
        until(lambda: editor.ask("POST", WIDGETS, body).status in {201, 409}, "the default role covers it", seconds=240)
        assert viewer.ask("DELETE", f"{WIDGETS}/a").status == 403
        assert viewer.ask("GET", f"{WIDGETS}/a").json["spec"] == {"size": 1}

        # The ConfigMap changes, and the kubelet updates the files.
        objects = bed.printed(definition("widgets", size="integer", note="string"), definition("gadgets"))
        bed.kubectl(*words, "-f", "-", stdin=yaml.safe_dump_all(i for i in objects if i["kind"] != "Deployment"))
        mount.write(contents(objects))
        until(lambda: viewer.ask("GET", GADGETS).status == 200, "the new definition is served", seconds=240)
        change = {**body, "metadata": viewer.ask("GET", f"{WIDGETS}/a").json["metadata"], "spec": {"note": "kept"}}
        assert editor.ask("PUT", f"{WIDGETS}/a", change).json["spec"] == {"note": "kept"}
        mount.write({name: text for name, text in contents(objects).items() if name.startswith("widgets")})
        until(lambda: viewer.ask("GET", GADGETS).status == 404, "the removed definition is gone", seconds=240)
