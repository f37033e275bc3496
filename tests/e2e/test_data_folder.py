"""`sluice dev` as processes on a data folder: who may use it, one at a time, and what it says when it cannot start."""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.controlplane.plane import until
from tests.fixtures.disks import Disk, small_disk
from tests.fixtures.server import DevServer

SECONDS = 120
NOBODY = 65534
KIND = "/apis/resource.sluice.dev/v1/deviceclasses"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Short: the store's socket lies in it. With what a shell would split and quote."""
    return tmp_path_factory.mktemp("d") / "a b'c"


def dev(data: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """A start that is to fail."""
    command = [sys.executable, "-m", "apiserver", "dev", "--data-dir", str(data), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def device_class(name: str) -> dict[str, object]:
    """Larger than what a file's last page may still take on a full disk."""
    metadata = {"name": name, "annotations": {"x": "x" * 100_000}}
    return {"apiVersion": "resource.sluice.dev/v1", "kind": "DeviceClass", "metadata": metadata, "spec": {}}


@pytest.fixture
def running(folder: pathlib.Path) -> Iterator[DevServer]:
    with DevServer(folder, "--no-samples") as server:
        yield server


def test_the_export_line_names_the_kubeconfig_to_a_shell(running: DevServer) -> None:
    [line] = [line for line in running.lines if line.startswith("ready: ")]
    script = line.removeprefix("ready: ") + '; printf %s "$KUBECONFIG"'
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert pathlib.Path(printed).samefile(running.kubeconfig)


def test_second_start_names_the_running_server_and_does_not_disturb_it(
    running: DevServer, folder: pathlib.Path
) -> None:
    before = running.kubeconfig.read_bytes()

    second = dev(folder, "--secure-port=0")

    assert (second.returncode, second.stdout) == (1, "")
    said = second.stderr.splitlines()[-1]
    assert said.startswith(f"sluice: Sluice is running already on {folder} (process {running.pid}, ")
    assert f"https://127.0.0.1:{running.port})" in said
    assert f"`export KUBECONFIG={shlex.quote(str(running.kubeconfig))}`" in said
    assert running.kubeconfig.read_bytes() == before
    assert running.request("POST", KIND, device_class("after-the-second-start")).status == 201


def test_killed_server_does_not_prevent_the_next_start(running: DevServer) -> None:
    assert running.request("POST", KIND, device_class("kept")).status == 201
    running.stop(signal.SIGKILL)
    running.start()
    assert running.request("GET", f"{KIND}/kept").status == 200


def test_port_in_use_is_reported_before_the_store_starts(folder: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = dev(folder, f"--secure-port={port}")
    assert told.returncode == 1
    [line] = told.stderr.splitlines()
    command = pathlib.Path("/proc/self/comm").read_text().strip()
    assert line == (
        f"sluice: cannot listen: port {port} of 127.0.0.1 is in use by {command} (pid {os.getpid()}): stop that process, "
        'or choose another port with --secure-port PORT. `make run ARGS="--secure-port 0"` takes any free port'
    )
    assert not (folder / "store" / "valkey.log").exists()
    assert not list((folder / "certs").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("part", ["", "store", "certs", "certs/client.key"])
def test_a_folder_of_another_user_is_refused_and_left_as_it_is(folder: pathlib.Path, part: str) -> None:
    with DevServer(folder, "--no-samples"):
        pass
    os.chown(folder / part, NOBODY, -1)
    (folder / part).chmod(0o755)

    told = dev(folder, "--secure-port=0")

    assert told.returncode == 2
    assert told.stderr.startswith(f"sluice: --data-dir: {folder / part} belongs to ")
    assert "choose another folder with --data-dir DIR" in told.stderr
    assert stat.S_IMODE((folder / part).stat().st_mode) == 0o755


def test_a_folder_that_others_may_write_to_is_refused_until_that_is_mended(folder: pathlib.Path) -> None:
    with DevServer(folder, "--no-samples") as server:
        folder.chmod(0o777)
    told = dev(folder, "--secure-port=0")
    assert told.returncode == 2
    command = told.stderr.partition("run `")[2].partition("`")[0]

    subprocess.run(["sh", "-c", command], check=True)

    with server:
        assert server.request("GET", KIND).status == 200


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with small_disk(tmp_path_factory.mktemp("d") / "disk", mebibytes=24) as disk:
        yield disk


def test_a_full_disk_is_named_at_the_start(disk: Disk) -> None:
    data = disk.folder / "data"
    disk.fill()

    told = dev(data, "--secure-port=0")

    assert told.returncode == 2
    assert told.stderr.startswith(
        f"sluice: --data-dir: {data} cannot be used: the disk of {data} is full: free at least"
    )
    assert not data.exists()


def test_full_disk_is_named_until_space_is_free_again(disk: Disk, folder: pathlib.Path) -> None:
    data = folder.parent / "link"
    data.symlink_to(disk.folder / "data")
    (disk.folder / "data").mkdir()
    server = DevServer(data, "--no-samples")
    with server:
        assert server.request("POST", KIND, device_class("before")).status == 201
        disk.fill()
        # Valkey ends with the first write that does not fit. The outcome of that write is unknown.
        assert server.request("POST", f"{KIND}?timeout=1s", device_class("lost")).status in (503, 504)
        until(lambda: "is full" in server.request("GET", "/readyz/store").text, "the store's state names the disk")

        refused = server.request("POST", KIND, device_class("refused"))
        state = server.request("GET", "/readyz/store")

        assert (refused.status, refused.json["reason"]) == (503, "ServiceUnavailable")
        assert refused.json["message"].startswith("the disk of the store is full: ")
        assert (state.status, f"the disk of {disk.folder}/data/store is full: free at least" in state.text) == (
            500,
            True,
        )
        assert server.request("GET", "/readyz").status == 200
        assert server.request("GET", f"{KIND}/before?resourceVersion=0").status == 200
        assert "waits for free space on its disk" in server.log.read_text()

        disk.empty()
        until(lambda: server.request("GET", "/readyz/store").status == 200, "the store is back")
        assert server.request("POST", KIND, device_class("after")).status == 201
        disk.fill()
        assert server.request("POST", f"{KIND}?timeout=1s", device_class("lost-again")).status in (503, 504)
        until(lambda: "is full" in server.request("GET", "/readyz/store").text, "the store's state names the disk")
    assert server.process is not None
    assert server.process.returncode == 0
