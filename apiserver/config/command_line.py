"""Split the command line into words, print the help, and say what is wrong with unknown words. Knows no flag."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from apiserver.config import flags, suggestions, topics
from apiserver.config.commands import (
    ACTIONS,
    COMPLETION,
    FILE_ACTIONS,
    MAN,
    PACKAGES,
    PRINTED,
    STORE,
    SUMMARY,
    Example,
    examples,
)
from apiserver.config.flags import ConfigError, Flag

HELP, VERSION = ("-h", "--help"), "--version"
GATES = "feature-gates"
"""The flag whose help lists the feature gates."""
NARROWED = (STORE, COMPLETION)
"""The commands whose actions have a help of their own."""
ENVIRONMENT = "Each flag also reads the environment variable in brackets; the command line wins."


def split(argv: Sequence[str], known: Sequence[Flag], *, gates: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the words by name, and the unknown ones. `gates` are the lines about feature gates in the help.

    Raises ConfigError for an unknown command or action. `--help` and `--version` print and exit; so does an incomplete command.
    """
    _check_first(argv, known)
    asked = [*argv, "--help"] if list(argv) in ([], *([command] for command in ACTIONS)) else list(argv)
    words, unknown = parser(known, gates=gates, action=_action(argv)).parse_known_args(asked)
    if words.command == PACKAGES:
        unknown = _take_checked(words, unknown)
    if getattr(words, "action", "") in FILE_ACTIONS:
        unknown = _take_file(words, unknown)
    return words, unknown


def parser(known: Sequence[Flag], *, gates: Sequence[str] = (), action: str = "") -> flags.Parser:
    """Make the parser. `action` limits the help of `store` to the flags of one action, "" shows all."""
    made = flags.Parser(
        prog="sluice",
        description="A Kubernetes aggregated API server that keeps its objects in Redis Streams.",
        epilog=f"{_shown(examples('dev')[:1])}\n\nUse `sluice COMMAND --help` for the flags of a command.",
        allow_abbrev=False,
    )
    made.add_argument(VERSION, action="store_true", help="print the version, and exit")
    commands = made.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=flags.Parser
    )
    for command, summary in SUMMARY.items():
        asked = action if command in NARROWED else ""
        shown = ACTIONS.get(command, {}).get(asked, summary)
        sub = commands.add_parser(
            command,
            usage=_usage(command, asked),
            help=summary,
            description=f"{shown[0].upper()}{shown[1:]}.",
            allow_abbrev=False,
            epilog="\n\n".join([*([] if command in PRINTED else [ENVIRONMENT]), _shown(examples(command, asked))]),
        )
        _offer_arguments(sub, command, asked)
        for offered in sorted(known, key=lambda flag: topics.place(flag.topic)):
            if command in offered.commands:
                lines = gates if offered.name == GATES else ()
                sub.offer(offered, command, action=asked if command in NARROWED else None, choices=lines)
    return made


def _usage(command: str, asked: str) -> str:
    """Return the form of the command line. It names no flag: there are too many."""
    words = ["sluice", command, asked, "[-h]"]
    if command in NARROWED and not asked:
        words.append("|".join(ACTIONS[command]))
    if command == STORE and asked in FILE_ACTIONS:
        words.append("FILE|-")
    if command == PACKAGES:
        words.append("check PACKAGE|FILE|DIR ...")
    flags_taken = [] if command in (COMPLETION, MAN) else ["[FLAGS]"]
    return " ".join([*filter(None, words), *flags_taken])


def _offer_arguments(sub: flags.Parser, command: str, asked: str) -> None:
    """Accept the words behind a command that are no flags."""
    if command in NARROWED:
        names = tuple(ACTIONS[command])
        sub.add_argument("action", choices=names, metavar="|".join(names), help=argparse.SUPPRESS if asked else None)
    if command == STORE and asked in ("", *FILE_ACTIONS):
        sub.add_argument("file", nargs="?", metavar="FILE|-", help=f"{', '.join(FILE_ACTIONS)}: a backup; - is a pipe")
    if command == PACKAGES:
        sub.add_argument("action", choices=tuple(ACTIONS[PACKAGES]), metavar="check")
        sub.add_argument(
            "checked",
            nargs="*",
            metavar="PACKAGE|FILE|DIR",
            help="module with kinds, as --kinds names it, or CustomResourceDefinitions, as --crds names them",
        )


def _shown(some: Sequence[Example]) -> str:
    """Return the examples as kubectl shows them."""
    return "Examples:\n" + "\n\n".join(f"  # {each.does}\n  {each.line}" for each in some)


# ---------------------------------------------------------------------------------------------------------------- unknown words


def _check_first(argv: Sequence[str], known: Sequence[Flag]) -> None:
    """Raise ConfigError if a flag stands where a command must stand."""
    first = argv[0].partition("=")[0] if argv else ""
    if not first.startswith("-") or first in (*HELP, VERSION):
        return
    takers = _takers(first, known)
    if takers:
        raise ConfigError([f"{first} must stand behind a command: sluice {takers[0]} {first}"])
    raise ConfigError([f"unknown argument {first}{suggestions.question(first, [*HELP, VERSION, *_options(known)])}"])


def unknown(word: str, command: str, known: Sequence[Flag]) -> str:
    """Return the error about an unknown word of a command. It never shows the value of a flag, because that may be a password."""
    if not word.startswith("-"):
        return f"unknown argument {_PASSWORD.sub('//…@', word)}"
    name = word.partition("=")[0]
    if takers := _takers(name, known):
        return f"unknown argument {name}: it is a flag of {' and '.join(f'`sluice {taker}`' for taker in takers)}"
    own = [flag for flag in known if command in flag.commands]
    return f"unknown argument {name}{suggestions.question(name, [*HELP, *_options(own)])}"


_PASSWORD = re.compile("//[^/]*@")
"""User and password of a URL."""


def _options(known: Sequence[Flag]) -> Iterator[str]:
    for flag in known:
        yield flag.option
        if flag.switch:
            yield f"--no-{flag.name}"


def _takers(option: str, known: Sequence[Flag]) -> tuple[str, ...]:
    """Return the commands that have a flag."""
    return next((flag.commands for flag in known if option in _options([flag])), ())


# ---------------------------------------------------------------------------------------------------------------- words


def _take_checked(words: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Turn what `kinds check` names into --kinds and --crds, and return the rest of `unknown`. argparse does not see words after a flag."""
    behind = [word for word in unknown if not word.startswith("-")]
    named = [*words.checked, *behind]
    for flag_, chosen in (
        ("kinds", [word for word in named if not _is_file(word)]),
        ("crds", [word for word in named if _is_file(word)]),
    ):
        if chosen:
            setattr(words, flag_, [*(getattr(words, flag_) or ()), *chosen])
    return [word for word in unknown if word not in behind]


def _take_file(words: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Take the file of an action out of `unknown`, where argparse leaves it when it stands behind a flag. Return the rest."""
    behind = [word for word in unknown if word == "-" or not word.startswith("-")]
    if words.file is None and behind:
        words.file = behind[0]
        unknown = [*unknown]
        unknown.remove(behind[0])
    return unknown


_SUFFIXES = (".json", ".yaml", ".yml")


def _is_file(word: str) -> bool:
    """Return whether a word names a file or folder of definitions, not a package."""
    return "/" in word or _is_definitions(word) or any(_is_definitions(each.name) for each in _listed(Path(word)))


def _is_definitions(name: str) -> bool:
    return name.removesuffix(".gz").endswith(_SUFFIXES)


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _action(argv: Sequence[str]) -> str:
    """Return the action of a command whose actions have a help, "" if it is missing."""
    known = ACTIONS[argv[0]] if argv and argv[0] in NARROWED else {}
    return next((word for word in argv if word in known), "")


def help_for(argv: Sequence[str]) -> str:
    """Return the command that lists the relevant flags, or the commands."""
    command = argv[0] if argv and argv[0] in SUMMARY else ""
    return " ".join(filter(None, ("sluice", command, _action(argv), "--help")))
