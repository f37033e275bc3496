"""kubectl's JSONPath, as printer columns use it. Results and messages were seen in upstream's package."""

from __future__ import annotations

from typing import Any

import pytest

from kubetext import jsonpath
from kubetext.jsonpath import EvaluationError, JSONPathError, TooMuchWork

OBJECT: dict[str, Any] = {
    "a.b": 7,
    "l": [1, 2, 3],
    "o": {"x": 1, "y": 2},
    "s": "ab",
    "c": [{"t": "A", "s": "1"}, {"t": "B", "s": "2"}, {"t": "B", "s": "3"}, {"s": "4"}],
}


@pytest.mark.parametrize(
    ("path", "results"),
    [
        (".o.x", [1]),
        (".o.z", []),
        (".a\\.b", [7]),
        ("['a\\.b']", [7]),
        (".l[-1]", [3]),
        (".l[0:2]", [1, 2]),
        (".l[::2]", [1, 3]),
        (".l[*]", [1, 2, 3]),
        (".l[2,0]", [3, 1]),
        (".l[1:1]", []),
        ("['s','l']", ["ab", [1, 2, 3]]),
        ("..x", [1]),
        (".o.*", [1, 2]),
        (".s.*", [97, 98]),
        ('.c[?(@.t=="B")].s', ["2", "3"]),
        (".c[?(@.t!='B')].s", ["1"]),
        (".c[?(@.t)].s", ["1", "2", "3"]),
        (".l[?(@>=2)]", [2, 3]),
        ('"a\\n"', ["a\n"]),
        ("5", [5]),
        ("true", [True]),
    ],
)
def test_path_finds_what_kubectl_finds(path: str, results: list[Any]) -> None:
    assert jsonpath.parse(f"{{{path}}}").find(OBJECT) == [results]


def test_range_repeats_the_parts_up_to_its_end() -> None:
    found = jsonpath.parse("{range .c[*]}{.s}-{end}{.s}").find(OBJECT)
    assert found == [["1"], ["-"], ["2"], ["-"], ["3"], ["-"], ["4"], ["-"], ["ab"]]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.a", "unclosed action"),
        ("{*}", "unrecognized character in action: U+002A '*'"),
        ("{.a[x]}", "invalid array index x"),
        ("{.a[1}", "unterminated array"),
        ("{.a[?(@.b}", "unterminated filter"),
        ("{.a[?(@.b)}", "unclosed array expect ]"),
        ("{....a}", "invalid multiple recursive descent"),
        ("{1.2.3}", "cannot parse number 1.2.3"),
        ("{'a}", "unterminated quoted string"),
        ("{'\\q'}", "unquote string '\\q' error invalid syntax"),
        ("{.a[-]}", "array index - is not a number"),
    ],
)
def test_template_that_does_not_parse_gets_upstreams_message(template: str, message: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        jsonpath.parse(template)
    assert str(caught.value) == message


@pytest.mark.parametrize("path", [".l[3]", ".o[0]", ".o[?(@.x)]", ".l[?(@==1.0)]", ".l[2:1]", "end", "word"])
def test_evaluation_fails_where_kubectl_fails(path: str) -> None:
    with pytest.raises(EvaluationError):
        jsonpath.parse(f"{{{path}}}").find(OBJECT)


def test_repeated_descent_ends_when_its_steps_are_spent() -> None:
    obj: Any = {}
    for _ in range(200):
        obj = {"a": obj, "b": [1]}
    with pytest.raises(TooMuchWork):
        jsonpath.parse("{" + "..a" * 20 + "}").find(obj, steps=20_000)


def test_descent_into_deep_objects_needs_no_stack() -> None:
    obj: Any = {"x": 1}
    for _ in range(20_000):
        obj = [obj]
    assert jsonpath.parse("{..x}").find(obj) == [[1]]
