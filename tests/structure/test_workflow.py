"""Checks of .github/workflows that need no machines of GitHub."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FILE = PROJECT / ".github" / "workflows" / "ci.yaml"
WORKFLOW: dict[Any, Any] = yaml.safe_load(FILE.read_text())
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_every_action_is_named_by_its_commit() -> None:
    named = re.findall(r"uses: (\S+)(.*)", FILE.read_text())
    assert len(named) == sum("uses" in step for step in STEPS)
    for action, comment in named:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    assert len({action.partition("@")[0] for action, _ in named}) == len({action for action, _ in named})


def test_workflow_runs_make_targets_including_test_and_kind() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    made = {word for step in STEPS for word in re.findall(r"^make (\S+)$", step.get("run", ""))}
    assert made == {"test", "test-releases", "e2e-kind", "wheels"}
    assert made <= targets


def test_the_image_is_built_by_stages_that_the_dockerfile_has() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", (PROJECT / "Dockerfile").read_text(), re.MULTILINE))
    builds = [step["run"] for step in STEPS if step.get("run", "").startswith("docker build")]
    assert builds
    assert {stage for run in builds for stage in re.findall(r"--target (\S+)", run)} <= stages


def test_a_job_may_only_read_and_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert "permissions" not in job


def test_kind_is_as_new_as_its_page_asks() -> None:
    [version] = [step["with"]["version"] for step in STEPS if "kind-action" in step.get("uses", "")]
    [least] = re.findall(r"\[kind\]\S+ (0\.\d+) or newer", (PROJECT / "tests/e2e/kind/README.md").read_text())
    assert version.removeprefix("v").startswith(f"{least}.")
