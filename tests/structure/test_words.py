"""`scripts/words.py` finds wording that scripts/words.toml forbids, and holds each package to its budget."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import tomllib
from dataclasses import dataclass
from types import ModuleType

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = PROJECT / "scripts" / "words.py"
SETTINGS = """\
excluded = ["recorded"]
[[phrases]]
regex = '(?:¶ (?i:what|who)|[.]\\s+(?:What|Who))\\b(?![^.?]*\\?)'
instead = "begin with the subject"
[[nouns]]
words = ["stencil"]
instead = "template"

[budget]
"""


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["words"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@dataclass
class Tree:
    """A project of its own, with short settings."""

    root: pathlib.Path
    words: ModuleType
    capsys: pytest.CaptureFixture[str]

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def run(self, *arguments: str) -> tuple[object, str]:
        """The exit code, or the text of a refusal, and what was printed."""
        try:
            code = self.words.main(arguments)
        except SystemExit as refused:
            code = refused.code
        return code, self.capsys.readouterr().out

    def places(self, name: str, text: str) -> list[str]:
        """Line and words of each place in a file with this text."""
        self.write(f"cel/{name}", text)
        lines = self.run("cel")[1].splitlines()
        return [line.partition(f"cel/{name}:")[2].rpartition(": ")[0] for line in lines]


@pytest.fixture
def tree(
    tmp_path: pathlib.Path, words: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tree:
    settings = tmp_path / "words.toml"
    settings.write_text(SETTINGS)
    monkeypatch.setattr(words, "PROJECT", tmp_path)
    monkeypatch.setattr(words, "SETTINGS", settings)
    return Tree(tmp_path, words, capsys)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""What it does."""\n', ["1: 'What'"]),
        ('x = 1\n"""Who holds it."""\n', ["2: 'Who'"]),
        ('"""It does. What it\ndoes."""\n', ["1: '. What'"]),
        ("# One line.\n# What it does.\nx = 1\n", ["2: '. What'"]),
        ("x = 1  # what it is\n", ["1: 'what'"]),
        ('logger.info("what %s", x)\n', ["1: 'what'"]),
        ('f(text="what "\n  "it is")\n', ["1: 'what'"]),
        ('A = Counter(\n    "name", "What is counted."\n)\n', ["2: 'What'"]),
        ("def test_what_it_does() -> None: ...\n", ["1: 'what'"]),
        ("class Stencils:\n    def a_stencil(self): ...\n", ["1: 'Stencils'", "2: 'stencil'"]),
    ],
)
def test_the_script_finds_wording_in_each_kind_of_text(tree: Tree, text: str, found: list[str]) -> None:
    assert tree.places("a.py", text) == found


@pytest.mark.parametrize(
    "text",
    [
        '"""What is it?"""\n',
        '"""`What it does` is code."""\n',
        "f(\n    '''What it says.'''\n)\n",
        'f(\n    """What it says."""\n)\n',
        'x = "# What it says."\n',
        'raise Error("What it says.")\n',
        "stencilled = 1\n",
    ],
)
def test_the_script_counts_neither_code_nor_questions_nor_quotations(tree: Tree, text: str) -> None:
    assert tree.places("a.py", text) == []


def test_the_script_reads_pages_without_their_code_and_headings(tree: Tree) -> None:
    page = "# What it is\n\nIt is. What it is.\n\n```\nIt is. What it is.\n```\n\n* What it is\n\n| a |\n|---|\n| stencil |\n"
    assert tree.places("a.md", page) == ["3: '. What'", "9: 'What'", "13: 'stencil'"]


def test_the_script_leaves_recorded_files_out(tree: Tree) -> None:
    tree.write("recorded/a.py", '"""What it does."""\n')
    assert tree.run() == (0, "")


def test_a_count_above_the_budget_fails(tree: Tree) -> None:
    tree.write("cel/a.py", '"""What it does."""\n')
    assert tree.run() == (1, "cel: 1 places, the budget is 0: python scripts/words.py cel\n")


def test_a_count_below_the_budget_fails_until_it_is_lowered(tree: Tree) -> None:
    tree.write("cel/a.py", '"""What it does."""\n# Who holds it.\n')
    assert [tree.run("--write"), tree.run()] == [(0, ""), (0, "")]
    tree.write("cel/a.py", '"""What it does."""\n')
    assert tree.run() == (1, "cel: 1 places, fewer than the budget of 2: python scripts/words.py --write\n")
    assert [tree.run("--write"), tree.run()] == [(0, ""), (0, "")]
    assert (tree.root / "words.toml").read_text() == f'{SETTINGS}"cel" = 1\n'


def test_a_budget_that_would_grow_is_not_written(tree: Tree) -> None:
    tree.write("cel/a.py", '"""What it does."""\n')
    tree.run("--write")
    tree.write("cel/a.py", '"""What it does."""\n# Who holds it.\n')
    assert tree.run("--write") == ("2 places, more than the 1 of all budgets together", "")


def test_nouns_of_some_packages_count_there_only(words: ModuleType, tree: Tree) -> None:
    for name in ("cel", "wire"):
        tree.write(f"{name}/a.py", "draft = 1\n")
    (pattern,) = words.patterns({"phrases": [], "nouns": [{"words": ["draft"], "instead": "x", "packages": ["wire"]}]})
    found = [one for name in ("cel", "wire") for one in words.findings(pathlib.Path(f"{name}/a.py"), [pattern])]
    assert [(one.path.as_posix(), one.words) for one in found] == [("wire/a.py", "draft")]


def test_a_package_that_moves_takes_its_budget_along(tree: Tree) -> None:
    tree.write("cel/a.py", '"""What it does."""\n')
    tree.run("--write")
    (tree.root / "cel").rename(tree.root / "expressions")
    assert tree.run()[0] == 1
    assert [tree.run("--write"), tree.run()] == [(0, ""), (0, "")]


TEXTS = {
    "Whose certificate has ended is refused.": "¶ Whose",
    "It stops. Of two, the first wins.": ". Of",
    "This waits for whoever comes.": "r whoever",
    "A client is told why.": " is told",
    "The server is away.": "is away",
    "What is said of it.": "¶ What",
    "As theirs.": "theirs",
    "All mistakes at once.": "mistakes",
    "In this room.": " room",
    "A stencil.": "stencil",
    "One turnstile per lane.": "turnstile",
    "The extent of a stretch.": "extent",
    "A test settles.": "settles",
    "Its heft.": "heft",
}


@pytest.mark.parametrize(("text", "found"), TEXTS.items())
def test_the_patterns_of_the_project_find_their_examples(words: ModuleType, text: str, found: str) -> None:
    patterns = words.patterns(tomllib.loads((PROJECT / "scripts" / "words.toml").read_text()))
    assert any(found in match[0] for pattern in patterns for match in pattern.regex.finditer(words.START + text))


@pytest.mark.parametrize(
    "text",
    ["Answer 401.", "Is the server away?", "a distolane existent", "What does it cost?", "The mood of a client."],
)
def test_the_patterns_of_the_project_pass_plain_words(words: ModuleType, text: str) -> None:
    patterns = words.patterns(tomllib.loads((PROJECT / "scripts" / "words.toml").read_text()))
    assert not any(pattern.regex.search(words.START + text) for pattern in patterns)
