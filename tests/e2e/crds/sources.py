"""Find the CustomResourceDefinitions that public projects ship: in the modules of a Go module cache, and in other folders."""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_SEPARATOR = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_KIND = re.compile(r"^kind: [\"']?CustomResourceDefinition[\"']?\s*$", re.MULTILINE)
_V1 = re.compile(r"^apiVersion: [\"']?apiextensions\.k8s\.io/v1[\"']?\s*$", re.MULTILINE)
_METADATA = re.compile(r"^metadata:[ ]*\n((?:[ ]+.*\n)+)", re.MULTILINE)
_NAME = re.compile(r"^[ ]+name: [\"']?([^\s\"']+)", re.MULTILINE)
_TEMPLATE = re.compile(r"^[ ]*(?:[\w-]+: *)?\{\{", re.MULTILINE)
_MODULE = re.compile(r"(?P<path>.+?)@(?P<version>[^/]+)/")


@dataclass(frozen=True)
class File:
    """The text of one definition, as a file of a project has it."""

    name: str
    path: pathlib.Path
    text: str

    @property
    def group(self) -> str:
        return self.name.partition(".")[2]


@dataclass
class Project:
    """A Go module or a folder. It has the longest of several texts of a definition: others are cut for tests."""

    name: str
    files: dict[str, File] = field(default_factory=dict)
    """By the names of the definitions."""

    def add(self, file: File) -> None:
        if file.name not in self.files or len(file.text) > len(self.files[file.name].text):
            self.files[file.name] = file


def once(projects: Iterable[Project]) -> list[Project]:
    """Leave each definition to one of the projects that ship it: the one in which its group has the largest share."""
    shares: dict[str, tuple[float, str]] = {}
    projects = list(projects)
    for project in projects:
        groups = collections.Counter(file.group for file in project.files.values())
        for name, file in project.files.items():
            shares[name] = max(shares.get(name, (0.0, "")), (groups[file.group] / len(project.files), project.name))
    for project in projects:
        project.files = {name: file for name, file in project.files.items() if shares[name][1] == project.name}
    return [project for project in projects if project.files]


def of_modules(cache: pathlib.Path, modules: Iterable[pathlib.Path] = ()) -> list[Project]:
    """Return the projects of a module cache: of each module the newest version there. `modules` are folders in it: only these."""
    found: dict[str, Project] = {}
    newest: dict[str, tuple[list[int], str]] = {}
    for path in _paths(list(modules) or [cache]):
        place = _MODULE.match(path.relative_to(cache).as_posix())
        if place is None:
            continue
        name, version = place["path"], place["version"]
        order = ([int(number) for number in re.findall(r"\d+", version)[:3]], version)
        if name in newest and order < newest[name]:
            continue
        if name not in newest or order > newest[name]:
            newest[name] = order
            found[name] = Project(f"{name}@{version}")
        _add(found[name], path)
    return _filled(found.values())


def of_folder(folder: pathlib.Path) -> list[Project]:
    """Return the files of a folder as one project."""
    project = Project(folder.name)
    for path in _paths([folder]):
        _add(project, path)
    return _filled([project])


def _filled(projects: Iterable[Project]) -> list[Project]:
    return sorted((project for project in projects if project.files), key=lambda project: project.name)


def _paths(folders: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    names = ["--include=*.yaml", "--include=*.yml"]
    command = ["grep", "-rlE", *names, "^kind: [\"']?CustomResourceDefinition", *map(str, folders)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [pathlib.Path(line) for line in sorted(found.stdout.splitlines())]


def _add(project: Project, path: pathlib.Path) -> None:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    for document in _documents(text):
        if (metadata := _METADATA.search(document)) and (named := _NAME.search(metadata[1])):
            project.add(File(named[1], path, document))


def _documents(text: str) -> Iterator[str]:
    """Yield the definitions of a file, without templates of charts."""
    for document in _SEPARATOR.split(text):
        if _KIND.search(document) and _V1.search(document) and not _TEMPLATE.search(document):
            yield document.strip("\n") + "\n"
