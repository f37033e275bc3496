"""The script of a store on three nodes (manifests/store-nodes), run as its pods run it: six processes on loopback addresses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from apiserver.storage.operations import administration, rights
from apiserver.storage.options import StoreOptions
from tests.fixtures.processes import Process, free_port
from tests.fixtures.sentinels import until
from tests.fixtures.valkey import packed, reply, server_binary

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = PROJECT / "manifests" / "store-nodes" / "store.sh"
CONF = PROJECT / "manifests" / "base" / "valkey-configmap.yaml"
NAME = "sluice-valkey"
ADMIN, SERVING = "of-the-admin", "of-the-server"
RESOURCE = "faults.example.com/things"
CLI = f"""#!/bin/sh
exec {sys.executable} -IS {PROJECT}/tests/fixtures/valkey_cli.py "$@"
"""
GETENT = """#!/bin/sh
# As in a pod: /etc/hosts says of its own name the address of the pod. That of its Service is known by a name with the namespace.
case "$1 $2" in
  "hosts $POD_NAME") echo "127.0.78.1 $2" ;;
  "hosts sluice-valkey-"?.sluice-system.svc) number=${2%%.*} && echo "127.0.77.$((${number##*-} + 1)) $2" ;;
  *) exit 2 ;;
esac
"""


class Pod:
    """The two containers of one pod, and its volume."""

    def __init__(self, folder: pathlib.Path, programs: pathlib.Path, number: int, ports: tuple[int, int]) -> None:
        self.address, (self.port, self.sentinel_port) = f"127.0.77.{number + 1}", ports
        self.folder, self.data = folder, folder / "data"
        for name in ("data", "etc/conf", "etc/auth"):
            (folder / name).mkdir(parents=True)
        auth = folder / "etc/auth/auth.conf"
        auth.write_text(f"requirepass {ADMIN}\n{rights.user_line(SERVING)}\n")
        conf = yaml.safe_load(CONF.read_text())["data"]["valkey.conf"]
        conf = conf.replace("dir /data", f"dir {self.data}").replace("/etc/valkey/auth/auth.conf", str(auth))
        (folder / "etc/conf/valkey.conf").write_text(f"{conf}bind {self.address}\n")
        self._environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "POD_NAME": f"{NAME}-{number}",
            "POD_NAMESPACE": "sluice-system",
            "STORE_DATA": str(self.data),
            "STORE_ETC": str(folder / "etc"),
            "STORE_LOCAL": self.address,
            "STORE_PORT": str(self.port),
            "STORE_SENTINEL_PORT": str(self.sentinel_port),
        }
        self._running: list[Process] = []

    def start(self, *words: str) -> None:
        for word in words or ("sentinel", "node"):
            command = ["sh", str(SCRIPT), word]
            self._running.append(self._process(command, word))

    def call(self, word: str, **environ: str) -> int:
        """Run a probe or a hook."""
        process = self._process(["sh", str(SCRIPT), word], word, **environ)
        try:
            return process.popen.wait()
        finally:
            process.stop()

    def _process(self, command: list[str], word: str, **environ: str) -> Process:
        """The shell that runs the script makes further ones, which end with the test."""
        return Process(command, log=self.folder / f"{word}.log", environ={**self._environ, **environ}, group=True)

    def ready(self) -> bool:
        return self.call("ready") == 0

    def stop(self) -> None:
        """As a kubelet stops a pod."""
        self.call("handover")
        self.kill(signal.SIGTERM)

    def pause(self, word: str) -> None:
        """Stop a program without its end: it is reached, and does not answer."""
        for process in self._running:
            if process.name == word:
                process.send(signal.SIGSTOP)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        for process in self._running:
            process.stop(number)
        self._running.clear()

    def ask(self, *words: str) -> Any:
        """Ask the node."""
        return self._ask(self.port, ["AUTH", ADMIN], words)

    def ask_sentinel(self, *words: str) -> Any:
        return self._ask(self.sentinel_port, ["AUTH", "store", ADMIN], words)

    def _ask(self, port: int, login: Sequence[str], words: Sequence[str]) -> Any:
        with socket.create_connection((self.address, port), 5) as connection, connection.makefile("rb") as replies:
            connection.sendall(packed(*login) + packed(*words))
            reply(replies)
            return reply(replies)

    @property
    def role(self) -> str:
        """Return "master" or "slave"; "" while the node does not answer."""
        with contextlib.suppress(OSError, RuntimeError):
            found = re.search(rb"role:(\w+)", self.ask("INFO", "replication"))
            return found[1].decode() if found else ""
        return ""

    @property
    def primary(self) -> bool:
        return self.role == "master"

    @property
    def watched(self) -> bool:
        """Whether its sentinel answers."""
        with contextlib.suppress(OSError, RuntimeError):
            return bool(self.ask_sentinel("PING") == b"PONG")
        return False

    def follow(self, other: Pod) -> None:
        """Make its sentinel believe that another pod has become the primary."""
        self.ask_sentinel("SENTINEL", "REMOVE", NAME)
        self.ask_sentinel("SENTINEL", "MONITOR", NAME, other.address, str(other.port), "2")


@pytest.fixture
def stopped(tmp_path: pathlib.Path) -> Iterator[list[Pod]]:
    """Three pods that do not run yet."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "valkey-server").symlink_to(server_binary())
    for name, text in (("valkey-cli", CLI), ("getent", GETENT)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    ports = free_port(), free_port()
    made = [Pod(tmp_path / f"pod-{number}", programs, number, ports) for number in range(3)]
    try:
        yield made
    finally:
        for pod in made:
            pod.kill()


@pytest.fixture
def pods(stopped: list[Pod]) -> list[Pod]:
    for pod in stopped:
        pod.start()
    until(lambda: all(pod.ready() for pod in stopped), seconds=120)
    return stopped


def _primary(pods: list[Pod]) -> Pod:
    [found] = [pod for pod in pods if pod.primary]
    return found


def _replaced(pods: list[Pod], old: Pod) -> None:
    """Wait until another pod is the only primary, and every other one is a replica in step."""
    until(lambda: not old.primary and sum(pod.primary for pod in pods) == 1, seconds=120)
    until(lambda: all(pod.ready() for pod in pods), seconds=120)


def _init(pods: list[Pod]) -> None:
    hosts = ",".join(f"{pod.address}:{pod.sentinel_port}" for pod in pods)
    options = StoreOptions(url=f"redis+sentinel://default:{ADMIN}@{hosts}/{NAME}")
    asyncio.run(administration.init(options, [RESOURCE]))


HANDOVER_SECONDS = 3
SLOW_TRY_SECONDS = 10
"""A try waits two seconds for each of three sentinels that do not answer."""


@pytest.mark.parametrize("cause", ["sentinels", "names"])
def test_handover_without_an_answer_ends_in_its_seconds(pods: list[Pod], tmp_path: pathlib.Path, cause: str) -> None:
    """Otherwise the kubelet would kill the primary when the grace period of the pod is over, before its log is on the disk."""
    environ = {"STORE_HANDOVER_SECONDS": str(HANDOVER_SECONDS)}
    primary = _primary(pods)
    if cause == "sentinels":
        for pod in pods:
            pod.pause("sentinel")
    else:
        (tmp_path / "bin" / "getent").write_text("#!/bin/sh\nexit 2\n")
    started = time.monotonic()
    code = primary.call("handover", **environ)
    assert (code, primary.primary) == (124, True)
    assert HANDOVER_SECONDS <= time.monotonic() - started < HANDOVER_SECONDS + SLOW_TRY_SECONDS


def test_node_that_two_sentinels_name_waits_while_the_third_one_names_another(stopped: list[Pod]) -> None:
    """One sentinel is the first to know that another node has taken over: two primaries would be the answer."""
    first, second, third = stopped
    for pod in stopped:
        pod.start("sentinel")
    until(lambda: all(pod.watched for pod in stopped), seconds=120)
    third.follow(second)

    first.start("node")

    log = first.folder / "node.log"
    until(lambda: "they name several" in log.read_text(), seconds=120)
    assert first.role == ""
    for pod in (first, second):
        pod.follow(second)
    until(lambda: first.role != "", seconds=120)
    assert first.role == "slave"


def test_store_of_three_pods_keeps_its_data_in_a_rolling_restart_a_crash_and_the_loss_of_a_volume(
    pods: list[Pod],
) -> None:
    assert _primary(pods) is pods[0]
    _init(pods)

    for pod in reversed(pods):
        was = pod.primary
        pod.stop()
        if was:
            assert sum(other.primary for other in pods) == 1, "it stopped before another one had taken over"
        pod.start()
        until(pod.ready, seconds=120)
    assert not pods[0].primary

    old = _primary(pods)
    old.kill()
    until(lambda: sum(pod.primary for pod in pods) == 1, seconds=120)
    old.start()
    _replaced(pods, old)

    old = _primary(pods)
    old.kill()
    shutil.rmtree(old.data)
    old.data.mkdir()
    old.start()
    _replaced(pods, old)
    assert all(pod.ask("EXISTS", f"{{sl:{RESOURCE}}}:m") == 1 for pod in pods)


def test_store_whose_pods_all_stop_comes_back_though_one_lost_its_volume(pods: list[Pod]) -> None:
    """The sentinel without a volume starts first, and names the first pod until the others tell it the primary."""
    _init(pods)
    pods[0].call("handover")
    primary = _primary(pods)
    [lost] = [pod for pod in pods[1:] if pod is not primary]
    until(lambda: all(pod.ready() for pod in pods), seconds=120)
    for pod in pods:
        pod.kill()
    shutil.rmtree(lost.data)
    lost.data.mkdir()

    lost.start()
    until(lambda: lost.watched, seconds=120)
    assert lost.ask_sentinel("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[0].decode() == pods[0].address
    for pod in pods:
        if pod is not lost:
            pod.start()

    until(lambda: all(pod.ready() for pod in pods), seconds=120)
    assert len([pod for pod in pods if pod.primary]) == 1
    assert all(pod.ask("EXISTS", f"{{sl:{RESOURCE}}}:m") == 1 for pod in pods)
