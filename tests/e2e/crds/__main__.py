"""Serve the CustomResourceDefinitions that public projects ship from kube-apiserver and from Sluice, and compare every answer.

`python -m tests.e2e.crds [--from DIR]… [--target-version 1.37.2] [--project TEXT] [--only NAME]`. Without `--from`, the definitions are
those in the Go module cache. `--write` puts the table into `docs/crds.md`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence

from apiserver.apimachinery.releases import Release
from tests.e2e.controlplane import binaries, plane
from tests.e2e.controlplane.connection import Connection
from tests.e2e.crds import sources, tour

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "crds.md"
BEGIN, END = "<!-- tour -->\n", "<!-- end of tour -->\n"
ENOUGH = 0.98
"""The share of steps that must be alike."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folders", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--target-version", default="", help="the version of kube-apiserver, as in 1.36.3")
    parser.add_argument("--kubeconfig", type=pathlib.Path, help="a kubeconfig of a kube-apiserver that runs already")
    parser.add_argument("--seed", default="34")
    parser.add_argument("--objects", type=int, default=2, help="objects of each version")
    parser.add_argument("--project", default="", help="only projects with this text in their names")
    parser.add_argument("--only", default="", help="only definitions with this text in their names")
    parser.add_argument("--show", type=int, default=10, help="differences that are printed")
    parser.add_argument("--write", action="store_true", help="put the table into docs/crds.md")
    options = parser.parse_args()
    projects = [project for folder in options.folders for project in sources.of_folder(folder.resolve())]
    if not options.folders:
        cache = pathlib.Path(binaries.run_go("env", "GOMODCACHE", folder=binaries.MODULE.folder).strip())
        projects = sources.of_modules(cache)
    projects = [project for project in sources.once(projects) if options.project in project.name]
    with contextlib.ExitStack() as stack:
        if options.target_version:
            stack.enter_context(binaries.choosing(options.target_version))
        release = Release(*map(int, binaries.minor().split(".")))
        # Short: the store's socket lies in it.
        made = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tour-")))
        kubeconfig = options.kubeconfig or stack.enter_context(plane.ControlPlane(made / "plane")).admin
        admin = stack.enter_context(Connection(kubeconfig))
        tour.prepared(admin)
        results = []
        for number, project in enumerate(projects):
            folder = made / str(number)
            started = time.monotonic()
            result = tour.run(
                project, admin, folder, seed=options.seed, objects=options.objects, release=release, only=options.only
            )
            shutil.rmtree(folder)
            results.append(result)
            sys.stdout.write(f"{row(result)} {time.monotonic() - started:.0f} s\n")
            for step in result.slow:
                sys.stdout.write(f"a step of Sluice's event loop took long: {step}\n")
            for difference in result.differences[: options.show]:
                sys.stdout.write(f"\n{difference}\n")
            sys.stdout.flush()
        results = [result for result in results if result.definitions]
        text = table(results, options.seed, binaries.version())
    sys.stdout.write(f"\n{text}")
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")
    return 0 if agree(results) else 1


def agree(results: Sequence[tour.Result]) -> bool:
    """Whether Sluice takes every definition that kube-apiserver takes, and answers nearly every request alike."""
    steps, alike = (sum(counter.total() for counter in counters) for counters in _counters(results))
    return alike >= ENOUGH * steps and all(result.taken == result.definitions for result in results)


def _counters(results: Sequence[tour.Result]) -> tuple[list[collections.Counter[str]], list[collections.Counter[str]]]:
    return [result.steps for result in results], [result.alike for result in results]


HEAD = "| project | definitions | taken | steps | alike | accepted |\n|---|---|---|---|---|---|\n"


def row(result: tour.Result) -> str:
    steps, alike = result.steps.total(), result.alike.total()
    accepted = f"{100 * result.accepted // max(steps, 1)} %"
    return f"| {result.name} | {result.definitions} | {result.taken} | {steps} | {alike} | {accepted} |"


def table(results: Sequence[tour.Result], seed: str, version: str) -> str:
    whole = tour.Result("all")
    for result in results:
        whole.definitions += result.definitions
        whole.taken += result.taken
        whole.steps += result.steps
        whole.alike += result.alike
        whole.codes += result.codes
    lines = "".join(f"{row(result)}\n" for result in [*results, whole])
    topics = "".join(f"| {topic} | {count} | {whole.alike[topic]} |\n" for topic, count in whole.steps.most_common())
    return (
        f"kube-apiserver {version}, seed {seed}:\n\n{HEAD}{lines}\n| request | steps | alike |\n|---|---|---|\n{topics}"
    )


if __name__ == "__main__":
    sys.exit(main())
