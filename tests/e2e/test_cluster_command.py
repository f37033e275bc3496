"""`make cluster` as a developer meets it: one line to paste, and nothing left behind however it ends."""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e import objects
from tests.e2e.controlplane import kubectl
from tests.e2e.controlplane.plane import until

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self").exists(), reason="looks for processes in /proc")


def running(folder: pathlib.Path) -> list[str]:
    """The command lines of living processes that name the folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words):
            found.append(words[0])
    return found


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Short: a store's socket lies in it. With a blank, which a shell would split at."""
    return tmp_path_factory.mktemp("k ")


@pytest.fixture
def command(our_own: None, folder: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    words, environ = [sys.executable, "-m", "tests.e2e.controlplane"], {**os.environ, "TMPDIR": str(folder)}
    told = (folder / "told").open("w")
    with told, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=told, text=True, env=environ) as process:
        yield process
        process.kill()


def exported(command: subprocess.Popen[str]) -> pathlib.Path:
    assert command.stdout is not None
    line = command.stdout.readline().rstrip()
    assert line.startswith("export KUBECONFIG="), line
    [_, word] = shlex.split(line)
    return pathlib.Path(word.removeprefix("KUBECONFIG="))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_printed_line_gives_a_cluster_and_its_end_leaves_no_process(
    command: subprocess.Popen[str], folder: pathlib.Path, tmp_path: pathlib.Path, end: signal.Signals
) -> None:
    try:
        kubeconfig = exported(command)
        [made] = folder.glob("sluice-cluster-*")
        until(lambda: len(running(made)) >= 5, "all of the cluster runs")
        shown = kubectl.run("api-resources", f"--api-group={objects.GROUP}", kubeconfig=kubeconfig, home=tmp_path)
        assert "resourceslices" in shown.stdout
        # Both have claims, and the short name is that of kube-apiserver's.
        assert f"kubectl get resourceclaims.{objects.GROUP} asks Sluice" in (folder / "told").read_text()
        url = kubectl.run("get", "resourceclaims", "-v=6", kubeconfig=kubeconfig, home=tmp_path).stderr
        assert "/apis/resource.k8s.io/v1/" in url
        if end == signal.SIGINT:
            command.send_signal(signal.SIGUSR1)
            until(lambda: "another process of Sluice serves" in (folder / "told").read_text(), "Sluice is replaced")
    finally:
        command.send_signal(end)
        code = command.wait(60)

    until(lambda: not running(made), "every process is gone")
    if end == signal.SIGINT:
        assert code == 0
        assert not made.exists()
