"""Trees, ids and positions are those of cel-go 0.26."""

import pytest

from kubecel.parse import macros
from kubecel.parse.macros import Macros
from kubecel.parse.parser import parse
from kubecel.parse.source import CompileError, Source
from tests.unit.kubecel.trees import written

ALL = Macros((*macros.STANDARD, *macros.OPTIONAL, *macros.BINDINGS, *macros.COMPREHENSIONS))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3 - 4", "_-_#6(_+_#2(1#1, _*_#4(2#3, 3#5)), 4#7)"),
        ("a ? b : c ? d : e", "_?_:_#2(a#1, b#3, _?_:_#5(c#4, d#6, e#7))"),
        ("a || b || c || d", "_||_#5(_||_#3(a#1, b#2), _||_#7(c#4, d#6))"),
        ("a < b == !c", "_==_#4(_<_#2(a#1, b#3), !_#5(c#6))"),
        ("--a - -1 - -(b)", "_-_#4(_-_#2(a#1, -1#3), -_#5(b#6))"),
        ("a.b[1].c(2u, .d)", "_[_]#3(a#1.b#2, 1#4).c#5(2u#6, .d#7)"),
        ("a.?b[?c] in [?d, e,]", "@in#6(_[?_]#4(_?._#3(a#1, 'b'#2), c#5), #7[?d#8, e#9])"),
        ("a.B{c: 1, ?d: {2: 3}}", "a.B#1{c :#2 1#3, ?d :#4 #5{2#7 :#6 3#8}}"),
        ("[,] == {,}", "_==_#2(#1[], #3{})"),
        ("has(a.b)", "a#2.b#4?"),
        (
            "a.all(x, x)",
            "fold#11(x -> @result: a#1, True#5, @not_strictly_false#7(@result#6), _&&_#9(@result#8, x#4), @result#10)",
        ),
    ],
)
def test_the_tree_of_an_expression_is_that_of_cel_go(text: str, tree: str) -> None:
    assert written(parse(Source(text), macros=ALL).expr) == tree


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            ("ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', "
            "'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"),
        ),
        ("a = b", ("ERROR: <input>:1:3: Syntax error: token recognition error at: '= '\n | a = b\n | ..^\n"
         "ERROR: <input>:1:5: Syntax error: extraneous input 'b' expecting <EOF>\n | a = b\n | ....^")),
        ("if.b.", ("ERROR: <input>:1:1: reserved identifier: if\n | if.b.\n | ^\n"
         "ERROR: <input>:1:6: Syntax error: no viable alternative at input '.'\n | if.b.\n | .....^")),
        ("f(1", "ERROR: <input>:1:4: Syntax error: missing ')' at '<EOF>'\n | f(1\n | ...^"),
        ("(" * 251, "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"),
        ("a" + ".b" * 251, "ERROR: <input>:-1:0: max recursion depth exceeded"),
    ],
)  # fmt: skip
def test_syntax_errors_get_the_message_of_cel_go(text: str, said: str) -> None:
    with pytest.raises(CompileError) as refused:
        parse(Source(text), macros=ALL)
    assert str(refused.value) == said
