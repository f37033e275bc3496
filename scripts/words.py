"""Count wording that `scripts/words.toml` forbids, and compare each package with its budget: `python scripts/words.py --help`.

Counted are docstrings, comments, log messages, help texts of flags and metrics, pages (`*.md`) and names of tests. Private nouns are
also counted in names of variables, functions and classes. Text in backquotes or quotation marks is code or a quotation: not counted.

A budget may only fall: the check fails above it, and also below it, until `--write` has lowered it.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROJECT = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = PROJECT / "scripts" / "words.toml"
HEADING = "\n[budget]\n"

# Strings and comments in the order of the source: so a `#` in a string opens no comment, and a quote in a comment opens no string.
TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
    | \"\"\"(?P<long>[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*)\"\"\"
    | '''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''
    | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
    | '[^'\\\n]*(?:\\.[^'\\\n]*)*'
    """,
    re.VERBOSE | re.DOTALL,
)
START = "¶ "
"""In front of each text, so that a pattern can ask for its beginning."""
ARGUMENT = frozenset("(,[={+%")
"""Behind one of these, a string at the start of a line is an argument and no docstring."""
SHOWN = re.compile(
    r"""(?:logger\.\w+\(|(?:text|help|description|epilog)=|(?:Counter|Gauge|Histogram|Summary)\(\s*"\w+",)\s*"""
    r"""((?:f?"[^"\\\n]*(?:\\.[^"\\\n]*)*"\s*)+)"""
)
"""Log messages, help texts of flags, help texts of metrics."""
JOINT = re.compile(r'"\s*f?"')
TEST = re.compile(r"def test_(\w+)")
FENCE = re.compile(r"^( *)```.*?^\1```|^#[^\n]*", re.MULTILINE | re.DOTALL)
"""Blocks of code and headings of a page."""
PARAGRAPH = re.compile(r"(?:\A|\n)\s*(?:[*-] |\d+\. )?(.+?)(?=\n\s*\n|\n\s*(?:[*|-]|\d+\.) ?|\s*\Z)", re.DOTALL)
QUOTED = re.compile(r"``.*?``|`[^`]*`|\"[^\"]*\"|\]\([^)\s]*\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of wording, and what to write instead."""

    regex: re.Pattern[str]
    instead: str
    nouns: tuple[str, ...] = ()
    """Words that programs may not use in names either."""
    packages: tuple[str, ...] = ()
    """The only packages where it counts; empty for all."""

    @classmethod
    def of_nouns(cls, nouns: Sequence[str], instead: str, packages: Sequence[str] = ()) -> Pattern:
        """Matches nouns and verbs in `snake_case`, `CamelCase` and prose, in each of their forms."""
        small, large = "|".join(nouns), "|".join(map(str.capitalize, nouns))
        regex = rf"(?:(?<![A-Za-z])(?:{small})|(?:{large}))(?:s|es|d|r|rs)?(?![a-z])"
        return cls(re.compile(regex), instead, tuple(nouns), tuple(packages))


@dataclass(frozen=True, slots=True)
class Finding:
    """One place, with the advice of its pattern."""

    path: pathlib.Path
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: {self.instead}"


def program_texts(source: str) -> Iterator[tuple[int, str]]:
    """Offset and text of each docstring, block of comments, log message, help text and test name."""
    block: list[str] = []
    start = end = 0
    for token in TOKEN.finditer(source):
        at = token.start()
        if token.lastgroup == "comment":
            if block and (source.count("\n", end, at) != 1 or source[end:at].strip()):
                yield start, "\n".join(block)
                block = []
            start = start if block else at
            block.append(token["comment"].lstrip("# "))
            end = token.end()
        elif token.lastgroup == "long":
            line = source.rfind("\n", 0, at) + 1
            if source[line:at].strip() in {"", "r"} and source[max(0, line - 200) : line].rstrip()[-1:] not in ARGUMENT:
                yield token.start("long"), token["long"].strip()
    if block:
        yield start, "\n".join(block)
    for match in SHOWN.finditer(source):
        yield match.start(1), JOINT.sub("", match[1]).strip('f" \n')
    for match in TEST.finditer(source):
        yield match.start(1), match[1].replace("_", " ")


def page_texts(page: str) -> Iterator[tuple[int, str]]:
    """Offset and text of each paragraph, item and row, without code and headings."""
    prose = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), page)
    for match in PARAGRAPH.finditer(prose):
        yield match.start(1), match[1]


def findings(path: pathlib.Path, wordings: Sequence[Pattern]) -> Iterator[Finding]:
    """All places of one file, which is a program or a page."""
    whole = (PROJECT / path).read_text(encoding="utf-8")
    program = path.suffix == ".py"
    small = whole.lower()
    wordings = [one for one in wordings if not one.packages or package(path) in one.packages]
    for pattern in wordings:
        if program and any(noun in small for noun in pattern.nouns):
            for match in pattern.regex.finditer(whole):
                yield Finding(path, whole.count("\n", 0, match.start()) + 1, match[0], pattern.instead)
    for offset, text in program_texts(whole) if program else page_texts(whole):
        plain = START + QUOTED.sub(lambda match: "`" + "\n" * match[0].count("\n"), text)
        for pattern in wordings:
            if not (program and pattern.nouns):
                for match in pattern.regex.finditer(plain):
                    line = whole.count("\n", 0, offset) + plain.count("\n", 0, match.end()) + 1
                    yield Finding(path, line, " ".join(match[0].lstrip(START).split()), pattern.instead)


def files(excluded: Sequence[str]) -> Iterator[pathlib.Path]:
    """Programs and pages of the project, relative to it."""
    for folder, folders, names in os.walk(PROJECT):
        here = pathlib.Path(folder).relative_to(PROJECT)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__pycache__")) and (here / name).as_posix() not in excluded
        )
        yield from (
            here / name
            for name in sorted(names)
            if name.endswith((".py", ".md")) and (here / name).as_posix() not in excluded
        )


def package(path: pathlib.Path) -> str:
    """The package that a file counts for: its first two folders."""
    return "/".join(path.parts[:-1][:2]) or "."


def patterns(settings: Mapping[str, Any]) -> list[Pattern]:
    """The patterns that the settings list."""
    return [
        *(Pattern(re.compile(one["regex"]), one["instead"]) for one in settings["phrases"]),
        *(Pattern.of_nouns(one["words"], one["instead"], one.get("packages", ())) for one in settings["nouns"]),
    ]


def check(counts: Counter[str], budget: dict[str, int]) -> list[str]:
    """Describe each count that differs from its budget, one line for each."""
    wrong = []
    for name in sorted({*counts, *budget}):
        count, allowed = counts[name], budget.get(name, 0)
        if count > allowed:
            wrong.append(f"{name}: {count} places, the budget is {allowed}: python scripts/words.py {name}")
        elif count < allowed:
            wrong.append(f"{name}: {count} places, fewer than the budget of {allowed}: python scripts/words.py --write")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", nargs="*", help="print each place of these packages, for example apiserver/cel")
    parser.add_argument("--write", action="store_true", help="write today's counts as the budget; refused if they grew")
    chosen = parser.parse_args(arguments)
    text = SETTINGS.read_text(encoding="utf-8")
    settings = tomllib.loads(text)
    wordings = patterns(settings)
    budget: dict[str, int] = settings.get("budget", {})
    wanted = {name.rstrip("/") for name in chosen.package}
    counts: Counter[str] = Counter()
    for path in files(settings["excluded"]):
        if wanted and package(path) not in wanted:
            continue
        for finding in findings(path, wordings):
            counts[package(path)] += 1
            if wanted:
                print(finding)
    if wanted:
        return 0
    if chosen.write:
        if budget and counts.total() > sum(budget.values()):
            sys.exit(f"{counts.total()} places, more than the {sum(budget.values())} of all budgets together")
        lines = "".join(f'"{name}" = {count}\n' for name, count in sorted(counts.items()))
        SETTINGS.write_text(text.partition(HEADING)[0] + HEADING + lines, encoding="utf-8")
        return 0
    wrong = check(counts, budget)
    for line in wrong:
        print(line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
