"""The promises of tests/promises, asked of kube-apiserver's own resource.k8s.io."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from tests.e2e.next.differences import Difference, shown, topic_of_promise
from tests.promises.oracle import FOLDERS, ROOT, TARGET

LINES = 6
"""Lines of a failure that are shown."""


class Broken(Exception):
    """pytest did not run the promises; the text is what it said."""


def ask(folder: pathlib.Path) -> Iterator[Difference]:
    """Ask a kube-apiserver of the chosen version about every promise, and yield those that it does not keep."""
    report = folder / "promises.xml"
    command = [sys.executable, "-m", "pytest", "-q", *FOLDERS, "--target", TARGET, "-k", TARGET, f"--junitxml={report}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not report.exists():
        raise Broken(done.stdout[-4000:] + done.stderr[-4000:])
    yield from read(report.read_text())


def read(report: str) -> Iterator[Difference]:
    """Yield the failed tests of a report in JUnit's format."""
    for test in ET.fromstring(report).iter("testcase"):
        if (failed := test.find("failure")) is None and (failed := test.find("error")) is None:
            continue
        file = f"{test.get('classname', '').replace('.', '/')}.py"
        said = [line for line in (failed.get("message") or "").splitlines() if line.strip()]
        name = f"{file.removeprefix('tests/promises/')}::{test.get('name')}"
        yield Difference(topic_of_promise(file), name, [shown(line) for line in said[:LINES]])
