"""The quick reader of YAML files: it says the same as `as_yaml`, or nothing."""

from __future__ import annotations

import random

import pytest

from apiserver.codecs.yaml import as_yaml, block_yaml

TEXT = """\
# made by a program
apiVersion: v1
kind: 'It''s'
n: yes
"on": no
list:
- a
- - b
  - 1.0
- k: v
  w:
  - 0o17
  -  x: 1e3
empty: {}
none: []
flow: ["v1", {a: n}]
nothing:
  # only a comment
words: plain text that
  goes on

  after a line
quoted: 'single quotes that
  go on

  and end'
double: "a\\nb \\
  c"
literal: |-
  one
    two

  three
kept: |
  text
folded: >-
  one
  two

  three
last: ~
"""


def test_text_of_the_usual_form_is_read_as_go_reads_it() -> None:
    found = block_yaml.read(TEXT.encode())
    assert found is not block_yaml.OTHER
    assert repr(found) == repr(as_yaml.read(TEXT.encode()).value)
    assert found["false"] is True
    assert found["words"] == "plain text that goes on\nafter a line"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "- a\n",
        "a: 1\na: 2\n",
        "a: &x 1\n",
        "a: *x\n",
        "a: !!str 1\n",
        "<<: {}\n",
        "a: [b]: c\n",
        "a:\n    b: 1\n  c: 2\n",
        "a: b: c\n",
        "a: b # comment\n",
        "a: |2\n   b\n",
        "a: >\n  b\n    c\n",
        "a: 'b\n",
        "a: .inf\n",
        "? a\n: b\n",
        "a: b\n...\n",
        "a:\tb\n",
        "\ufeffa: b\n",
        "~: b\n",
        "a: b\u2028c\n",
        "a: |\n  b",
        "a:\n" + "".join(f"{' ' * i}a:\n" for i in range(1, 200)),
    ],
)
def test_text_of_another_form_is_left_to_as_yaml(text: str) -> None:
    assert block_yaml.read(text.encode()) is block_yaml.OTHER


PIECES = [
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        ": ",
        " #x",
        "#",
        "- ",
        "-",
        "''",
        "'",
        '"',
        "\\",
        "|",
        "|-",
        ">",
        ">-",
        "\t",
        "{}",
        "[]",
        "{",
        "&a",
        "*a",
    ),
    *(
        "!x",
        "y",
        "n",
        "null",
        "1.5",
        "1e3",
        "---",
        "...",
        "é",
        "?",
        ",",
        "%",
        "\n#c\n",
        "\n  ",
        "\n    ",
        "~",
        "<<: x",
        "a: b",
        "- - a",
    ),
    *("|+", "|2", "[a]", "{a: b}", "[", "]"),
]


def test_spoiled_text_is_read_as_go_reads_it_or_left_to_as_yaml() -> None:
    choose, taken, blocks = random.Random(34), 0, block_yaml.Blocks()
    for _ in range(3_000):
        lines = TEXT.split("\n")
        start = choose.randrange(len(lines))
        text = "\n".join(lines[start : start + choose.randrange(1, 20)])
        for _ in range(choose.choice([1, 1, 2, 3])):
            at = choose.randrange(len(text) + 1)
            text = text[:at] + choose.choice(PIECES) + text[at + choose.choice([0, 0, 1, 2]) :]
        found = block_yaml.read(text.encode(), blocks)
        if found is not block_yaml.OTHER:
            taken += 1
            reading = as_yaml.read(text.encode())
            assert (repr(found), "") == (repr(reading.value), reading.repeats), text
    assert taken > 100


BLOCK = """a:
  properties:
    x:
      type: string
b:
  properties:
      x:
        type: string
"""


def test_equal_blocks_are_one_value_whatever_their_indentation() -> None:
    blocks = block_yaml.Blocks()
    found, other = (block_yaml.read(f"{BLOCK}{end}: 1\n".encode(), blocks) for end in "cd")
    assert found["a"] == {"properties": {"x": {"type": "string"}}}
    assert found["a"]["properties"] is found["b"]["properties"] is other["a"]["properties"]


@pytest.mark.parametrize(
    "text",
    [
        "a:\n  - x\n# comment\n  - y\nb: 1\n",
        "a:\n  x: 1\n# comment\n  y: 2\nb: 1\n",
        "a:\n- x\n# comment\n- y\nb: 1\n",
        "a:\n  x: |\n    t\n   \n\n# comment\nb: 1\n",
        "a:\n  x: |\n    t",
        "a:\n  x: |\n    t\n\n",
    ],
)
def test_known_block_that_goes_on_is_read_to_its_end(text: str) -> None:
    blocks = block_yaml.Blocks()
    for known in ("a:\n  - x\nb: 1\n", "a:\n  x: 1\nb: 1\n", "a:\n- x\nb: 1\n", "a:\n  x: |\n    t\nb: 1\n"):
        block_yaml.read(known.encode(), blocks)
    found = block_yaml.read(text.encode(), blocks)
    assert found is block_yaml.OTHER or found == as_yaml.read(text.encode()).value


def test_kept_blocks_are_bounded() -> None:
    blocks = block_yaml.Blocks()
    for i in range(5):
        blocks.keep(f"{i}" * (block_yaml.Blocks.LIMIT // 4), i)
    assert [blocks.get(f"{i}" * (block_yaml.Blocks.LIMIT // 4)) for i in (0, 4)] == [None, 4]
