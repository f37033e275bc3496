"""The man page has every command and flag, and its language is right."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from apiserver.config import config, reference
from apiserver.config.printed import manual


def test_page_has_each_command_example_and_flag() -> None:
    page = manual.page().replace("\\-", "-")
    for command in reference.all_commands():
        assert f".SS sluice {command.name}" in page
        assert all(f"\n{example.line}\n" in page.replace("\\e", "\\") for example in command.examples)
    assert set(re.findall(r"\\fB(-[\w-]+)\\fR", page)) >= {flag.option for flag in config.FLAGS}
    assert set(re.findall(r"environment: (\w+)", page)) == {flag.variable for flag in config.FLAGS}


def test_no_text_is_taken_for_a_request() -> None:
    requests = {line.split()[0] for line in manual.page().splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".nf", ".fi", ".RS", ".RE", ".br", ".ad", ".nh"}


@pytest.mark.parametrize("program", [["groff", "-man", "-ww", "-Tutf8"], ["man", "-l", "--warnings=w", "-"]])
def test_page_is_shown_without_a_warning(program: list[str]) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    shown = subprocess.run(program, input=manual.page().encode(), capture_output=True, check=True)
    assert shown.stderr.decode() == ""
    assert "--secure-port" in re.sub(r".\x08|\x1b\[[0-9;]*m", "", shown.stdout.decode())
