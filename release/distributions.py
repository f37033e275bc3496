"""Source distributions and wheels: one of the product, and one of each engine.

A checkout is one project, so that one command installs it. A release is several: programs can use an engine without the server. They
require each other in exactly this version, because `kubecel`, `kubetext` and `structuredmerge` change together with the server.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from release.checkout import Release

PRODUCT = "sluice-apiserver"
PREFIX = "sluice-"
"""In front of an engine's name: the name of its distribution, which nobody else has."""

Table = dict[str, Any]


def build(tree: pathlib.Path, release: Release, work: pathlib.Path, out: pathlib.Path) -> None:
    """Build everything from a staged tree into `out`. `work` is an empty folder for the projects.

    The installed build backend works without isolation, as it does for the image: the lock file fixes its version.
    """
    settings = tomllib.loads((tree / "pyproject.toml").read_text())
    for name, project in projects(settings, release).items():
        folder = work / name
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text("\n".join(toml(project)) + "\n")
        shutil.copy2(tree / "LICENSE", folder)
        packages: Sequence[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        for package in packages:
            shutil.copytree(tree / package, folder / package)
        readme = tree / "README.md" if name == PRODUCT else tree / packages[0] / "README.md"
        shutil.copy2(readme, folder / "README.md")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out)]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(release.built)}
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"hatchling could not build {name}:\n{done.stdout}{done.stderr}")


def projects(settings: Table, release: Release) -> dict[str, Table]:
    """Return the pyproject.toml of each distribution, by its name. `settings` is that of the checkout."""
    product: Table = {
        "build-system": settings["build-system"],
        "project": copy.deepcopy(settings["project"]),
        "tool": {"hatch": copy.deepcopy(settings["tool"]["hatch"])},
    }
    third = {_name(requirement): requirement for requirement in product["project"]["dependencies"]}
    engines: Mapping[str, Table] = settings["tool"]["sluice"]["engines"]
    pins = {engine: f"{PREFIX}{engine}=={release.version}" for engine in engines}
    targets = product["tool"]["hatch"]["build"]["targets"]
    own = [package for package in targets["wheel"]["packages"] if package not in engines]
    product["project"]["dependencies"] += sorted(pins.values())
    targets["wheel"]["packages"] = own
    targets["sdist"]["include"] = [*(f"/{package}" for package in own), "/LICENSE"]
    made = {PRODUCT: product}
    for engine, declared in engines.items():
        head = {key: product["project"][key] for key in ("requires-python", "license", "license-files")}
        project = {
            "name": f"{PREFIX}{engine}",
            "version": release.version,
            "description": declared["description"],
            "readme": "README.md",
            **head,
            "dependencies": [pins.get(name) or third[name] for name in declared["dependencies"]],
        }
        packages = {"wheel": {"packages": [engine]}, "sdist": {"include": [f"/{engine}", "/LICENSE"]}}
        made[f"{PREFIX}{engine}"] = {
            "build-system": settings["build-system"],
            "project": project,
            "tool": {"hatch": {"build": {"targets": packages}}},
        }
    return made


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0]


def toml(table: Table, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Write tables as lines of TOML. Texts, lists, numbers and truth values look as in JSON."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if plain:
        yield f"[{'.'.join(path)}]"
    for key, value in plain.items():
        yield f"{json.dumps(key)} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from toml(value, (*path, json.dumps(key)))
