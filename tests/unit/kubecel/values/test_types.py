"""Types of CEL: when two are the same, and how they are printed."""

import pytest

from kubecel.values.types import (
    ANY,
    BOOL,
    DURATION,
    DYN,
    ERROR,
    INT,
    NULL,
    PRINTED,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    assignable,
    equivalent,
    format_type,
    list_of,
    map_of,
    nullable,
    opaque,
    optional_of,
    parameter,
    struct,
    type_of,
)


@pytest.mark.parametrize(
    ("of", "string", "issue"),
    [
        (BOOL, "bool", "bool"),
        (ANY, "google.protobuf.Any", "any"),
        (DURATION, "google.protobuf.Duration", "duration"),
        (TIMESTAMP, "google.protobuf.Timestamp", "timestamp"),
        (NULL, "null_type", "null"),
        (ERROR, "error", "!error!"),
        (TYPE, "type", "type"),
        (type_of(INT), "type(int)", "type(int)"),
        (parameter("A"), "<A>", "A"),
        (list_of(parameter("A")), "list(<A>)", "list(A)"),
        (map_of(STRING, list_of(NULL)), "map(string, list(null_type))", "map(string, list(null))"),
        (optional_of(DYN), "optional_type(dyn)", "optional_type(dyn)"),
        (opaque("optional_type"), "optional_type", "optional_type"),
        (nullable(INT), "wrapper(int)", "wrapper(int)"),
        (list_of(nullable(INT)), "list(wrapper(int))", "list(wrapper(int))"),
        (struct("kubernetes.DRADevice"), "kubernetes.DRADevice", "kubernetes.DRADevice"),
        (struct("google.protobuf.Struct"), "map(string, dyn)", "map(string, dyn)"),
    ],
)
def test_a_type_is_printed_in_two_ways(of: Type, string: str, issue: str) -> None:
    assert str(of) == string
    assert format_type(of) == issue


def test_types_are_the_same_when_all_of_them_is() -> None:
    assert list_of(INT) == list_of(INT)
    assert hash(list_of(INT)) == hash(list_of(INT))
    assert list_of(INT) != list_of(UINT)
    assert list_of(parameter("A")) != list_of(parameter("B"))
    assert equivalent(list_of(parameter("A")), list_of(parameter("B")))
    assert nullable(INT) != INT
    assert list_of(nullable(INT)).bare == list_of(INT)
    assert INT != "int"


def test_declarations_see_parameters_as_dyn() -> None:
    assert assignable(list_of(DYN), list_of(STRING))
    assert assignable(map_of(parameter("K"), INT), map_of(STRING, INT))
    assert not assignable(list_of(STRING), list_of(DYN))
    assert assignable(nullable(INT), NULL)
    assert not assignable(INT, NULL)


def test_the_text_of_a_type_that_doubles_and_doubles_is_cut() -> None:
    of = INT
    for _ in range(200):
        of = map_of(of, of)
    assert len(str(of)) == PRINTED
    assert len(format_type(of, 100)) == 100


def test_a_type_may_be_nested_to_any_depth() -> None:
    of = INT
    for _ in range(10_000):
        of = list_of(of)
    assert format_type(of) == "list(" * 10_000 + "int" + ")" * 10_000
