"""The examples of examples/ that have no test elsewhere (examples/README.md lists those)."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fixtures import example_kind
from tests.fixtures.server import DevServer

PROJECT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = PROJECT / "examples"
DRIVER = EXAMPLES / "gpu-driver"
V1 = "/apis/resource.k8s.io/v1"
SLICES = f"{V1}/resourceslices"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    data = tmp_path_factory.mktemp("examples") / "data"
    with DevServer(data, "--group", "resource.k8s.io", "--samples=false") as running:
        yield running


def publish(server: DevServer, inventory: pathlib.Path) -> list[Object]:
    """Run the driver once. Return all slices."""
    command = [sys.executable, str(DRIVER / "driver.py"), "--node", "node-1", "--inventory", str(inventory), "--once"]
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    items: list[Object] = server.request("GET", SLICES).json["items"]
    return items


def test_gpu_driver_publishes_changes_and_cleans_up_its_slices(server: DevServer, tmp_path: pathlib.Path) -> None:
    [published] = publish(server, DRIVER / "inventory.json")
    assert [device["name"] for device in published["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    [again] = publish(server, DRIVER / "inventory.json")
    assert again == published

    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    left: Object = {**head, "spec": published["spec"], "metadata": {"name": "left"}}
    foreign = left | {"metadata": {"name": "foreign"}, "spec": left["spec"] | {"driver": "other.example.org"}}
    assert [server.request("POST", SLICES, item).status for item in (left, foreign)] == [201, 201]
    (tmp_path / "gpus.json").write_text(json.dumps(json.loads((DRIVER / "inventory.json").read_text())[:1]))
    slices = {item["metadata"]["name"]: item for item in publish(server, tmp_path / "gpus.json")}
    assert slices.keys() == {published["metadata"]["name"], "foreign"}
    assert [device["name"] for device in slices[published["metadata"]["name"]]["spec"]["devices"]] == ["gpu-0"]


def test_claim_of_the_gpu_driver_is_accepted(server: DevServer) -> None:
    device_class, claim = yaml.safe_load_all((DRIVER / "claim.yaml").read_text())
    assert server.request("POST", f"{V1}/deviceclasses", device_class).status == 201
    created = server.request("POST", f"{V1}/namespaces/default/resourceclaims", claim)
    assert created.status == 201, created.text


def test_package_of_kinds_is_that_of_its_page() -> None:
    """tests/e2e/test_kinds_of_a_package.py builds, installs and serves the package of the page."""
    folder = EXAMPLES / "harbour"
    for name, text in {
        "harbour.py": example_kind.block("python"),
        "pyproject.toml": example_kind.block("toml"),
        "ship.yaml": example_kind.manifest(),
    }.items():
        assert (folder / name).read_text() == text, f"copy it from docs/kinds.md into {folder / name}"


def test_prometheus_reads_the_rules_of_the_job(tmp_path: pathlib.Path) -> None:
    file = EXAMPLES / "prometheus" / "prometheus.yaml"
    settings = yaml.safe_load(file.read_text())
    [job] = settings["scrape_configs"]
    [rules] = [(file.parent / rules).resolve() for rules in settings["rule_files"]]
    assert set(re.findall(r'job="([^"]*)"', rules.read_text())) == {job["job_name"]}
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "config", "--syntax-only", file], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_valid_for_systemd(tmp_path: pathlib.Path) -> None:
    """A hand-over by the same command is tested in tests/e2e/test_serve.py."""
    for unit in ("sluice.socket", "sluice.service"):
        text = (EXAMPLES / "systemd" / unit).read_text()
        # systemd looks for the program.
        (tmp_path / unit).write_text(text.replace("/opt/sluice/bin/sluice ", "/bin/sh "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", "./sluice.service", "./sluice.socket"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_every_example_is_in_the_list() -> None:
    listed = set(re.findall(r"^\| \[[\w./-]+\]\(([\w.-]+)", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert listed == {item.name for item in EXAMPLES.iterdir() if item.name != "README.md"}
    for test in re.findall(r"`(tests/[^`]+\.py)`", (EXAMPLES / "README.md").read_text()):
        assert (PROJECT / test).is_file()
