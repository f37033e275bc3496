"""Serve the CustomResourceDefinitions that public projects ship from kube-apiserver and from Sluice, and compare every answer.

`python -m tests.e2e.crds [--from DIR] [--seed N] [--objects N] [--only NAME] [--write]`. Without `--from`, the definitions are those in the
Go module cache. `--write` puts the table into `docs/crds.md`.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.e2e.controlplane import binaries, plane
from tests.e2e.controlplane.connection import Connection
from tests.e2e.crds import objects
from tests.fixtures.server import Reply, dev_server

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "crds.md"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPROVED = "api-approved.kubernetes.io"
BLANKED = ("uid", "creationTimestamp", "resourceVersion", "time")
NAMESPACE = "tour"
Object = dict[str, Any]


def module_cache() -> pathlib.Path:
    return pathlib.Path(binaries.run_go("env", "GOMODCACHE", folder=binaries.MODULE.folder).strip())


def definitions(folder: pathlib.Path) -> Iterator[tuple[str, Object]]:
    """Each definition once, with the project that ships it."""
    found = subprocess.run(
        ["grep", "-rlE", "--include=*.yaml", "--include=*.yml", "^kind: CustomResourceDefinition", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    seen = set[str]()
    for name in sorted(found.stdout.splitlines()):
        try:
            documents = list(yaml.load_all(pathlib.Path(name).read_text(), yaml.CBaseLoader))
        except (yaml.YAMLError, UnicodeDecodeError):
            continue  # templates of charts
        # The rest of a file with a template in it is no definition.
        if not all(isinstance(document, dict | None) for document in documents):
            continue
        for document in yaml.load_all(pathlib.Path(name).read_text(), yaml.CSafeLoader):
            if not (document and document.get("kind") == "CustomResourceDefinition"):
                continue
            title = document.get("metadata", {}).get("name", "")
            if document.get("apiVersion") == "apiextensions.k8s.io/v1" and title and title not in seen:
                seen.add(title)
                document.get("spec", {}).pop("conversion", None)
                document["metadata"].setdefault("annotations", {}).setdefault(APPROVED, "unapproved, for tests")
                document.pop("status", None)
                yield pathlib.Path(name).relative_to(folder).as_posix().split("@")[0], document


def blanked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: "" if name in BLANKED else blanked(member) for name, member in value.items() if name != "continue"
        }
    if isinstance(value, list):
        return [blanked(member) for member in value]
    return value


def seen(reply: Reply) -> tuple[int, list[str], Any]:
    """The compared parts: code, warnings and body."""
    body = blanked(reply.json) if reply.headers.get("Content-Type", "").startswith("application/json") else reply.text
    if isinstance(body, dict) and isinstance(body.get("details"), dict):
        # Several errors of a schema come in the order of Go's maps.
        body["details"].get("causes", []).sort(key=str)
        if len(body["details"].get("causes", [])) > 1:
            body["message"] = "".join(sorted(body["message"]))
    return reply.status, reply.headers.get_all("Warning") or [], body


def requests(
    definition: Object, draw: random.Random, count: int
) -> Iterator[tuple[str, str, str, Any, dict[str, str]]]:
    """Topic, method, path, body and headers of each step."""
    spec = definition["spec"]
    scope = f"/namespaces/{NAMESPACE}" if spec["scope"] == "Namespaced" else ""
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        path = f"/apis/{spec['group']}/{version['name']}{scope}/{spec['names']['plural']}"
        for number in range(count):
            name = f"o{number}-{version['name']}"
            typed = {"apiVersion": f"{spec['group']}/{version['name']}", "kind": spec["names"]["kind"]}
            drawn = objects.value(schema, draw)
            body = {**(drawn if isinstance(drawn, dict) else {}), **typed, "metadata": {"name": name}}
            yield "create", "POST", path, body, {}
            yield "get", "GET", f"{path}/{name}", None, {}
            yield "spoil", "POST", path, objects.spoiled(body, draw) | {"metadata": {"name": f"{name}-s"}}, {}
            change = objects.spoiled(body, draw)
            yield (
                "merge patch",
                "PATCH",
                f"{path}/{name}",
                {"spec": change.get("spec")},
                {"Content-Type": "application/merge-patch+json"},
            )
            yield (
                "apply",
                "PATCH",
                f"{path}/{name}-a?fieldManager=tour&force=true",
                body | {"metadata": {"name": f"{name}-a"}},
                {"Content-Type": "application/apply-patch+yaml"},
            )
        yield "list", "GET", path, None, {}
        yield "table", "GET", path, None, {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def loaded(folder: pathlib.Path, only: str, admin: Connection) -> Iterator[tuple[str, Object]]:
    for project, definition in definitions(folder):
        name = definition["metadata"]["name"]
        if only in name and admin.ask("POST", f"{DEFINITIONS}?dryRun=All", definition).status == 201:
            yield project, definition


def _answers(admin: Connection, path: str) -> bool:
    return bool(admin.ask("GET", path).status == 200)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=34)
    parser.add_argument("--objects", type=int, default=3, help="objects of each version")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    folder = options.folder or module_cache()
    steps, alike = collections.Counter[str](), collections.Counter[str]()
    codes = collections.Counter[str]()
    examples: dict[str, str] = {}
    refused: list[str] = []
    with (
        tempfile.TemporaryDirectory() as made,
        plane.ControlPlane(pathlib.Path(made) / "plane") as cluster,
        cluster.connect() as admin,
    ):
        admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        taken = list(loaded(folder, options.only, admin))
        files = pathlib.Path(made) / "crds"
        files.mkdir()
        for _, definition in taken:
            name = definition["metadata"]["name"]
            file = files / f"{name}.yaml"
            file.write_text(yaml.safe_dump(definition))
            command = [sys.executable, "-m", "apiserver", "kinds", "check", str(file)]
            checked = subprocess.run(command, capture_output=True, text=True, check=False)
            if checked.returncode:
                refused.append(f"{name}: {(checked.stdout + checked.stderr)[-300:]}")
                file.unlink()
        with dev_server(pathlib.Path(made), f"--crds={files}") as server, Connection(server.kubeconfig) as sluice:
            for _, definition in taken:
                name = definition["metadata"]["name"]
                if not (files / f"{name}.yaml").exists():
                    continue
                admin.ask("POST", DEFINITIONS, definition)
                asked = list(requests(definition, random.Random(f"{options.seed} {name}"), options.objects))
                for path in {path for topic, _, path, _, _ in asked if topic == "list"}:
                    plane.until(functools.partial(_answers, admin, path), f"{path} is served")
                for topic, method, path, body, headers in asked:
                    theirs, ours = (seen(side.ask(method, path, body, headers=headers)) for side in (admin, sluice))
                    steps[topic] += 1
                    codes[f"{topic} {theirs[0]} {ours[0]}"] += 1
                    if theirs == ours:
                        alike[topic] += 1
                    else:
                        examples.setdefault(topic, f"{method} {path}\n  expected {theirs}\n  got {ours}"[:3000])
                admin.ask("DELETE", f"{DEFINITIONS}/{name}")
    report(taken, refused, steps, alike, examples, write=options.write, seed=options.seed)
    sys.stdout.write(f"\ncodes of kube-apiserver: {dict(codes)}\n")
    return 0 if not refused and alike.total() >= 0.98 * steps.total() else 1


def report(
    taken: list[tuple[str, Object]],
    refused: list[str],
    steps: Mapping[str, int],
    alike: Mapping[str, int],
    examples: Mapping[str, str],
    *,
    write: bool,
    seed: int,
) -> None:
    projects = len({project for project, _ in taken})
    lines = [
        (
            f"kube-apiserver {binaries.version()} takes {len(taken)} definitions of {projects} projects. "
            f"Sluice takes {len(taken) - len(refused)} of them. The seed is {seed}."
        ),
        "",
        "| request | steps | alike |",
        "|---|---|---|",
        *(f"| {topic} | {count} | {alike[topic]} |" for topic, count in steps.items()),
        f"| all | {sum(steps.values())} | {sum(alike.values())} |",
    ]
    table = "\n".join(lines) + "\n"
    sys.stdout.write(table)
    for text in itertools.chain(refused, (f"{topic}: {text}" for topic, text in examples.items())):
        sys.stdout.write(f"\n{text}\n")
    if write:
        PAGE.write_text(
            "# CustomResourceDefinitions of public projects\n\n"
            "`python -m tests.e2e.crds --write` generates this page (`tests/e2e/crds`).\n\n" + table
        )


if __name__ == "__main__":
    sys.exit(main())
