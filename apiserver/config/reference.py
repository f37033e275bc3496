"""The commands with their flags, for programs that write about them: completion, the man page, the reference of the handbook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apiserver.config import commands, config, topics
from apiserver.config.commands import Example
from apiserver.config.flags import Flag


@dataclass(frozen=True, slots=True)
class Topic:
    """Flags of one subject, in the order of their declaration."""

    title: str
    flags: Sequence[Flag]


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or one action of a command. `arguments` is the placeholder of the words behind it."""

    word: str
    """The command itself, for `Flag.default_for`."""
    action: str
    """"" for a command without actions."""
    summary: str
    arguments: str
    examples: Sequence[Example]
    topics: Sequence[Topic]

    @property
    def name(self) -> str:
        """The words after `sluice`."""
        return f"{self.word} {self.action}".rstrip()

    @property
    def flags(self) -> list[Flag]:
        return [flag for topic in self.topics for flag in topic.flags]


def all_commands() -> Iterator[Command]:
    """Yield each command, or each of its actions, in the order of the help."""
    for word, summary in commands.SUMMARY.items():
        for action, does in commands.ACTIONS.get(word, {"": summary}).items():
            yield Command(
                word=word,
                action=action,
                summary=does,
                arguments=_arguments(word, action),
                examples=commands.examples(word, action),
                topics=by_topic(taken(word, action)),
            )


def taken(word: str, action: str = "") -> list[Flag]:
    """Return the flags of a command. `action` "" stands for all of its actions."""
    return [
        flag
        for flag in config.FLAGS
        if word in flag.commands and (not action or not flag.actions or action in flag.actions)
    ]


def by_topic(flags: Sequence[Flag]) -> list[Topic]:
    """Return flags by their topics, in the order of the help."""
    titles = sorted(dict.fromkeys(flag.topic for flag in flags), key=topics.place)
    return [Topic(title, [flag for flag in flags if flag.topic == title]) for title in titles]


def _arguments(word: str, action: str) -> str:
    if word == commands.STORE and action in commands.FILE_ACTIONS:
        return "FILE|-"
    return "PACKAGE|FILE|DIR ..." if word == commands.PACKAGES else ""
