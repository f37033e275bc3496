"""Write docs/versions.md: what differs between the supported Kubernetes releases, read from the declarations.

`--check` compares instead, for `make lint`. Each difference needs a test: `version_tests` names it.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apiserver
import kubecel
from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import NOTHING, Release, Varying
from apiserver.config import features
from apiserver.resources import GATES, RESOURCES
from apiserver.schema.featuregate import Gate
from apiserver.schema.resource import Resource
from apiserver.standalone import control
from kubecel.kubernetes import environments
from scripts.version_tests import Tests

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "versions.md"
TESTS = ("tests/promises", "tests/unit", "tests/e2e")

HEAD = """\
# Kubernetes releases

Sluice is one release of Kubernetes at a time: {supported}. `--emulated-version` chooses it. Without the flag, `sluice serve` follows the
kube-apiserver in front, and every other command takes {newest}.

Clients see that release in everything: kinds and versions, members, validation and its texts, feature gates, discovery, OpenAPI, CEL,
metrics. This page lists what differs. `scripts/versions.py` writes it from the declarations (`since` and `until` of
`apiserver/apimachinery/releases.py`, and the specs of feature gates), and `make lint` compares it.

[next-release.md](next-release.md) is the recipe for the next release.
"""


class Row(NamedTuple):
    """One difference: where, what, and the key of its test."""

    place: str
    text: str
    key: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare the page with the declarations, and fail if they differ"
    )
    asked = parser.parse_args(arguments)
    tests = Tests(ROOT, TESTS)
    page, untested = rendered(tests)
    if not asked.check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.stderr.write("docs/versions.md is old: python scripts/versions.py\n")
        return 1
    for row in untested:
        sys.stderr.write(f"{row.key}: scripts/version_tests.py names no test that exists and tells releases apart\n")
    for pattern in sorted(tests.unused):
        sys.stderr.write(f"{pattern}: scripts/version_tests.py names a test of no difference\n")
    return 1 if untested or tests.unused else 0


def rendered(tests: Tests) -> tuple[str, list[Row]]:
    """Return the page, and the differences without a test."""
    supported = " or ".join(map(str, releases.SUPPORTED))
    lines, untested = [HEAD.format(supported=supported, newest=releases.NEWEST)], []
    sections = {
        "Kinds and their members": list(kinds((*RESOURCES, *control.RESOURCES))),
        "Feature gates": list(
            gates(dict.fromkeys((*features.GATES, *GATES, *(g for r in RESOURCES for g in r.gates))))
        ),
        "Expressions": list(expressions()),
        "Everything else": list(constants()),
    }
    for title, rows in sections.items():
        if not rows:
            continue
        lines.append(f"\n## {title}\n\n| where | difference | test |\n|---|---|---|\n")
        for row in rows:
            found = tests.of(row.key)
            if not found:
                untested.append(row)
            lines.append(f"| `{row.place}` | {row.text} | {f'`{found}`' if found else ''} |\n")
    return "".join(lines), untested


def kinds(declared: Sequence[Resource]) -> Iterator[Row]:
    """Yield the differences of kinds. Struct declarations that several kinds share are listed where they are met first."""
    met: set[int] = set()
    for difference in releases.differences(list(declared)):
        if id(difference.varying) in met:
            continue
        met.add(id(difference.varying))
        text = _text(difference.attribute, difference.varying)
        yield Row(difference.path, text, f"{difference.path}:{difference.attribute}")


def gates(declared: Sequence[Gate] | dict[Gate, None]) -> Iterator[Row]:
    """Yield the gates whose stage, default or lock differ between the supported releases."""
    for gate in sorted(declared, key=lambda gate: gate.name):
        states = [_state(gate.at(release)) for release in releases.SUPPORTED]
        if len(set(states)) > 1:
            turns = zip(releases.SUPPORTED, states, strict=True)
            yield Row(gate.name, "; ".join(f"{release}: {state}" for release, state in turns), f"gate {gate.name}")


def _state(gate: Gate | None) -> str:
    if gate is None:
        return "unknown"
    return f"{gate.stage.value or 'GA'}, {'on' if gate.default else 'off'}{', locked' if gate.locked else ''}"


_BASE = "kubecel.environments.BASE"


def expressions() -> Iterator[Row]:
    """Yield what the expression language gains in a supported release."""
    for addition in environments.BASE:
        turn = Release(*max(addition.introduced, addition.since))
        if addition.what and turn in releases.SUPPORTED:
            yield Row(_BASE, f"{turn}: {' '.join(addition.what.split())}", _BASE)


def constants() -> Iterator[Row]:
    """Yield the differences that modules declare as constants."""
    for package in (apiserver, kubecel):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__") or ".resources." in info.name:
                continue
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                if isinstance(value, Varying):
                    place = f"{info.name.partition('.')[2]}.{name}"
                    yield Row(place, _text("", value), place)


def _text(attribute: str, varying: Varying) -> str:
    if varying.what:
        return f"{varying.turn}: {varying.what}"
    if varying.old is NOTHING:
        return f"{attribute} since {varying.turn}".lstrip()
    if varying.new is NOTHING:
        return f"{attribute} until {varying.turn}".lstrip()
    if all(isinstance(side, (str, int, float, bool, Release)) for side in (varying.old, varying.new)):
        return f"{attribute or 'value'}: `{varying.old}` until {varying.turn}, then `{varying.new}`"
    return f"another {attribute or 'declaration'} since {varying.turn}"


if __name__ == "__main__":
    sys.exit(main())
