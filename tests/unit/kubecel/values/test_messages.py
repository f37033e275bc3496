"""Messages of protobuf, as expressions make them: `google.protobuf.Int64Value{value: 3}`."""

from typing import Any

import pytest

from kubecel.check.declarations import Shape, Variable
from kubecel.check.environment import Environment
from kubecel.libraries import optionals, standard
from kubecel.plan.program import Program
from kubecel.values.errors import EvaluationError
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import DYN, STRING, struct

ENVIRONMENT = Environment().extend(
    libraries=(standard.LIBRARY, optionals.LIBRARY),
    variables=(Variable("o", DYN),),
    shapes=(Shape(type=struct("Widget"), fields={"name": Shape(type=STRING)}),),
)


def _evaluated(text: str, o: Any = None) -> Any:
    return Program(ENVIRONMENT.compile(text), ENVIRONMENT).evaluate({"o": o}).value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("google.protobuf.Int64Value{value: 3} + 1", 4),
        ("google.protobuf.Int64Value{}", 0),
        ("google.protobuf.Int64Value{} == null", False),
        ("google.protobuf.Int64Value{value: 1, ?value: optional.none()}", 0),
        ("google.protobuf.UInt32Value{value: 7u} == 7u", True),
        ("google.protobuf.FloatValue{value: 1.1}", 1.100000023841858),
        ("google.protobuf.BytesValue{}", b""),
        ("google.protobuf.Struct{fields: o}", {"a": [1.0, "9007199254740992", None], "b": {"c": "1s"}, "d": "YQ=="}),
        ("google.protobuf.ListValue{values: [dyn(1u), dyn(true)]}", [1.0, True]),
        ("google.protobuf.Value{string_value: 'a'}", "a"),
        ("google.protobuf.Value{}", None),
        ("google.protobuf.Duration{seconds: 1, nanos: 5}", Duration(1_000_000_005)),
        ("google.protobuf.Timestamp{seconds: 1, nanos: -1}", Timestamp(0, 999_999_999)),
        ("google.protobuf.Empty{} == google.protobuf.Empty{}", True),
        ("google.protobuf.Int64Value{value: o.size()} == 1 || true", True),
    ],
)
def test_a_message_is_a_value_of_the_language(text: str, value: Any) -> None:
    document = {"a": [1, 2**53, None], "b": {"c": Duration(10**9)}, "d": b"a"}
    found = _evaluated(text, document)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "google.protobuf.Int64Value{value: o}",
            "Int64Value.value value type: unsupported native conversion from string to 'int64'",
        ),
        ("google.protobuf.Int32Value{value: 5000000000}", "Int32Value.value value type: integer overflow"),
        ("google.protobuf.UInt32Value{value: 5000000000u}", "UInt32Value.value value type: unsigned integer overflow"),
        ("google.protobuf.Struct{fields: o}", "unsupported field type for google.protobuf.Struct.fields: string"),
        (
            "google.protobuf.Struct{fields: dyn({1: 2})}",
            "Struct.fields value type: unsupported type conversion from 'int' to string",
        ),
        (
            "google.protobuf.ListValue{values: [dyn(int)]}",
            "ListValue.values value type: type conversion not supported for 'type'",
        ),
        ("google.protobuf.Int64Value{?value: o}", "cannot initialize optional entry 'value' from non-optional value"),
        (
            "google.protobuf.Int64Value{value: dyn(optional.none())}",
            "Int64Value.value value type: optional.none() dereference",
        ),
        ("Widget{name: 'a'}", "unknown type 'Widget'"),
    ],
)
def test_value_that_does_not_fit_a_field_is_an_error(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as failed:
        _evaluated(text, "x")
    assert message in str(failed.value)


def test_a_document_becomes_a_message_however_deep_it_is() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    found = _evaluated("google.protobuf.ListValue{values: o}", deep)
    for _ in range(5_000):
        found = found[0]
    assert found == 1.0
