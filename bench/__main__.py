"""`python -m bench`: starts `sluice dev` on an empty folder, runs every workload, prints one line each.

With `--upstream` a real kube-apiserver with etcd and its own `resource.k8s.io/v1` is measured too, each workload right after ours, because
a machine is not equally fast all the time; then the ratios are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import uvloop

from bench import accounting, admission, cel, client, protobuf, workloads
from tests.e2e.controlplane.plane import ControlPlane

READY_SECONDS = 60.0


@contextlib.contextmanager
def server(data: Path) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A `sluice dev` on the folder and the seconds it took to be ready."""
    command = [sys.executable, "-m", "apiserver", "dev", "--data-dir", str(data), "--secure-port", "0", "--no-samples"]
    began = time.perf_counter()
    with (data.parent / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready:"):
                break
        else:
            raise RuntimeError(f"the server ended with {process.wait()}: see {data.parent / 'server.log'}")
        yield process, time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(READY_SECONDS)


def bench_of(process: subprocess.Popen[str], data: Path, group: str) -> workloads.Bench:
    return workloads.Bench(client.Target(str(data / "kubeconfig"), group), pids_of(process, data))


def pids_of(process: subprocess.Popen[str], data: Path) -> list[int]:
    """The server and its Valkey, which may have been started as a process of its own."""
    found = set(accounting.children(process.pid))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _works_in(entry, data):
            found.add(int(entry.name))
    return sorted(found)


def _works_in(entry: Path, data: Path) -> bool:
    try:
        return b"valkey-server" in (entry / "cmdline").read_bytes() and data in (entry / "cwd").readlink().parents
    except OSError:
        return False


def steps(slices: int) -> Iterator[Callable[[workloads.Bench], Awaitable[workloads.Result]]]:
    """What runs against a server, which has `slices` objects after the third step."""
    yield lambda bench: bench.create(first=0, count=1000, clients=1)
    yield lambda bench: bench.create(first=1000, count=slices - 2000, clients=16)
    yield lambda bench: bench.create_from_protobuf(first=slices - 1000, count=1000, clients=16)
    yield lambda bench: bench.get(operations=5000, clients=16)
    yield lambda bench: bench.get(operations=5000, clients=16, query="?resourceVersion=0")
    for gzip in (False, True):
        for clients in (1, 8):
            yield partial(workloads.Bench.list_all, operations=24, clients=clients, gzip=gzip)
    yield lambda bench: bench.get(operations=5000, clients=16, accept=client.PROTOBUF)
    for clients in (1, 8):
        yield partial(workloads.Bench.list_all, operations=24, clients=clients, gzip=False, accept=client.PROTOBUF)
    for how in workloads.WRITES:
        for clients in (1, 16):
            yield partial(workloads.Bench.write, how=how, operations=2000, clients=clients)
    yield lambda bench: bench.propagation(writes=1000, rate=100)
    yield lambda bench: bench.fan_out(watchers=1000, writes=200, rate=20)


async def measure(benches: Mapping[str, workloads.Bench], *, slices: int) -> None:
    """Each workload on each server in turn; with two, how many times the first one's figures the second one's are."""
    _memory("empty", benches)
    for number, step in enumerate(steps(slices)):
        if number == 3:
            _memory(f"with {slices} slices", benches)
        results = []
        for name, bench in benches.items():
            results.append(await step(bench))
            print(f"{name:15} {results[-1].line()}", flush=True)
        if len(results) == 2:
            print(f"{'ratio':15} {results[1].ratio(results[0])}", flush=True)
    _memory(f"after all, {slices} slices", benches)


def _memory(when: str, benches: Mapping[str, workloads.Bench]) -> None:
    found = ", ".join(f"{name} {accounting.resident_mb(bench.pids):.0f} MB" for name, bench in benches.items())
    print(f"memory {when}: {found} (server + store)")


@contextlib.contextmanager
def upstream(folder: Path) -> Iterator[workloads.Bench]:
    """kube-apiserver, with a store as durable as ours."""
    with ControlPlane(folder, durable=True) as plane:
        pids = [process.popen.pid for process in plane.processes.values()]
        yield workloads.Bench(client.Target(str(plane.admin), "resource.k8s.io"), pids)


async def fill(bench: workloads.Bench, count: int, first: int) -> None:
    await bench.create(first=first, count=count - first, clients=16)


async def large(bench: workloads.Bench, first: int) -> None:
    """Slices as large as they may be, behind the figures of memory."""
    devices = workloads.MOST_DEVICES
    made = await bench.create(first=first, count=300, clients=16, name=f"CREATE {devices} devices c16", devices=devices)
    print(made.line(), flush=True)
    for clients in (1, 16):
        applied = await bench.write("APPLY", clients=clients, operations=300, first=first, objects=100, devices=devices)
        print(applied.line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=10_000)
    parser.add_argument("--more", type=int, default=30_000, help="objects for the second memory figure; 0 skips it")
    parser.add_argument("--start", type=int, default=100_000, help="objects for the start-up figure; 0 skips it")
    parser.add_argument("--group", default="resource.sluice.dev")
    parser.add_argument("--upstream", action="store_true", help="measure kube-apiserver and etcd as well, and compare")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with server(data) as (process, _):
            with contextlib.ExitStack() as stack:
                benches = {"sluice": bench_of(process, data, wanted.group)}
                if wanted.upstream:
                    benches["kube-apiserver"] = stack.enter_context(upstream(Path(folder) / "upstream"))
                uvloop.run(measure(benches, slices=wanted.slices))
            have = wanted.slices
            for goal, word in ((wanted.more, "memory"), (wanted.start, "start")):
                if goal > have:
                    uvloop.run(fill(bench_of(process, data, wanted.group), goal, have))
                    have = goal
                if goal and word == "memory":
                    print(f"memory with {have} slices: {accounting.resident_mb(pids_of(process, data)):.0f} MB")
        with server(data) as (process, seconds):
            memory = accounting.resident_mb(pids_of(process, data))
            print(f"start with {have} slices: served after {seconds:.1f} s, {memory:.0f} MB (server + store)")
            uvloop.run(large(bench_of(process, data, wanted.group), have))
    admission.main()
    cel.main()
    protobuf.main()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    main()
