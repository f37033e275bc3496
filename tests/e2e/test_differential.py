"""What a real kube-apiserver 1.36.3 answered, against what `sluice dev` answers to the same requests."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from tests.fixtures.server import DevServer

FLOOR = 0.80
"""Share of the recorded steps that must agree at this stage of the project."""


@pytest.mark.timeout(300)
def test_the_recorded_answers_of_a_real_server_agree(dev: DevServer, shared: pathlib.Path) -> None:
    corpus = shared.parent / "differential"
    if not (corpus / "run").exists():
        pytest.skip("the corpus is not beside this checkout")
    command = [sys.executable, str(corpus / "run"), "--b-kubeconfig", str(dev.kubeconfig), "--golden"]
    command += [str(corpus / "golden.json"), "--b-core-kubeconfig", "none", "--ignore", "managedFields"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)

    result = re.search(r"(\d+) passed, (\d+) failed\s*$", done.stdout)
    assert result, done.stdout[-2000:] + done.stderr[-2000:]
    passed, failed = map(int, result.groups())
    assert passed / (passed + failed) >= FLOOR, done.stdout[-6000:]
