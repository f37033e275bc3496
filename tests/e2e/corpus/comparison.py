"""Results of the corpus's program: the steps that it played, and the differences of failed ones from the recording."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.controlplane import binaries
from tests.e2e.corpus import play

SECONDS = 280.0
FIRST = "1.36"
"""The release that was recorded first."""
_RESULT = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
_HEADING = re.compile(r"(?P<scenario>\S+) #(?P<number>\d+)  (?P<title>.*)")
_SURPLUS = re.compile(r"(?P<scenario>\S+)  surplus step on B: (?P<step>.*)")
_ENDED = re.compile(r"    B ended early, (\d+) steps lost: ")
_MEMBER = re.compile(r"    [-+!] (?P<path>.+?)(?::| ?$)")


@dataclass(frozen=True, order=True)
class Step:
    """One step of one scenario, counted from 1."""

    scenario: str
    number: int

    def __str__(self) -> str:
        return f"{self.scenario} #{self.number}"


@dataclass(frozen=True)
class Failure:
    """How the answer to a step differs."""

    title: str
    lines: Sequence[str]

    @property
    def members(self) -> list[str]:
        """The paths of the members that differ. A step that was not played at all differs in everything, and so does one with the same
        members in another order."""
        return [match["path"] for line in self.lines if (match := _MEMBER.match(line))] or ["."]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one play."""

    steps: Sequence[Step]
    failures: Mapping[Step, Failure]


class Broken(Exception):
    """The program did not do its work; the text is what it said."""


def compare(
    corpus: pathlib.Path,
    kubeconfig: pathlib.Path,
    *,
    group: str,
    core: pathlib.Path | None = None,
    skip: str = "",
    behind: bool = False,
) -> Outcome:
    """Play the scenarios against a server. `core` is the kubeconfig of the server that keeps namespaces and roles, if that is another.
    `behind`: kube-apiserver stands in front of it."""
    recorded = scenarios(corpus, behind=behind)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as golden:
        json.dump({"scenarios": recorded}, golden)
        golden.flush()
        options = {"b-kubeconfig": kubeconfig, "b-group": group, "b-core-kubeconfig": core, "golden": golden.name}
        options |= {"only": _one_of(recorded), "skip": skip}
        command = [sys.executable, play.__file__, str(corpus), "--limit=1000", "--order"]
        command += [f"--{name}={value}" for name, value in options.items() if value]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    played = {name: len(steps) for name, steps in recorded.items() if not (skip and re.search(skip, name))}
    try:
        return read(done.stdout, played)
    except Broken as e:
        raise Broken(f"{e}\n{done.stdout[-4000:]}{done.stderr[-4000:]}") from None


def recording(minor: str = "") -> str:
    """The name of the file with the answers of a Kubernetes release: of the chosen one, if none is named."""
    minor = minor or binaries.minor()
    return "golden.json" if minor == FIRST else f"golden-{minor}.json"


def again(minor: str, *, behind: bool = False) -> pathlib.Path:
    """The file with scenarios that `record.py` recorded again: of a server that stands behind a kube-apiserver, or of any."""
    return pathlib.Path(__file__).with_name(f"{'behind' if behind else 'again'}-{minor}.json")


def scenarios(corpus: pathlib.Path, minor: str = "", *, behind: bool = False) -> dict[str, list[dict[str, Any]]]:
    """The recorded steps of each scenario of the corpus."""
    minor = minor or binaries.minor()
    recorded: dict[str, list[dict[str, Any]]] = json.loads((corpus / recording(minor)).read_text())["scenarios"]
    for file in (again(minor), again(minor, behind=True)) if behind else (again(minor),):
        if file.exists():
            later = json.loads(file.read_text())["scenarios"]
            recorded |= {name: later[name] for name in recorded.keys() & later.keys()}
    return recorded


def _one_of(scenarios: Iterable[str]) -> str:
    """The expression for the recorded scenarios: files of scenarios may make others too."""
    return f"^({'|'.join(map(re.escape, scenarios))})$"


def read(output: str, played: Mapping[str, int]) -> Outcome:
    """From the program's output; `played` are the scenarios and how many steps each has in the recording."""
    result = _RESULT.search(output)
    if result is None:
        raise Broken("no result was printed")
    steps = [Step(name, number) for name, count in played.items() for number in range(1, count + 1)]
    failures: dict[Step, Failure] = {}
    for block in re.split(r"\n\n+(?=\S)", output[: result.start()]):
        heading, *lines = block.strip("\n").split("\n")
        if match := _HEADING.fullmatch(heading):
            first = Step(match["scenario"], int(match["number"]))
            ended = _ENDED.match(lines[0])
            lost = int(ended[1]) if ended else 1
            for number in range(first.number, first.number + lost):
                failures[Step(first.scenario, number)] = Failure(match["title"], lines)
        elif match := _SURPLUS.fullmatch(heading):
            known = [step.number for step in [*steps, *failures] if step.scenario == match["scenario"]]
            surplus = Step(match["scenario"], 1 + max(known, default=0))
            steps.append(surplus)
            failures[surplus] = Failure("surplus step", [f"    + {match['step']}"])
    passed, failed = map(int, result.groups())
    if (passed + failed, failed) != (len(steps), len(failures)):
        raise Broken(
            f"{passed} steps passed and {failed} failed, but {len(failures)} of {len(steps)} were understood as failed"
        )
    return Outcome(steps, failures)
