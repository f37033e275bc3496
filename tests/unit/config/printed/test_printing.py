"""Texts about the program: what is printed, and the exit codes."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from apiserver import buildinfo
from apiserver.config.printed import printing, versions


@pytest.mark.parametrize("words", [["--version"], ["version"], ["version", "--output=text"]])
def test_version_is_one_line_for_people(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert printing.run(words, {}) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"sluice {buildinfo.version()} (")
    assert platform.python_version() in line


def test_version_is_an_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert printing.run(["version", "-o", "json"], {}) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {
        "version": buildinfo.version(),
        "gitCommit": buildinfo.commit(),
        "gitTreeState": buildinfo.tree_state(),
        "buildDate": buildinfo.build_date(),
        "python": platform.python_version(),
        "platform": facts["platform"],
    }


def test_version_of_a_release_names_commit_and_build_time(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"version": "7.8.9", "commit": "0123456789abcdef" * 2 + "01234567", "built": 1_767_225_600}
    monkeypatch.setattr(buildinfo, "_facts", lambda: built)
    assert versions.text().startswith("sluice 7.8.9 (commit 0123456789ab, built 2026-01-01T00:00:00Z, Python ")
    assert versions.facts()["gitCommit"] == built["commit"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["completion", "tcsh"], "unknown action tcsh: use one of bash, zsh, fish"),
        (["version", "-o", "yaml"], "--output: 'yaml' must be text or json"),
        (["man", "sluice"], "unknown argument sluice"),
        (
            ["version", "--secure-port=1"],
            "unknown argument --secure-port: it is a flag of `sluice dev` and `sluice serve`",
        ),
    ],
)
def test_wrong_words_exit_with_two(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printing.run(words, {}) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"sluice: {error}"


def test_reader_that_closes_its_pipe_causes_no_error() -> None:
    program = [
        sys.executable,
        "-c",
        "from apiserver import cli; import sys; sys.argv = ['sluice', 'man']; sys.exit(cli.main())",
    ]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.close()
        assert writer.stderr is not None
        assert writer.stderr.read() == b""
        assert writer.wait() == 0
