"""Paths and field errors, printed as Go prints them."""

import gc
from typing import Any

import pytest

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError


def test_a_path_is_printed_from_the_root() -> None:
    path = ROOT.child("spec").child("devices").index(0).child("attributes").key("a.io/x")
    assert str(path) == "spec.devices[0].attributes[a.io/x]"
    assert str(ROOT) == ""


def test_a_step_leaves_the_path_it_started_from_alone() -> None:
    spec = ROOT.child("spec")
    spec.child("a")
    assert str(spec.index(1)) == "spec[1]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        ('a"b\\', r'"a\"b\\"'),
        ("tab\t\n\a\x7f\x00", r'"tab\t\n\a\x7f\x00"'),
        ("é", '"é"'),
        ("\u200b\u2028\U000e0001", r'"\u200b\u2028\U000e0001"'),
        ("\udcff", r'"\xff"'),
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (None, "null"),
        (["x", "<"], r'["x","\u003c"]'),
        ({"a": [1, True, None]}, '{"a":[1,true,null]}'),
        (fieldpath.Typed("a<\u2028"), r'"a\u003c\u2028"'),
    ],
)
def test_a_bad_value_is_shown_as_go_shows_it(value: Any, text: str) -> None:
    assert fieldpath.show(value) == text


@pytest.mark.parametrize(
    ("error", "reason", "body"),
    [
        (fieldpath.required("f"), "FieldValueRequired", "Required value"),
        (fieldpath.required("f", "why"), "FieldValueRequired", "Required value: why"),
        (fieldpath.invalid("f", "v"), "FieldValueInvalid", 'Invalid value: "v"'),
        (fieldpath.invalid("f", 5, "why"), "FieldValueInvalid", "Invalid value: 5: why"),
        (
            fieldpath.not_supported("f", "v", ("A", "B")),
            "FieldValueNotSupported",
            'Unsupported value: "v": supported values: "A", "B"',
        ),
        (fieldpath.not_supported("f", "v", ()), "FieldValueNotSupported", 'Unsupported value: "v"'),
        (fieldpath.duplicate("f", "v"), "FieldValueDuplicate", 'Duplicate value: "v"'),
        (fieldpath.not_found("f", "v"), "FieldValueNotFound", 'Not found: "v"'),
        (fieldpath.forbidden("f", "why"), "FieldValueForbidden", "Forbidden: why"),
        (fieldpath.too_long("f", 1), "FieldValueTooLong", "Too long: may not be more than 1 byte"),
        (fieldpath.too_long("f", 2), "FieldValueTooLong", "Too long: may not be more than 2 bytes"),
        (fieldpath.too_many("f", 3, 1), "FieldValueTooMany", "Too many: 3: must have at most 1 item"),
        (fieldpath.too_many("f", 3, 2), "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
        (fieldpath.internal("f", "why"), "InternalError", "Internal error: why"),
    ],
)
def test_an_error_has_a_reason_a_field_and_a_body(error: FieldError, reason: str, body: str) -> None:
    assert (error.reason, error.field, error.body) == (reason, "f", body)
    assert str(error) == f"f: {body}"
    assert error.cause() == {"reason": reason, "message": body, "field": "f"}


def test_message_about_a_bad_value_leaves_no_garbage() -> None:
    value = {"driver": "d", "pool": [1, "p", {}], "conditions": [{"type": "a", "status": None}]}
    text = '{"driver":"d","pool":[1,"p",{}],"conditions":[{"type":"a","status":null}]}'
    gc.collect()
    gc.disable()
    try:
        assert {fieldpath.show(value) for _ in range(1000)} == {text}
        left = gc.collect()
    finally:
        gc.enable()
    assert left < 1000


def test_json_that_no_parser_reads_is_shown_as_text_and_cut_if_long() -> None:
    assert fieldpath.show(fieldpath.shown_json('{"a":1e400}')) == '{"a":1e400}'
    shown = fieldpath.show(fieldpath.shown_json('{"a":"' + "x" * 100_000 + '"}'))
    assert len(shown) < 100_000
    assert shown.endswith("more characters")
