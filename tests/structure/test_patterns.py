"""No regular expression of ours needs what `re` gets wrong in a Python that we support.

Before 3.11.5, possessive quantifiers and atomic groups match wrongly where a group inside can backtrack (python/cpython issue 106052).
"""

from __future__ import annotations

import ast
import itertools
import pathlib
import re
import subprocess
import sys
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("apiserver", "kubecel", "kubetext", "sluice", "structuredmerge")
FILES = sorted(file for package in PACKAGES for file in (PROJECT / package).rglob("*.py"))
WRONG = {_constants.POSSESSIVE_REPEAT, _constants.ATOMIC_GROUP}

# Import every module with the compiler of `re` watched. Print each pattern that the project compiles, directly or through a helper.
RECORD = """
import importlib, re, sys
ours, *names = sys.argv[1:]
compile_ = re._compiler.compile

def recording(pattern, flags=0):
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename == re.__file__:
        frame = frame.f_back
    if frame and frame.f_code.co_filename.startswith(ours):
        print(repr((frame.f_code.co_filename, frame.f_lineno, pattern, int(flags))))
    return compile_(pattern, flags)

re._compiler.compile = recording
for name in names:
    importlib.import_module(name)
"""


def wrong(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether a pattern has one of the constructs."""
    left: list[Any] = [_parser.parse(pattern, flags)]
    while left:
        here = left.pop()
        if isinstance(here, _parser.SubPattern):
            left += here.data
        elif isinstance(here, tuple | list):
            if here and here[0] in WRONG:
                return True
            left += here
    return False


@pytest.mark.parametrize("pattern", ["a*+", "(?:a|b)++", "a?+", "a{2,3}+", "(?>a)", "(x(?=(?:[a]|b*+)))"])
def test_the_check_finds_possessive_and_atomic_constructs(pattern: str) -> None:
    assert wrong(pattern)


@pytest.mark.parametrize("pattern", ["a*", "[*+]+", r"a\++", "(?:a+)+", "(?=a)(?!b)a{2,}?"])
def test_the_check_passes_other_constructs(pattern: str) -> None:
    assert not wrong(pattern)


def test_no_pattern_that_a_module_compiles_is_possessive_or_atomic() -> None:
    paths = [file.relative_to(PROJECT).with_suffix("") for file in FILES if file.name != "__main__.py"]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    found = subprocess.run(
        [sys.executable, "-c", RECORD, str(PROJECT / "apiserver"), *names],
        cwd=PROJECT,
        capture_output=True,
        check=False,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    compiled = [ast.literal_eval(line) for line in found.stdout.splitlines()]
    assert len(compiled) > 50
    assert [(file, line) for file, line, pattern, flags in compiled if wrong(pattern, flags)] == []


def test_no_pattern_that_a_function_writes_is_possessive_or_atomic() -> None:
    calls = itertools.chain.from_iterable(
        ((file, node) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)) for file in FILES
    )
    found = []
    for file, call in calls:
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("re"), attr=function),
                args=[ast.Constant(value=str() | bytes() as pattern), *_],
            ) if function != "escape":
                found.append((str(file), call.lineno, pattern))
    assert len(found) > 50
    # Verbose patterns have blanks, which are no quantifiers' either way.
    assert [(file, line) for file, line, pattern in found if wrong(pattern, re.VERBOSE) or wrong(pattern)] == []
