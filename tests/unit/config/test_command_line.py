"""The help by topics, its examples, and errors about unknown words."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator

import pytest

from apiserver.config import command_line, commands, config, reference, suggestions, topics

EXAMPLES = [(name, example.line) for name, some in commands.EXAMPLES.items() for example in some]
MISSING_FILES = ("there is no file", "there is no module", "outside a pod ")
"""Errors about the reader's machine, which the examples cannot know."""


def errors(*argv: str) -> list[str]:
    with pytest.raises(config.ConfigError) as caught:
        config.parse(argv, {})
    return caught.value.errors


def help_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        config.parse([*argv, "--help"], {})
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["serv"], "unknown command serv: did you mean serve?"),
        (["stroe", "init"], "unknown command stroe: did you mean store?"),
        (["xyz"], f"unknown command xyz: use one of {', '.join(commands.SUMMARY)}"),
        (["store", "inti"], "unknown action inti: did you mean init?"),
        (["kinds", "chekc"], "unknown action chekc: did you mean check?"),
        (["--verison"], "unknown argument --verison: did you mean --version?"),
        (["--secure-port=1", "dev"], "--secure-port must stand behind a command: sluice dev --secure-port"),
        (["dev", "--secure-prot=1"], "unknown argument --secure-prot: did you mean --secure-port?"),
        (["dev", "-secure-port=1"], "unknown argument -secure-port: did you mean --secure-port?"),
        (["dev", "--no-sample"], "unknown argument --no-sample: did you mean --no-samples?"),
        (["dev", "--zzz"], "unknown argument --zzz"),
        (
            ["dev", "--allow-volatile"],
            "unknown argument --allow-volatile: it is a flag of `sluice serve` and `sluice store` and `sluice doctor`",
        ),
    ],
)
def test_unknown_word_gets_the_name_that_was_probably_meant(argv: list[str], error: str) -> None:
    assert errors(*argv) == [error]


def test_error_about_an_unknown_word_shows_no_password() -> None:
    told = errors("dev", "--redis-ulr=redis://u:hunter2@h", "redis://u:hunter2@h", "--redis-url=redis://u:hunter2@h")
    assert len(told) == 3
    assert "hunter2" not in " ".join(told)


def test_long_unknown_word_costs_little() -> None:
    began = time.process_time()
    assert suggestions.question("--" + "secure-port" * 100_000, command_line._options(config.FLAGS)) in (
        "",
        ": did you mean --secure-port?",
    )
    assert time.process_time() - began < 2


@pytest.mark.parametrize("command", commands.SUMMARY)
def test_help_lists_each_flag_under_its_topic_and_ends_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = help_of(capsys, command)
    headings = [line for line in shown.splitlines() if line.endswith(" flags:")]
    assert headings == [f"{topic.title} flags:" for topic in reference.by_topic(reference.taken(command))]
    for topic in reference.by_topic(reference.taken(command)):
        block = shown.split(f"\n{topic.title} flags:\n")[1].split("\n\n")[0]
        listed = [line.split()[:3] for line in block.splitlines() if line.startswith("  -")]
        assert [flag.option in words for flag, words in zip(topic.flags, listed, strict=True)] == [True] * len(listed)
    last = shown.rstrip().rpartition("Examples:\n")[2].splitlines()
    assert all(line.startswith("  ") or not line for line in last)
    assert len(shown.splitlines()[0]) < 150


def test_every_topic_is_known_and_has_flags() -> None:
    assert {flag.topic for flag in config.FLAGS} | {topics.MISC} == {*topics.ORDER}


def _pipeline(line: str) -> Iterator[list[str]]:
    """Yield the words of each `sluice` in a line of shell."""
    for part in re.split(r" [|>] |[()]", re.sub("'[^']*'", "", line)):
        words = shlex.split(part)
        if words[:1] == ["sluice"]:
            yield words[1:]


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_example_is_a_valid_command_line_of_its_command(name: str, line: str) -> None:
    [argv] = _pipeline(line)
    reading = config.read(argv, {})
    assert f"{reading.config.command} {reading.config.action}".strip() == name
    assert [error for error in reading.errors if not any(text in error for text in MISSING_FILES)] == []


def test_reference_has_each_flag_of_each_command_once() -> None:
    listed = [(command.name, flag.name) for command in reference.all_commands() for flag in command.flags]
    assert len(set(listed)) == len(listed)
    assert {(name.split()[0], flag) for name, flag in listed} == {
        (command, flag.name) for flag in config.FLAGS for command in flag.commands
    }
    assert all(command.summary and command.examples for command in reference.all_commands())


def test_examples_belong_to_commands() -> None:
    assert {*commands.EXAMPLES} == {command.name for command in reference.all_commands()}
