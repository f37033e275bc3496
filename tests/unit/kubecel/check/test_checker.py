"""The checker: what it leaves behind for cost and evaluation, and that no expression makes it work without end."""

import pytest

from kubecel.check import checker
from kubecel.check.checker import Candidates, Checked, Reference
from kubecel.check.declarations import Function, Overload, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.check.validators import KUBERNETES, comprehension_nesting
from kubecel.libraries import optionals, standard
from kubecel.parse.ast import Call, Ident
from kubecel.parse.source import CompileError
from kubecel.values.types import BOOL, DYN, INT, STRING, list_of, map_of, parameter, struct

ENVIRONMENT = Environment().extend(
    libraries=(standard.LIBRARY, optionals.LIBRARY),
    variables=(Variable("o", DYN), Variable("i", INT), Variable("a.b", INT), Variable("n.seven", INT, value=7)),
    functions=(Function("n.f", (Overload(id="n_f", arguments=(INT,), result=STRING),)),),
    cross_type_numeric_comparisons=True,
)


def _references(checked: Checked) -> list[Reference]:
    return [reference for _, reference in sorted(checked.references.items())]


def _refusal(environment: Environment, text: str) -> str:
    with pytest.raises(CompileError) as refused:
        environment.compile(text)
    return str(refused.value)


def test_a_name_with_dots_becomes_one_name() -> None:
    checked = ENVIRONMENT.compile("[a.b][0] + n.seven")
    assert checked.output == INT
    names = [reference for reference in _references(checked) if reference.name]
    assert names == [Reference("a.b"), Reference("n.seven", 7)]
    assert isinstance(checked.ast.expr, Call)
    assert checked.ast.expr.arguments[1] == Ident(checked.ast.expr.arguments[1].id, "n.seven")


def test_a_function_with_a_namespace_has_no_target() -> None:
    checked = ENVIRONMENT.compile("n.f(1)")
    call = checked.ast.expr
    assert isinstance(call, Call)
    assert (call.function, call.target) == ("n.f", None)
    assert checked.references[call.id] == Reference(overloads=("n_f",))


def test_tree_has_no_leading_dot() -> None:
    checked = ENVIRONMENT.compile(".i")
    assert checked.ast.expr == Ident(checked.ast.expr.id, "i")


def test_the_name_of_a_type_refers_to_the_type() -> None:
    checked = ENVIRONMENT.compile("int")
    assert _references(checked) == [Reference("int", INT)]


def test_a_call_of_what_is_dynamic_has_all_overloads_that_may_be_meant() -> None:
    checked = ENVIRONMENT.compile("o + 1")
    assert _references(checked)[1].overloads == ("add_int64",)
    checked = ENVIRONMENT.compile("o[o]")
    assert checked.references[checked.ast.expr.id].overloads == (
        "index_list",
        "index_map",
        "optional_list_index_int",
        "optional_map_index_value",
    )
    assert checked.output == DYN


def test_no_type_is_left_open() -> None:
    checked = ENVIRONMENT.compile("[[], {}.map(k, k), optional.none().orValue([])]")
    assert not any(of.open for of in checked.types.values())
    assert checked.output == list_of(list_of(DYN))


def test_cached_result_equals_a_fresh_one() -> None:
    for text in ("1 == o", "o in [1]", "size([])", "{'a': 1}['a']", "[1].map(x, [x])"):
        first, second = (ENVIRONMENT.compile(text) for _ in range(2))
        assert first.types == second.types
        assert first.references == second.references
    assert _refusal(ENVIRONMENT, "1 + 'a'") == _refusal(ENVIRONMENT, "1 + 'a'")


def test_cache_of_a_function_is_bounded() -> None:
    candidates = Candidates(Function("f", (Overload(id="f", arguments=(parameter("A"),), result=INT),)), frozenset())
    environment = ENVIRONMENT.extend(variables=[Variable(f"v{i}", struct(f"T{i}")) for i in range(600)])
    for i in range(600):
        environment.compile(f"type(v{i})")
    found = environment.candidates("type")
    assert found is not None
    assert 0 < len(found.remembered) <= candidates.REMEMBERED


def test_an_object_that_grows_is_seen_at_once() -> None:
    first = ENVIRONMENT.extend(
        shapes=(Shape(type=struct("V"), fields={"a": Shape(type=INT)}),),
        variables=(Variable("variables", struct("V")),),
    )
    assert "undefined field 'b'" in _refusal(first, "variables.a + variables.b")
    second = first.extend(shapes=(Shape(type=struct("V"), fields={"a": Shape(type=INT), "b": Shape(type=INT)}),))
    assert second.compile("variables.a + variables.b").output == INT


def test_comprehensions_nest_as_deeply_as_the_environment_allows() -> None:
    environment = ENVIRONMENT.extend(validators=(comprehension_nesting(2),))
    assert environment.compile("[1].all(a, [1].all(b, [].all(c, true)))").output == BOOL
    assert "1:30: comprehension exceeds nesting limit" in _refusal(
        environment, "[1].all(a, [1].all(b, [1].all(c, true)))"
    )


# Texts of at most 10,240 bytes that make the checker work hard; what they are checked to.
DOUBLED = ".map(a, {a: a})"
HOSTILE = {
    "types that double a hundred times": f"[1]{DOUBLED * 100}",
    "two types that double a hundred times, compared": f"[[1]]{DOUBLED * 100} == [[dyn(1)]]{DOUBLED * 100}",
    "two open types that double sixty times, compared": f"[[]]{DOUBLED * 60} == [[]]{DOUBLED * 60}",
    "thousands of open lists": f"[{','.join(['[]'] * 3000)}]",
    "sums of open lists": f"[{','.join(['[]' + '+[]' * 200] * 15)}]",
    "an index of an index": "o" + "[0]" * 200,
    "an index into an open map": "{}" + "[{}]" * 200,
    "a field of a field": "o" + ".a" * 200,
    "thousands of arguments": f"[{','.join(['o'] * 5000)}].all(x, x)",
    "a chain of options": "optional.none()" + ".or(optional.none())" * 200,
    "lists that are bound to each other, compared": f"[{','.join(['[[],' * 150 + '[]' + ']' * 150] * 4)}]",
    "lists in lists in lists": f"[1]{('.map(a, ' + '[' * 10 + 'a' + ']' * 10 + ')') * 150}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_expression_that_makes_the_checker_work_is_checked(name: str) -> None:
    text = HOSTILE[name]
    assert len(text) <= 10_240
    ENVIRONMENT.extend(validators=KUBERNETES).compile(text)


def test_an_expression_that_takes_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"[{','.join(['[[],' * 50 + '[]' + ']' * 50] * 10)}]"
    ENVIRONMENT.compile(text)
    monkeypatch.setattr(checker, "LIMIT", 1_000)
    assert "expression is too complex to check" in _refusal(ENVIRONMENT, text)


def test_the_texts_of_all_complaints_together_are_bounded() -> None:
    environment = ENVIRONMENT.extend(validators=KUBERNETES)
    refusal = _refusal(environment, f"[1]{DOUBLED * 60}.map(v, [{', '.join(['v + 1'] * 200)}])")
    assert len(refusal) < 2**20
    assert "found no matching overload for '_+_' applied to '(map(map(map(" in refusal


def test_a_variable_of_a_macro_ends_with_it() -> None:
    assert "1:22: undeclared reference to 'x'" in _refusal(ENVIRONMENT, "[1].all(x, x > 0) && x")
    assert ENVIRONMENT.compile("[1].map(i, [i].map(i, string(i)))").output == list_of(list_of(STRING))
    assert ENVIRONMENT.compile("{'a': 1}.map(i, i) == ['a'] && i == 1").output == BOOL


def test_a_map_of_maps_keeps_its_types() -> None:
    assert ENVIRONMENT.compile("{'a': {'b': [1]}}").output == map_of(STRING, map_of(STRING, list_of(INT)))
