"""Make the Go modules of another Kubernetes release: `python -m tests.e2e.controlplane.modfiles 1.38.0 [--folder DIR]`.

Kubernetes requires its staging modules as `v0.0.0` and replaces them by folders that a Go module does not have. So our modules require
what upstream's go.mod requires, and replaces each staging module by the published one: v1.38.0 is v0.38.0 there.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.binaries import BuildError, Module

KUBERNETES = "k8s.io/kubernetes"
STAGING = "// k8s.io/kubernetes requires its staging modules as v0.0.0. All of them stand here."
_REQUIRED = re.compile(r"^(?:require )?\s*(\S+) (v\S+?)(?P<indirect> // indirect)?$", re.MULTILINE)
_STAGING = re.compile(r"^\s*(\S+) => \./staging/\S+$", re.MULTILINE)
_REPLACED = re.compile(r"(?:^//.*\n)*^replace (?:\((?:\n.*?)*\n\)\n|.*\n)", re.MULTILINE)
_REQUIRE = re.compile(r"^require (?:\((?:\n.*?)*\n\)\n|.*\n)", re.MULTILINE)


def text(module: str, upstream: str, release: str) -> str:
    """Return the go.mod of a release, from the one of another release and from upstream's go.mod, before `go mod tidy`.

    The module keeps its name, its tools and what it requires itself. `release` is as in `1.38.0`.
    """
    staging = set(_STAGING.findall(upstream))
    published = "v0." + release.partition(".")[2]
    wanted = {name: version for name, version in _required(upstream) if name not in staging}
    wanted[KUBERNETES] = f"v{release}"
    for name, version in _required(module, direct=True):
        wanted.setdefault(name, published if name in staging else version)
    go = re.search(r"^go \S+$", upstream, re.MULTILINE)
    head = re.sub(
        r"^go \S+$", go[0] if go else "", _REPLACED.sub("", _REQUIRE.sub("", module)), count=1, flags=re.MULTILINE
    )
    lines = [re.sub(r"\n{3,}", "\n\n", head).strip(), "", "require ("]
    lines += [f"\t{name} {version}" for name, version in wanted.items()]
    lines += [")", "", STAGING, "replace (", *(f"\t{name} => {name} {published}" for name in sorted(staging)), ")", ""]
    return "\n".join(lines)


def _required(text: str, *, direct: bool = False) -> Iterator[tuple[str, str]]:
    for block in _REQUIRE.finditer(text):
        for match in _REQUIRED.finditer(block[0].replace("require (", "")):
            if not (direct and match["indirect"]):
                yield match[1], match[2]


def make(module: Module, release: str, target: pathlib.Path) -> None:
    """Write the go.mod of a release to `target`, and its checksums beside it. Downloads what is missing. Raises BuildError."""
    source = binaries.download(f"{KUBERNETES}@v{release}")
    made = text((module.folder / "go.mod").read_text(), (source / "go.mod").read_text(), release)
    with tempfile.TemporaryDirectory() as folder:
        # In a copy: `go mod tidy -modfile` completes the go.sum of the file, and reads the packages of the folder.
        copy = pathlib.Path(folder, "module")
        shutil.copytree(module.folder, copy, ignore=shutil.ignore_patterns("*.py", "*.mod", "*.sum", "__pycache__"))
        (copy / "go.mod").write_text(made)
        binaries.run_go("mod", "tidy", folder=copy)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(copy / "go.mod", target)
        shutil.copyfile(copy / "go.sum", target.with_suffix(".sum"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("release", help="as in 1.38.0 or 1.38.0-alpha.2")
    parser.add_argument("--folder", type=pathlib.Path, help="write go-<release>.mod here (default: beside go.mod)")
    parser.add_argument("--module", type=pathlib.Path, default=binaries.MODULE.folder, help="the folder of a go.mod")
    asked = parser.parse_args(arguments)
    module = Module(asked.module.resolve(), {}, takes="")
    target = (asked.folder or module.folder) / f"go-{asked.release}.mod"
    try:
        make(module, asked.release, target)
    except BuildError as e:
        sys.stderr.write(f"{e}\n")
        return 1
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
