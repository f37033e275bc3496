"""Write a kube-apiserver's answers into scenarios: `python -m tests.promises.custom.record --kubeconfig FILE [TOPIC...]`.

For new scenarios, and for those whose requests have changed. Read what it wrote before you commit it. Answers of another release than the
newest are written only where they differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import sys
from typing import Any

import yaml

from tests.e2e.controlplane.connection import Connection
from tests.promises.custom import target
from tests.promises.custom.playing import played
from tests.promises.custom.scenarios import ANSWER, TOPICS, Kinds, Loader, load

NEWEST = "1.37"
WIDTH = 140


def text(document: dict[str, Any]) -> str:
    """The file: one key of a step on each line."""
    lines = []
    for name, value in document.items():
        if name != "scenarios":
            lines += [_line(0, name, value)]
    lines += ["scenarios:"]
    for scenario in document["scenarios"]:
        for place, (name, value) in enumerate((key, value) for key, value in scenario.items() if key != "steps"):
            lines.append(_line(2, name, value, first=not place))
        lines.append("  steps:")
        for step in scenario["steps"]:
            for place, (name, value) in enumerate(step.items()):
                lines.append(_line(4, name, value, first=not place))
        lines.append("")
    return "\n".join(lines)


def _line(indent: int, name: str, value: Any, *, first: bool = False) -> str:
    if isinstance(value, str) and "\n" in value:
        return _keyed(indent, name, json.dumps(value, ensure_ascii=False), first=first)
    written = yaml.dump(
        value, Dumper=Plain, default_flow_style=True, width=WIDTH, sort_keys=False, allow_unicode=True
    ).removesuffix("\n...\n")
    return _keyed(indent, name, written, first=first)


def _keyed(indent: int, name: str, written: str, *, first: bool) -> str:
    lead = " " * max(indent - 2, 0) + ("- " if first else "  ") if indent else ""
    key = yaml.dump(name, Dumper=Plain).removesuffix("\n...\n").strip()
    return lead + key + ": " + written.strip().replace("\n", "\n" + " " * (indent + 2))


class Plain(yaml.CSafeDumper):
    """Without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def record(file: pathlib.Path, admin: Connection, release: str, numbers: itertools.count[int]) -> int:
    document = yaml.load(file.read_text(), Loader)
    kinds = Kinds()
    steps = 0
    for scenario, item in zip(load(file), document["scenarios"], strict=True):
        namespace = f"recorded-{os.getpid()}-{next(numbers)}"
        admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        try:
            for place, (step, answer) in enumerate(played(scenario, admin.connect, namespace, kinds)):
                written = {name: value for name, value in step.items() if name not in ANSWER}
                if release == NEWEST:
                    written |= answer
                else:
                    recorded = {name: step[name] for name in ANSWER if name in step}
                    written.pop(release, None)
                    written |= recorded
                    if json.dumps(recorded) != json.dumps(answer):
                        written[release] = answer
                item["steps"][place] = written
                steps += 1
        except Exception as error:
            raise RuntimeError(f"{file.stem}: {scenario.promise}") from error
        finally:
            admin.ask("DELETE", f"/api/v1/namespaces/{namespace}")
    file.write_text(text(document))
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=pathlib.Path, required=True)
    parser.add_argument("topics", nargs="*")
    options = parser.parse_args()
    with Connection(options.kubeconfig) as admin:
        found = admin.ask("GET", "/version").json
        target.remove(admin)
        target.install(admin)
        numbers = itertools.count()
        try:
            for file in sorted(TOPICS.glob("*.yaml")):
                if not options.topics or file.stem in options.topics:
                    steps = record(file, admin, f"{found['major']}.{found['minor']}", numbers)
                    sys.stdout.write(f"{file.stem}: {steps} steps\n")
        finally:
            target.remove(admin)


if __name__ == "__main__":
    main()
