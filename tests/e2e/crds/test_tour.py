"""The CustomResourceDefinitions inside the modules of the controllers that tests build answer as on kube-apiserver: a part of the tour."""

from __future__ import annotations

import json
import pathlib

import pytest

from apiserver.apimachinery.releases import Release
from tests.e2e.controlplane import binaries, plane
from tests.e2e.crds import sources, tour

MODULES = sorted(pathlib.Path(__file__).resolve().parent.glob("go/*/go.mod"))
"""The modules of the controllers."""
MOST = 6
"""Definitions of a project, the smallest first."""


def _downloaded(module: pathlib.Path) -> list[pathlib.Path]:
    """The folders of the required modules that the cache has."""
    said = binaries.run_go("list", "-m", "-json=Path,Dir", "all", folder=module.parent)
    found, decoder = [], json.JSONDecoder()
    while said := said.strip():
        value, end = decoder.raw_decode(said)
        said = said[end:]
        if folder := value.get("Dir"):
            found.append(pathlib.Path(folder))
    return [folder for folder in found if folder != module.parent]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.parent.name)
def test_definitions_of_a_controller_answer_as_on_kube_apiserver(
    our_own: None, tmp_path_factory: pytest.TempPathFactory, module: pathlib.Path
) -> None:
    cache = pathlib.Path(binaries.run_go("env", "GOMODCACHE", folder=module.parent).strip())
    projects = [
        project for project in sources.of_modules(cache, _downloaded(module)) if project.name.count("k8s.io/") == 0
    ]
    if not projects:
        pytest.skip(f"{module.parent.name} is not built: the module cache has no definitions of it")
    folder = tmp_path_factory.mktemp("tour")
    with plane.ControlPlane(folder / "plane") as cluster, cluster.connect() as admin:
        tour.prepared(admin)
        for number, project in enumerate(projects):
            smallest = sorted(project.files.values(), key=lambda file: len(file.text))[:MOST]
            project.files = {file.name: file for file in smallest}
            result = tour.run(
                project,
                admin,
                folder / str(number),
                seed="34",
                objects=1,
                release=Release(*map(int, binaries.minor().split("."))),
            )
            assert result.definitions
            assert result.taken == result.definitions
            assert not result.differences, "\n\n".join(result.differences[:5])
