import contextlib

import pytest

from kubecel.values.errors import CostExceeded
from kubecel.values.regexes import InvalidPattern, compiled
from tests.fixtures.cpu import Spent


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[", "missing closing ]: `[`"),
        ("a[b-", "missing closing ]: `[b-`"),
        ("(", "missing closing ): `(`"),
        ("a(b", "missing closing ): `a(b`"),
        ("ab)c", "unexpected ): `ab)c`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}?", "invalid repeat count: `{3,2}`"),
        ("a*{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("\\y", "invalid escape sequence: `\\y`"),
        ("\\Z", "invalid escape sequence: `\\Z`"),
        ("\\C", "invalid escape sequence: `\\C`"),
        ("\\1", "invalid escape sequence: `\\1`"),
        ("\\x{", "invalid escape sequence: `\\x{`"),
        ("\\x4(?<a>b)", "invalid escape sequence: `\\x4(`"),
        ("\\x{110000}", "invalid escape sequence: `\\x{110000`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("\\p{Foo}", "invalid character class range: `\\p{Foo}`"),
        ("[\\p", "invalid character class range: `\\p`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("[a-\\d]", "invalid escape sequence: `\\d`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?i(a)", "invalid or unsupported Perl syntax: `(?i(`"),
        ("(?<=a)b", "invalid named capture: `(?<=a)b`"),
        ("(?<=a)(?P<n>b)", "invalid named capture: `(?<=a)(?P<n>`"),
        ("(?P<é>a)", "invalid named capture: `(?P<é>`"),
        ("(?P<>a)", "invalid named capture: `(?P<>`"),
        # The first of two errors.
        ("a**\\C", "invalid nested repetition operator: `**`"),
        ("\\C**", "invalid escape sequence: `\\C`"),
        ("((\\C", "invalid escape sequence: `\\C`"),
    ],
)
def test_malformed_pattern_gets_gos_message(pattern: str, text: str) -> None:
    with pytest.raises(InvalidPattern) as caught:
        compiled(pattern)
    assert str(caught.value) == f"error parsing regexp: {text}"


@pytest.mark.parametrize(
    ("pattern", "text", "first", "every"),
    [
        ("a*", "baaab", "", ["", "aaa", ""]),
        ("a", "banana", "a", ["a", "a", "a"]),
        ("[a-z]+", "1 world 2 life", "world", ["world", "life"]),
        ("", "äö", "", ["", "", ""]),
        (".", "ä世𝄞", "ä", ["ä", "世", "𝄞"]),
        ("\\B", "Kſ0α", "", [""]),
        ("\\b", "äbä", "", ["", ""]),
        ("(?i)k", "K\u212a", "K", ["K", "\u212a"]),
        ("^a|b$", "ab\nab", "a", ["a", "b"]),
        ("(?m)^a", "a\na", "a", ["a", "a"]),
        ("a.c", "a\nc", "", []),
        ("(?s)a.c", "a\nc", "a\nc", ["a\nc"]),
        ("(?P<n>a)(?<n>b)", "ab", "ab", ["ab"]),
        ("\\Qa.b\\E+", "a.bbb", "a.bbb", ["a.bbb"]),
        ("a+?", "aaa", "a", ["a", "a", "a"]),
        ("(|a)*", "aa", "", ["", "", ""]),
        ("\\pL+", "abc世界1", "abc世界", ["abc世界"]),
    ],
)
def test_matches_are_those_of_go(pattern: str, text: str, first: str, every: list[str]) -> None:
    assert (compiled(pattern).first(text), compiled(pattern).every(text)) == (first, every)


def test_so_many_matches_are_listed_as_are_asked_for() -> None:
    assert compiled("a").every("banana", 2) == ["a", "a"]
    assert compiled("a").every("banana", 0) == []


@pytest.mark.parametrize(("depth", "allowed"), [(998, True), (999, True), (1000, False), (1001, False)])
def test_groups_nest_as_deep_as_in_go(depth: int, allowed: bool) -> None:
    pattern = "(" * depth + "a" + ")" * depth
    if allowed:
        assert compiled(pattern).found("a")
    else:
        with pytest.raises(InvalidPattern, match="expression nests too deeply"):
            compiled(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "\\pL" * 3400,
        "x{1000}" * 1400,
        "\\pL{1000}" * 1000,
        "[" * 10_000,
        "(" * 10_000,
        "(?:" * 3000 + "\\C",
        "(?P<é>)" * 1000,
        "[" + "[:a:]" * 2000,
        "a" * 1_000_000,
        "\\Q" * 5000,
        "{" * 10_000,
    ],
)
def test_no_pattern_takes_long_to_judge(pattern: str) -> None:
    with Spent() as spent, contextlib.suppress(InvalidPattern):
        compiled.__wrapped__(pattern)
    assert spent.below(0.5)


def test_a_search_that_could_take_a_second_is_over_budget() -> None:
    with pytest.raises(CostExceeded, match=r"^operation cancelled: actual cost limit exceeded$"):
        compiled("(?:.*){1000}" * 5).found("a" * 100_000)


def test_a_text_that_is_no_unicode_can_be_searched() -> None:
    assert compiled("b").first("a\ud800b") == "b"
