from __future__ import annotations

import tracemalloc

import pytest

from kubecel.parse import lexer
from kubecel.parse.lexer import Tokens, Unrecognized, Word
from kubecel.values import conversions
from kubecel.values.errors import EvaluationError
from tests.fixtures.cpu import Spent

MIB = 1 << 20
LONGEST = 100_000


def kinds(text: str) -> list[str] | None:
    found: Tokens | None = lexer.tokenize(text)
    return None if found is None else found.kinds[:-1]


@pytest.mark.parametrize("q", ["'", '"'])
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("qqqaqbqqq", ["STRING"]),
        ("qqqaqqbqqq", ["STRING"]),
        ("qqqa\\qqqq", ["STRING"]),
        ("qqqa\nb\\nqqq + 1", ["STRING", "+", "NUM_INT"]),
        ("qqqqqq", ["STRING"]),
        ("qqa", ["STRING", "IDENTIFIER"]),
        ("qqqaq", ["STRING", "STRING"]),
        ("rqqqa\\qbqqq", ["STRING"]),
        ("Rqa\\q", ["STRING"]),
        ("bqqqaqbqqq", ["BYTES"]),
        ("qa\\qbq", ["STRING"]),
        ("qa\\zq", None),
        ("qqqa", None),
        ("qa\nq", None),
    ],
)
def test_strings_of_every_kind_are_tokens(q: str, text: str, tokens: list[str] | None) -> None:
    assert kinds(text.replace("q", q)) == tokens


def test_a_comment_gives_no_slash_back_to_what_is_no_token() -> None:
    assert kinds("a // b") == ["IDENTIFIER"]
    assert kinds("a // b\n$") is None
    assert list(lexer.scan("// c\n$a"))[:2] == [Unrecognized("$", 5), Word("IDENTIFIER", "a", 6, "// c\n")]
    assert list(lexer.scan("1 / 2 //")) == [
        Word("NUM_INT", "1", 0),
        Word("/", "/", 2, " "),
        Word("NUM_INT", "2", 4, " "),
        Word("<EOF>", "", 8, " //"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "'" + "\\n" * (LONGEST // 2) + "'",
        "'''" + "\\n" * (LONGEST // 2),
        "'''" + "''\\'" * (LONGEST // 4),
        "//\n" * (LONGEST // 3) + "$",
        ("//" + " " * 300 + "\n") * (LONGEST // 303) + "$",
        " " * LONGEST + "$",
        "1" * LONGEST + "$",
        "'''" * (LONGEST // 3),
        "r'''a" * (LONGEST // 5),
        "`" + "a" * LONGEST,
    ],
    ids=[
        "escapes",
        "no end",
        "quotes",
        "comments",
        "blanks in comments",
        "blanks",
        "digits",
        "empty",
        "raw",
        "backtick",
    ],
)
def test_no_text_takes_long_or_much_memory_to_cut_into_tokens(text: str) -> None:
    with Spent() as spent:
        lexer.tokenize(text)
    assert spent.below(0.5)

    tracemalloc.start()
    try:
        lexer.tokenize(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * MIB


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_000.5", 1000.5),
        ("1_0e1_0", 1e11),
        ("._5", None),
        ("1_", None),
        ("1__0", None),
        ("1_.5", None),
        ("1._5", None),
        ("1e_5", None),
        ("1e5_", None),
        ("0x_1p0", 1.0),
        ("0x1_fp0", 31.0),
        ("0x1.8_0p1_0", 1536.0),
        ("0x1_p0", None),
        ("0x1__0p0", None),
        # Go asks for a digit behind each underscore.
        ("0x_.8p0", None),
    ],
)
def test_underscores_stand_between_digits(text: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(EvaluationError):
            conversions._double_of_string(text)
    else:
        assert conversions._double_of_string(text) == value


@pytest.mark.parametrize(
    "text", ["0" * 3 * MIB + "x", "1_1" * MIB + "x", "1" * 3 * MIB + "x", "0x" + "f_f" * MIB + "g"]
)
def test_a_text_of_megabytes_that_is_no_number_is_refused_soon(text: str) -> None:
    with Spent() as spent, pytest.raises(EvaluationError):
        conversions._int_of_string(text)
    assert spent.below(0.5)
    with Spent() as spent, pytest.raises(EvaluationError):
        conversions._double_of_string(text)
    assert spent.below(1)
