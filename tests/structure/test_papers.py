"""The changelog, the security policy and the templates of .github have their forms, and name what exists."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import yaml

from apiserver.config import config, flags

PROJECT = pathlib.Path(__file__).resolve().parents[2]
GITHUB = PROJECT / ".github"
CHANGELOG = (PROJECT / "CHANGELOG.md").read_text()
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("[0-9]-*.yml"))
OTHER_FLAGS = {"version", "seed", "target"}
"""Flags of argparse, of `make hostile`, and of docker."""

TEXTS = [PROJECT / "CHANGELOG.md", PROJECT / "SECURITY.md", GITHUB / "pull_request_template.md", *FORMS]


def test_changelog_has_the_form_of_keep_a_changelog() -> None:
    versions = re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (Unreleased|\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    assert len(versions) == len(re.findall(r"^## ", CHANGELOG, re.MULTILINE)) > 0
    numbers = [tuple(map(int, version[:3])) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)
    assert [date for *_, date in versions[1:] if date == "Unreleased"] == []
    for entry in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        upgrade, *kinds = re.findall(r"^### (.+)$", entry, re.MULTILINE)
        assert upgrade.startswith("Upgrade from ")
        known = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        assert kinds == [kind for kind in known if kind in kinds]


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.name)
def test_text_names_flags_targets_and_pages_that_exist(file: pathlib.Path) -> None:
    text = file.read_text()
    known = {flag.name for flag in flags.declared(config.Config)} | OTHER_FLAGS
    named = set(re.findall(r"`(?:sluice [\w ]*)?--([a-z][\w-]*)", text))
    assert named - known == set()
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    made = {target for targets in re.findall(r"`make ([a-z0-9 -]+)", text) for target in targets.split()}
    assert made - targets == set()
    pages = set(re.findall(r"(?:[\w-]+/)*[\w-]+\.md\b", text))
    assert {page for page in pages if not (PROJECT / page).is_file()} == set()


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_issue_form_has_what_github_requires(file: pathlib.Path) -> None:
    form: dict[str, Any] = yaml.safe_load(file.read_text())
    assert form.keys() <= {"name", "description", "title", "labels", "assignees", "projects", "type", "body"}
    assert all(isinstance(form[key], str) and form[key] for key in ("name", "description"))
    identifiers = [element["id"] for element in form["body"] if "id" in element]
    assert len(identifiers) == len(set(identifiers))
    assert any(element.get("validations", {}).get("required") for element in form["body"])
    for element in form["body"]:
        assert element.keys() <= {"type", "id", "attributes", "validations"}
        attributes = element["attributes"]
        match element["type"]:
            case "markdown":
                assert attributes.keys() == {"value"}
            case "input" | "textarea":
                assert {"label"} <= attributes.keys() <= {"label", "description", "placeholder", "value", "render"}
                assert element["type"] == "textarea" or "render" not in attributes
            case "dropdown":
                options = attributes["options"]
                assert all(isinstance(option, str) for option in options)
                assert len(options) == len(set(options)) > 1
            case other:
                pytest.fail(f"{other} is no type of an element")


def test_page_names_each_flag_that_changes_without_a_restart() -> None:
    page = (PROJECT / "docs" / "operations.md").read_text()
    listed = page.partition("These flags apply at once:")[2].partition(".")[0]
    live = {flag.name for flag in flags.declared(config.Config) if flag.live}
    assert set(re.findall(r"`([\w-]+)`", listed)) == live


def test_issues_cannot_be_opened_without_a_form() -> None:
    assert FORMS
    assert yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "config.yml").read_text())["blank_issues_enabled"] is False
    assert len({yaml.safe_load(file.read_text())["name"] for file in FORMS}) == len(FORMS)


def test_every_file_has_an_owner_and_every_pattern_a_file() -> None:
    lines = [line.split() for line in (GITHUB / "CODEOWNERS").read_text().splitlines() if not line.startswith("#")]
    assert lines[0][0] == "*"
    for pattern, *owners in lines:
        assert owners
        assert all(re.fullmatch(r"@[\w-]+(/[\w-]+)?|[^@\s]+@[^@\s]+", owner) for owner in owners)
        assert pattern == "*" or (PROJECT / pattern.strip("/")).exists(), pattern
