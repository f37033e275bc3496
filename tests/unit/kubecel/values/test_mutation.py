"""Objects and JSON patches, as expressions of mutating policies make them: values, costs and words of cel-go with upstream's types."""

from __future__ import annotations

from typing import Any

import pytest

from kubecel.kubernetes import environments
from kubecel.parse.source import CompileError
from kubecel.plan.program import Outcome, Program
from kubecel.values import mutation
from kubecel.values.errors import EvaluationError, ProgramError
from kubecel.values.mutation import ObjectValue, PatchValue
from kubecel.values.values import ABSENT

ENVIRONMENT = environments.admission(params=False, authorizes=False).extend(environments.MUTATIONS).stored
OBJECT = {"x": 2, "list": [1], "map": {"a": "b"}}


def _evaluated(text: str) -> Outcome:
    return Program(ENVIRONMENT.compile(text), ENVIRONMENT).evaluate({"object": OBJECT})


def _shown(value: Any) -> Any:
    if isinstance(value, ObjectValue):
        return {name: _shown(field) for name, field in value.fields.items()}
    if isinstance(value, PatchValue):
        return (value.op, value.path, value.origin, value.value)
    return [_shown(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("text", "value", "cost"),
    [
        ("Object{}", {}, 40),
        ("Object{spec: Object.spec{replicas: 3}}", {"spec": {"replicas": 3}}, 80),
        ("Object{a: object.list, b: object.map}", {"a": [1], "b": {"a": "b"}}, 44),
        ("Object{a: [Object.a{}]}", {"a": [{}]}, 90),
        ("Object{?existing: optional.none()}", {}, 41),
        ("Object{?spec: optional.ofNonZeroValue(Object.spec{?replicas: Object{}.?replicas})}", {}, 122),
        ("Object{intList: [1, 2, 3]}.intList.sum()", 6, 45),
        ("Object{a: Object.a{b: 1}}.a", {"b": 1}, 82),
        ("Object{a: Object.a{b: 1}}.a.b", 1, 83),
        ("Object{}.x", None, 42),
        ("has(Object{a: 1}.a)", True, 41),
        ("has(Object{a: 1}.b)", False, 41),
        ("Object{spec: Object.spec{replicas: 3}} == Object{spec: Object.spec{replicas: 1 + 2}}", True, 162),
        ("Object{a: {'x': 1}} == Object{a: {'x': 1}}", True, 81),
        ("Object{a: [1]} == Object{a: [1]}", False, 81),
        ("Object{a: 1} == dyn(1)", False, 41),
        ("[Object{a: 1}] == [Object{a: 1}]", True, 101),
        ("Object{a: 1} in [Object{a: 1}]", True, 91),
        ("JSONPatch{op: 'add', path: '/a', value: 3}", ("add", "/a", "", 3), 40),
        ("JSONPatch{op: 'move', from: '/a', path: '/b'}", ("move", "/b", "/a", ABSENT), 40),
        ("JSONPatch{op: 'a'}.op", "a", 42),
        ("JSONPatch{}.value", None, 42),
        ("[JSONPatch{op: 'x'}, JSONPatch{path: '/a'}].map(p, p.path)", ["", "/a"], 119),
        ("has(JSONPatch{}.op)", False, 41),
        ("has(JSONPatch{value: 1}.value)", True, 41),
        ("JSONPatch{op: 'a', value: 1} == JSONPatch{op: 'a', value: 1}", True, 81),
        ("JSONPatch{value: [1]} == JSONPatch{value: [1]}", True, 81),
        ("JSONPatch{value: '1'} == JSONPatch{value: 1}", False, 81),
        ("JSONPatch{} == JSONPatch{value: 1}", False, 81),
        ("jsonpatch.escapeKey('k8s.io/x~y')", "k8s.io~1x~0y", 1),
        ("jsonpatch.escapeKey('0123456789/')", "0123456789~1", 2),
    ],
)
def test_constructed_values_have_upstreams_value_and_cost(text: str, value: Any, cost: int) -> None:
    outcome = _evaluated(text)
    assert (_shown(outcome.value), outcome.cost) == (value, cost)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Invalid{}", "undeclared reference to 'Invalid'"),
        ("JSONPatch{op: 1}", "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("JSONPatch{foo: 1}", "expected type of field 'foo' is '' but provided type is 'int'"),
        ("Object{a: 1} != Object.a{}", "found no matching overload for '_!=_' applied to '(Object, Object.a)'"),
        ("[Object.a{}, Object.b{}]", "expected type 'Object.a' but found 'Object.b'"),
    ],
)
def test_error_known_to_the_checker_is_reported_when_compiling(text: str, words: str) -> None:
    with pytest.raises(CompileError, match=words.replace("(", r"\(").replace(")", r"\)")):
        ENVIRONMENT.compile(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("JSONPatch{op: dyn(1)}", "unexpected type int64 for JSONPatchType 'op' field"),
        ("JSONPatch{path: dyn(b'x')}", "unexpected type []uint8 for JSONPatchType 'path' field"),
        ("JSONPatch{foo: dyn(1)}", "unexpected JSONPatchType field: foo"),
        ("size(dyn(Object{a: 1}))", "no such overload: size"),
    ],
)
def test_other_errors_are_reported_when_evaluating(text: str, words: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        _evaluated(text)
    assert str(caught.value) == words


def test_the_types_of_objects_are_no_values() -> None:
    with pytest.raises(ProgramError, match="reference to undefined type: Object"):
        _evaluated("type(Object{}) == Object")


def test_objects_must_be_named_for_the_place_where_they_stand() -> None:
    text = "Object{spec: Object.wrong{x: 1}, b: [Object.c{}], d: {'e': Object.d{}, 'f': Object.d{g: Object{}}}}"
    told = "unexpected type name {}, expected {}, which matches field name path from root Object type"
    assert list(mutation.misplaced(_evaluated(text).value)) == [
        told.format('"Object.wrong"', '"Object.spec"'),
        told.format('"Object.c"', '"Object.b"'),
        told.format('"Object"', '"Object.d.g"'),
    ]
    assert not list(mutation.misplaced(_evaluated("Object.spec{a: Object.spec.a{b: [Object.spec.a.b{}]}}").value))
    assert not list(mutation.misplaced(1))


def test_mutation_types_are_unknown_to_other_expressions() -> None:
    others = environments.admission(params=False, authorizes=False).stored
    for text in ("Object{}", "JSONPatch{}", "jsonpatch.escapeKey('a')"):
        with pytest.raises(CompileError, match="undeclared reference"):
            others.compile(text)
