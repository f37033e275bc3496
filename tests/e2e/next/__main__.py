"""`make next VERSION=1.38.0-alpha.2`: build that Kubernetes, and list what it answers otherwise than the recorded one.

The list is Markdown, by topic. `KUBERNETES=1.36.3` compares with the recordings of another version than the newest.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.e2e.controlplane import binaries, modfiles
from tests.e2e.controlplane.plane import ControlPlane
from tests.e2e.corpus import comparison, ways
from tests.e2e.corpus.comparison import Outcome
from tests.e2e.next import cases, differences, probes, promises
from tests.e2e.next.differences import Difference
from tests.e2e.next.probes import Said
from tests.fixtures.openapi import GROUP
from tests.promises.api import target

ALL_VERSIONS = (
    f"--runtime-config={','.join(f'{GROUP}/{version}=true' for version in target.VERSIONS)},{GROUP}/v1alpha3=true"
)
PARTS = ("probes", "corpus", "cases", "promises")
TABLES = pathlib.Path(__file__).resolve().parents[2] / "cases"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make next", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="a version of the Go module k8s.io/kubernetes, as in 1.38.0-alpha.2")
    parser.add_argument("--only", default=",".join(PARTS), help=f"comma-separated, of {', '.join(PARTS)}")
    parser.add_argument("--output", type=pathlib.Path, help="write the list to this file, not to standard output")
    asked = parser.parse_args()
    version, parts = asked.version.removeprefix("v"), asked.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: unknown: {', '.join(sorted(unknown))}")
    try:
        before = binaries.version().removeprefix("v")
        prepare(version)
        with tempfile.TemporaryDirectory(prefix="s-") as folder:
            text = work_list(pathlib.Path(folder), before, version, parts)
    except (binaries.BuildError, comparison.Broken, promises.Broken) as e:
        sys.stderr.write(f"{e}\n")
        return 1
    if asked.output:
        asked.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


def prepare(version: str) -> None:
    """Generate the module of a version into the cache, unless there is one, and build its programs. Raises BuildError."""
    if version not in binaries.MODULE.versions:
        _say(f"generating the module of {version}")
        modfiles.make(binaries.MODULE, version, binaries.MODULE.generated / f"go-{version}.mod")
    with binaries.choosing(version):
        binaries.binary("kube-apiserver")


def work_list(folder: pathlib.Path, before: str, version: str, parts: Iterable[str]) -> str:
    sources: Mapping[str, Callable[[pathlib.Path, str, str], Iterable[Difference]]] = {
        "probes": _probes, "corpus": _corpus, "cases": _cases, "promises": _promises,
    }  # fmt: skip
    found: list[Difference] = []
    played = []
    for part in parts:
        start = time.monotonic()
        some = list(sources[part](folder / part, before, version))
        _say(f"{part}: {len(some)} differences, {time.monotonic() - start:.0f} s")
        played.append(f"* {part}: {len(some)} differences")
        found += some
    return differences.page(f"Kubernetes {version} beside {before}", found, played=played)


def _probes(folder: pathlib.Path, before: str, version: str) -> Iterator[Difference]:
    yield from probes.differences(*(_probed(folder / name, name) for name in (before, version)))


def _probed(folder: pathlib.Path, version: str) -> Said:
    with binaries.choosing(version), _server(folder, ALL_VERSIONS) as plane, plane.connect() as admin:
        return probes.ask(admin)


def _corpus(folder: pathlib.Path, before: str, version: str) -> Iterator[Difference]:
    """Steps that the recorded version itself answers otherwise now are left out: they vary, or were recorded under other conditions."""
    varying = set(_played(folder / before, before, before).failures)
    for step, failure in _played(folder / version, version, before).failures.items():
        if step not in varying:
            topic = differences.topic_of_step(step.scenario, failure.title, failure.members)
            lines = [line.removeprefix("    ") for line in failure.lines if line.strip()]
            yield Difference(topic, f"{step}  {failure.title}", [differences.shown(line) for line in lines[:12]])


def _played(folder: pathlib.Path, version: str, recorded: str) -> Outcome:
    with binaries.choosing(version), _server(folder) as plane, binaries.choosing(recorded):
        return comparison.compare(ways.corpus(), plane.admin, group=GROUP)


def _cases(folder: pathlib.Path, before: str, version: str) -> Iterator[Difference]:
    with binaries.choosing(version):
        yield from cases.play(folder, TABLES)


def _promises(folder: pathlib.Path, before: str, version: str) -> Iterator[Difference]:
    folder.mkdir()
    with binaries.choosing(version):
        yield from promises.ask(folder)


@contextlib.contextmanager
def _server(folder: pathlib.Path, *flags: str) -> Iterator[ControlPlane]:
    """A kube-apiserver of the chosen version that has a past, as recorded ones had."""
    plane = ControlPlane(folder, flags=flags)
    try:
        plane.start_etcd()
        target.age(plane.etcd_url)
        plane.start_apiserver()
        yield plane
        plane.kill_apiserver()
    finally:
        plane.stop()


def _say(text: str) -> None:
    sys.stderr.write(f"next: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
