"""A record of the promises that a real kube-apiserver's own `resource.k8s.io` keeps, by the hashes of their files, for each release.

`make promises` runs all of them against it, and records the files that pass as a whole. `make test` runs only unrecorded files against it:
those that have changed since, or all after a change of the Kubernetes version. The result for an unchanged file would be the same.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.e2e.controlplane import binaries

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = "upstream"
KUBERNETES = "tests/e2e/controlplane/go.mod"
"""The name under which a digest has the chosen release: that of another one stands in `go-<version>.mod`."""
FOLDERS = ("tests/promises/api", "tests/promises/admission", "tests/promises/custom")
PARTS = ("tests/promises/", "tests/fuzz/")
"""Modules below these that a promise uses are part of it. Other modules only start and stop programs."""


class Oracle:
    """The record of the promises below a folder."""

    def __init__(self, root: pathlib.Path = ROOT) -> None:
        self.root = root
        self.file = root / "tests" / "promises" / f"upstream-{binaries.minor()}.json"

    def knows(self, file: pathlib.Path) -> bool:
        """Whether upstream keeps the promises of this file."""
        return self._said.get(self._name(file)) == self.digest(file)

    def unknown(self) -> list[pathlib.Path]:
        """Files of promises that upstream has to be asked about."""
        files = [file for folder in FOLDERS for file in sorted((self.root / folder).glob("test_*.py"))]
        return [file for file in files if not self.knows(file)]

    def note(self, files: Iterable[pathlib.Path]) -> None:
        """Upstream keeps the promises of these files."""
        said = {name: digest for name, digest in self._said.items() if (self.root / name).exists()}
        said.update({self._name(file): self.digest(file) for file in files})
        self.file.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")

    def digest(self, file: pathlib.Path) -> str:
        """Hash a file of promises, everything that it uses, and the version of Kubernetes."""
        parts, rest = set[pathlib.Path](), [file, *file.parent.glob("conftest.py"), *file.parent.rglob("*.yaml")]
        while rest:
            if (part := rest.pop()) not in parts:
                parts.add(part)
                rest += self._uses(part)
        release, chosen = self.root / KUBERNETES, binaries.MODULE.modfile
        if chosen.is_relative_to(ROOT):
            chosen = release.with_name(chosen.name)
        texts = [
            (self._name(part), (chosen if part == release else part).read_text()) for part in sorted({*parts, release})
        ]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    @functools.cached_property
    def _said(self) -> Mapping[str, str]:
        said: dict[str, str] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return said

    def _name(self, file: pathlib.Path) -> str:
        return file.relative_to(self.root).as_posix()

    @functools.cache  # noqa: B019 - as long as the run
    def _uses(self, file: pathlib.Path) -> list[pathlib.Path]:
        """The modules of promises that a module imports."""
        modules = _imported(ast.parse(file.read_text())) if file.suffix == ".py" else ()
        found = (self.root / f"{module.replace('.', '/')}.py" for module in modules)
        return [module for module in found if self._name(module).startswith(PARTS) and module.exists()]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def asks(item: pytest.Item) -> bool:
    """Whether a test asks upstream to keep a promise."""
    return (
        isinstance(item, pytest.Function)
        and getattr(item, "callspec", None) is not None
        and (item.callspec.params.get("target") == TARGET)
    )


# ------------------------------------------------------------------------------------------------------- pytest -p tests.promises.oracle


class Notes:
    """Writes down at the end of a run which files upstream was asked about, wholly and without a failure."""

    def __init__(self) -> None:
        self._left: dict[str, pathlib.Path] = {}
        """By test, what has not passed yet."""
        self._files: set[pathlib.Path] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not any("::" in argument for argument in session.config.args):
            self._left.update({item.nodeid: item.path for item in session.items if asks(item)})
            self._files.update(self._left.values())

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self._left.update({f"{item.nodeid} was not asked": item.path for item in items if asks(item)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and report.passed and not self._failed(report.nodeid):
            self._left.pop(report.nodeid, None)
        elif report.failed and report.nodeid in self._left:
            self._left[f"{report.nodeid} failed"] = self._left[report.nodeid]

    def _failed(self, nodeid: str) -> bool:
        return f"{nodeid} failed" in self._left

    def pytest_sessionfinish(self) -> None:
        if kept := self._files - set(self._left.values()):
            Oracle().note(kept)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Notes())
