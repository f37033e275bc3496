"""`kubectl sluice doctor` and `kubectl sluice top`, with the real kubectl and the scripts that the package installs."""

from __future__ import annotations

import json
import os
import pathlib
import sys

from tests.e2e.conftest import Kubectl

SCRIPTS = pathlib.Path(sys.executable).parent
PATH = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"


def test_kubectl_runs_doctor_as_a_plugin_in_the_named_context(kubectl: Kubectl) -> None:
    context = kubectl("config", "current-context").stdout.strip()
    done = kubectl("sluice", "doctor", "-o", "json", "--context", context, "--timeout=60s", PATH=PATH)
    document = json.loads(done.stdout)
    assert document["about"].startswith("the server at https://127.0.0.1:")
    states = {check["check"]: {each["state"] for each in check["findings"]} for check in document["checks"]}
    assert states["readyz"] == {"ok"}
    assert states["store"] == {"skip"}
    assert not {"apiservice", "deployment", "rights"} & states.keys()
    refused = kubectl("sluice", "doctor", "--context", "nowhere", check=False, PATH=PATH)
    assert refused.returncode == 2
    assert "it has no context 'nowhere'" in refused.stderr


def test_kubectl_runs_top_as_a_plugin(kubectl: Kubectl) -> None:
    done = kubectl("sluice", "top", "--once", "--interval=100ms", PATH=PATH)
    assert "store writable" in done.stdout
    assert "resourceslices" in done.stdout


def test_plugin_refuses_the_other_commands(kubectl: Kubectl) -> None:
    done = kubectl("sluice", "serve", check=False, PATH=PATH)
    assert done.returncode == 2
    assert "'serve' is not a command of the plugin" in done.stderr
