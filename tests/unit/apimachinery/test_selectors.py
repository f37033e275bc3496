"""Label and field selectors; texts and results of k8s.io/apimachinery v0.36.3."""

import gc
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery import selectors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.selectors import LabelSelector, Requirement
from tests.fixtures.cpu import Spent

KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
OPERATORS = "in, notin, =, ==, !=, gt, lt"
REQUIREMENT = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("x=1", {"x": "1"}, {"x": "2"}),
        ("x==1", {"x": "1", "y": ""}, {}),
        ("x!=1", {}, {"x": "1"}),
        ("x!=1", {"x": "2"}, {"x": "1"}),
        ("x", {"x": ""}, {"y": ""}),
        ("!x", {"y": "1"}, {"x": "1"}),
        ("! x", {}, {"x": ""}),
        ("x in (1,2)", {"x": "2"}, {"x": "3"}),
        ("x in (1,2)", {"x": "1"}, {}),
        ("x notin (1)", {}, {"x": "1"}),
        ("x notin (1,2)", {"x": "3"}, {"x": "2"}),
        ("x in ()", {"x": ""}, {"x": "1"}),
        ("x in (1,,2)", {"x": ""}, {"x": "3"}),
        ("x in (,1)", {"x": ""}, {}),
        ("x in (1,)", {"x": ""}, {"x": "2"}),
        ("x>1", {"x": "2"}, {"x": "1"}),
        ("x>1", {"x": "10"}, {"x": "a"}),
        ("x<2", {"x": "1"}, {}),
        ("x=", {"x": ""}, {"x": "1"}),
        ("x=,y", {"x": "", "y": ""}, {"x": ""}),
        ("x=1,y=p", {"x": "1", "y": "p"}, {"x": "1"}),
        ("x=1,y=p,z", {"x": "1", "y": "p", "z": ""}, {"x": "1", "y": "p"}),
        (" x = 1 ", {"x": "1"}, {}),
        ("ex.io/k=v", {"ex.io/k": "v"}, {"k": "v"}),
        ("in in (in,notin)", {"in": "notin"}, {"in": "x"}),
        ("x=in", {"x": "in"}, {"x": "notin"}),
    ],
)
def test_a_label_selector_matches(text: str, yes: dict[str, str], no: dict[str, str]) -> None:
    selector = selectors.parse_labels(text)
    assert selector.matches(yes)
    assert not selector.matches(no)


def test_the_empty_label_selector_matches_everything() -> None:
    for text in ("", "  ", "\t\n"):
        selector = selectors.parse_labels(text)
        assert selector.empty
        assert selector.matches({})
        assert str(selector) == ""


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("y,x", "x,y"),
        ("!b , a", "a,!b"),
        ("x in (b,a,b)", "x in (a,b)"),
        ("x notin (a)", "x notin (a)"),
        ("x in ()", "x in ()"),
        ("x==1", "x==1"),
        ("x != 1", "x!=1"),
        ("x > 1,y<2", "x>1,y<2"),
        ("b=1,a=2,b=3", "a=2,b=1,b=3"),
    ],
)
def test_a_label_selector_is_printed_sorted_and_normalized(text: str, printed: str) -> None:
    assert str(selectors.parse_labels(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x>=1", REQUIREMENT + "found '=', expected: identifier"),
        ("x===1", REQUIREMENT + "found '=', expected: identifier"),
        ("x=!", REQUIREMENT + "found '!', expected: identifier"),
        ("x in 1", REQUIREMENT + "found '1' expected: '('"),
        ("x in", REQUIREMENT + "found '' expected: '('"),
        ("x in (", REQUIREMENT + "found '', expected: ',', ')' or identifier"),
        ("x in (=)", REQUIREMENT + "found '=', expected: ',', ')' or identifier"),
        ("x in (1", REQUIREMENT + "found '', expected: ',' or ')'"),
        ("x in (1=", REQUIREMENT + "found '=', expected: ',' or ')'"),
        ("x in (1,", REQUIREMENT + "found '', expected: ',', or identifier"),
        ("x in (1,!", REQUIREMENT + "found '!', expected: ',', or identifier"),
        ("(x)", "found '(', expected: !, identifier, or 'end of string'"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        (",x", "found ',', expected: !, identifier, or 'end of string'"),
        ("x=a b", "found 'b', expected: ',' or 'end of string'"),
        ("!x=1", "found '=', expected: ',' or 'end of string'"),
        ("a b", REQUIREMENT + f"found 'b', expected: {OPERATORS}"),
        ("x like y", REQUIREMENT + f"found 'like', expected: {OPERATORS}"),
        ("x!", REQUIREMENT + f"found '!', expected: {OPERATORS}"),
        ("x=1,,y", "found ',', expected: identifier after ','"),
        ("x,", "found '', expected: identifier after ','"),
        ("!!x", REQUIREMENT + "found '!', expected: identifier"),
        ("!", REQUIREMENT + "found '', expected: identifier"),
        ("-x=1", REQUIREMENT + f'<nil>: Invalid value: "-x": name part {KEY}'),
        ("x&y", REQUIREMENT + f'<nil>: Invalid value: "x&y": name part {KEY}'),
        (
            "/",
            REQUIREMENT
            + f'<nil>: Invalid value: "/": prefix part must be non-empty; name part must be non-empty; name part {KEY}',
        ),
        (
            "a/b/c=1",
            REQUIREMENT
            + f'<nil>: Invalid value: "a/b/c": a valid label key {KEY} with an optional DNS subdomain prefix and '
            "'/' (e.g. 'example.com/MyName')",
        ),
        ("k" * 64, REQUIREMENT + f'<nil>: Invalid value: "{"k" * 64}": name part must be no more than 63 bytes'),
        ("x=-1", REQUIREMENT + f'values[0][x]: Invalid value: "-1": {VALUE}'),
        ("x=" + "v" * 64, REQUIREMENT + f'values[0][x]: Invalid value: "{"v" * 64}": must be no more than 63 bytes'),
        (
            "x>abc",
            REQUIREMENT + "values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "x<a-",
            REQUIREMENT + "[values[0]: Invalid value: \"a-\": for 'Gt', 'Lt' operators, the value must be an integer, "
            f'values[0][x]: Invalid value: "a-": {VALUE}]',
        ),
        (
            "x in (-a,-b)",
            REQUIREMENT + f'[values[0][x]: Invalid value: "-a": {VALUE}, values[1][x]: Invalid value: "-b": {VALUE}]',
        ),
    ],
)
def test_a_bad_label_selector_is_a_400_in_upstreams_words(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_labels(text)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (400, "BadRequest", message)


def test_a_nul_ends_a_label_selector() -> None:
    assert str(selectors.parse_labels("x \x00,,,")) == "x"


def test_requirements_are_handed_out_for_authorization() -> None:
    found = selectors.parse_labels("b in (2,1),!a,c>4,d")
    assert found.requirements == (
        Requirement("a", "!"),
        Requirement("b", "in", ("1", "2")),
        Requirement("c", "gt", ("4",)),
        Requirement("d", "exists"),
    )


def test_equal_label_selectors_are_interchangeable() -> None:
    assert selectors.parse_labels("a,b=1") == selectors.parse_labels(" b=1 ,a")
    assert len({selectors.parse_labels("a"), selectors.parse_labels("a ")}) == 1


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        (",", ()),
        ("a=b,", (("a", "=", "b"),)),
        ("a==b", (("a", "=", "b"),)),
        ("a!=b", (("a", "!=", "b"),)),
        ("a=", (("a", "=", ""),)),
        ("=x", (("", "=", "x"),)),
        ("=", ()),
        ("!=", ()),
        ("b=1,a=2", (("a", "=", "2"), ("b", "=", "1"))),
        (r"a=x\,y\=z\\", (("a", "=", "x,y=z\\"),)),
        (" a = b ", ((" a ", "=", " b "),)),
        ("a!b=c", (("a!b", "=", "c"),)),
        ("a=!b", (("a", "=", "!b"),)),
    ],
)
def test_a_field_selector_is_read(text: str, terms: tuple[tuple[str, str, str], ...]) -> None:
    selector = selectors.parse_fields(text)
    assert selector.terms == terms
    assert selector.empty == (not terms)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "invalid selector: 'abc'; can't understand 'abc'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        (r"a=x\b", r"invalid field selector: invalid escape sequence: \b"),
        ("a=x\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a===b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_a_bad_field_selector_is_a_400_in_upstreams_words(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_fields(text)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_a_field_selector_says_which_value_it_requires() -> None:
    selector = selectors.parse_fields("metadata.name=a,spec.nodeName!=n")
    assert selector.requires("metadata.name") == "a"
    assert selector.requires("spec.nodeName") is None
    assert selector.requires("spec.driver") is None


def test_a_field_selector_names_the_first_label_it_may_not_use() -> None:
    selector = selectors.parse_fields("spec.z=1,spec.a=1,metadata.name=x")
    assert selector.unsupported(("metadata.name",)) == "spec.a"
    assert selector.unsupported(("metadata.name", "spec.a", "spec.z")) is None
    assert selectors.parse_fields("=x").unsupported(("metadata.name",)) == ""


def test_a_field_selector_takes_an_absent_field_for_an_empty_one() -> None:
    selector = selectors.parse_fields("spec.nodeName=,spec.driver!=x")
    assert selector.matches({})
    assert selector.matches({"spec.driver": "y"})
    assert not selector.matches({"spec.nodeName": "n"})
    assert not selector.matches({"spec.driver": "x"})


def test_a_field_selector_is_printed_with_its_escapes() -> None:
    assert str(selectors.parse_fields(r"b==1,a=x\,y")) == r"a=x\,y,b=1"


# ---------------------------------------------------------------------------------------------------------------- long ones

KEYS, VALUES = st.sampled_from("abc"), st.sampled_from(["", "1", "2", "30", "x"])
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["exists", "!"])),
    st.builds(Requirement, KEYS, st.sampled_from(["=", "==", "!="]), st.tuples(VALUES)),
    st.builds(
        Requirement, KEYS, st.sampled_from(["in", "notin"]), st.sets(VALUES, min_size=1).map(lambda v: tuple(sorted(v)))
    ),
    st.builds(Requirement, KEYS, st.sampled_from(["gt", "lt"]), st.tuples(st.sampled_from(["0", "1", "7", "-3"]))),
)


@given(st.lists(REQUIREMENTS, max_size=8), st.dictionaries(KEYS, VALUES))
def test_many_requirements_together_ask_what_each_asks(requirements: list[Requirement], labels: dict[str, str]) -> None:
    every = all(LabelSelector([requirement]).matches(labels) for requirement in requirements)
    assert LabelSelector(requirements).matches(labels) is every


@given(st.lists(st.tuples(KEYS, st.sampled_from(["=", "!="]), VALUES), max_size=8), st.dictionaries(KEYS, VALUES))
def test_many_terms_together_ask_what_each_asks(terms: list[tuple[str, str, str]], fields: dict[str, str]) -> None:
    every = all((fields.get(name, "") == value) == (operator == "=") for name, operator, value in terms)
    assert selectors.FieldSelector(tuple(terms)).matches(fields) is every


@pytest.mark.parametrize(
    "piece", ["a{n}", "a{n}=b", "!a{n}", "a{n}!=b", "a in (v{n})", "a notin (v{n})", "a>{n}", "a{n}>1"]
)
def test_matching_a_long_label_selector_costs_what_the_object_costs(piece: str) -> None:
    selector = selectors.parse_labels(",".join(piece.replace("{n}", str(n)) for n in range(20_000)))
    labels = {"a": "30000", "b": "x"}
    selector.matches(labels)
    with Spent() as spent:
        for _ in range(1000):
            selector.matches(labels)
    assert spent.below(0.1)


@pytest.mark.parametrize("piece", ["metadata.name=a{n}", "metadata.name!=a{n}", "f{n}=a"])
def test_matching_a_long_field_selector_costs_what_its_labels_cost(piece: str) -> None:
    selector = selectors.parse_fields(",".join(piece.replace("{n}", str(n)) for n in range(20_000)))
    with Spent() as spent:
        for _ in range(1000):
            assert not selector.matches({"metadata.name": "a1"})
    assert spent.below(0.1)


@pytest.mark.parametrize("unit", ["a,", "a=b,", "!a,", "a in (b,c),", "a>1,"])
def test_a_requirement_that_is_repeated_is_kept_once(unit: str) -> None:
    assert len(selectors.parse_labels((unit * 10_000)[:-1]).requirements) == 1


def test_selectors_are_read_once_and_their_errors_reported_each_time() -> None:
    good, bad = selectors.Given("a=b", "c=d"), selectors.Given("a in", "b")
    assert good.labels is good.labels
    assert good.fields is good.fields
    bad.read()
    for _ in range(2):
        with pytest.raises(StatusError, match="unable to parse requirement"):
            _ = bad.labels
        with pytest.raises(StatusError, match="can't understand"):
            _ = bad.fields
    assert not good.large
    assert selectors.Given("a" * 5000).large


def test_unreadable_selector_holds_nothing_of_the_requests_it_failed() -> None:
    """A target is remembered, its error with it; what an error has passed through would be a whole request."""
    given, seen = selectors.Given("a in"), []
    for _ in range(2):
        with pytest.raises(StatusError) as raised:
            _ = given.labels
        seen.append(raised.value)
    kept = [held for held in gc.get_referents(given) if isinstance(held, StatusError)]
    assert len(kept) == 1
    assert kept[0] not in seen
    assert (kept[0].__traceback__, kept[0].__context__) == (None, None)
    assert seen[0].status() == seen[1].status() == kept[0].status()


_PIECES = (
    *("a", "b.c/d", "a.b/", "-x", "k" * 64, "k" * 63, "a" * 254 + "/x", "in", "notin", "(", ")", ",", ",", ",", "=", "==", "!=", "!"),
    *(">", "<", "5", "9223372036854775807", "9223372036854775808", "0" * 30 + "7", "+5", " ", "\t", "\0", "é", "A-", "/x", " " * 101),
    *("a in (b,c)", "a notin (,)", "x=y", "k>3", "!a"),
)  # fmt: skip


def test_quick_check_of_label_selectors_agrees_with_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(31)
    texts = ["".join(draw.choices(_PIECES, k=draw.randint(1, 9))) for _ in range(3_000)]
    slowly = [_read_as(selectors.parse_labels, text) for text in texts]
    monkeypatch.setattr(selectors, "AT_ONCE", 0)
    for text, expected in zip(texts, slowly, strict=True):
        assert _read_as(selectors.parse_labels, text) == expected, text
        assert _read_as(selectors.check_labels, text) == (expected if isinstance(expected, dict) else "None"), text


def test_quick_check_of_field_selectors_agrees_with_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(31)
    pieces = ("a", "metadata.name", "=", "==", "!=", "!", ",", ",", ",", "\\", "\\,", "\\=", "\\b", "x", "é")
    texts = ["".join(draw.choices(pieces, k=draw.randint(1, 9))) for _ in range(3_000)]
    slowly = [_read_as(selectors.parse_fields, text) for text in texts]
    monkeypatch.setattr(selectors, "AT_ONCE", 0)
    for text, expected in zip(texts, slowly, strict=True):
        assert _read_as(selectors.parse_fields, text) == expected, text


def _read_as(parse: Callable[[str], object], text: str) -> str | dict[str, object]:
    """The outcome: the selector's text, or the status of its error."""
    try:
        return str(parse(text))
    except StatusError as error:
        return error.status()


@pytest.mark.parametrize("wrong", ["=", "-x", "a=-", "b in (c", "b in (c d)"])
def test_long_label_selector_that_ends_wrong_builds_no_requirement(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    requirement = selectors.Requirement

    def counted(key: str, operator: str, values: tuple[str, ...] = ()) -> selectors.Requirement:
        made.append(key)
        return requirement(key, operator, values)

    monkeypatch.setattr(selectors, "Requirement", counted)
    given = selectors.Given(",".join([*(f"k{n}=v,j{n} in (v,w),!i{n}" for n in range(30_000)), wrong]), "a=b")
    given.read()
    for selector in ("labels", "fields"):
        with pytest.raises(StatusError):
            getattr(given, selector)
    assert len(made) <= 1


def test_field_selector_of_too_many_labels_is_read_up_to_the_limit() -> None:
    terms = selectors.parse_fields(",".join(f"k{n:05}=v" for n in range(30_000))).terms
    assert [label for label, _, _ in terms] == [f"k{n:05}" for n in range(selectors.MOST_FIELDS + 1)]
