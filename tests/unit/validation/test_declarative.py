"""Declarative validation behind the checks of a kind."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError, FieldErrors
from apiserver.apimachinery.releases import V1_36, V1_37
from apiserver.codecs.json import rawjson
from apiserver.validation import declarative
from tests.unit.resources.samples import BY_RELEASE, CLAIM, SLICE, decoded

CLAIMS = BY_RELEASE[V1_37]["ResourceClaim"]
REPORT = {"driver": "gpu.example.com", "pool": "p", "device": "d"}


def claim(*devices: dict[str, Any]) -> dict[str, Any]:
    obj = decoded(CLAIMS, CLAIM)
    return {**obj, "status": {"devices": list(devices)}}


def combined(found: list[FieldError], *devices: dict[str, Any]) -> list[str]:
    return [str(error) for error in declarative.combined(CLAIMS, FieldErrors(found), claim(*devices), None)]


@pytest.mark.parametrize("number", ["1e400", "9" * 5000])
def test_a_repeated_element_is_shown_with_numbers_that_no_parser_reads(number: str) -> None:
    report = {**REPORT, "data": rawjson.of(b'{"a":%s}' % number.encode())}
    (error,) = combined([], report, report)
    assert error.startswith('status.devices[1]: Duplicate value: {"driver":"gpu.example.com"')
    assert f'"data":{{"a":{number}}}' in error


def test_a_declared_error_replaces_that_of_the_kind_with_its_reason_and_path() -> None:
    at = ROOT.child("status").child("devices")
    own = [fieldpath.duplicate(at.index(1), "gpu.example.com/p/d"), fieldpath.invalid(at.index(0), "x", "stays")]
    first, second = combined(own, REPORT, REPORT)
    assert first == 'status.devices[0]: Invalid value: "x": stays'
    assert second.startswith("status.devices[1]: Duplicate value: {")


def test_repetitions_of_a_set_come_before_errors_of_its_elements() -> None:
    slices = BY_RELEASE[V1_37]["ResourceSlice"]
    sent = {**decoded(slices, SLICE), "spec": {**SLICE["spec"], "skipNodeOperations": ["x", "*", "x"]}}
    at = ROOT.child("spec").child("skipNodeOperations")
    names = ["*", "NodePrepareResources", "NodeUnprepareResources"]
    own = [fieldpath.not_supported(at.index(i), "x", names) for i in (0, 2)] + [fieldpath.duplicate(at.index(2), "x")]
    errors = [(error.field, error.reason) for error in declarative.combined(slices, FieldErrors(own), sent, None)]
    unsupported = "FieldValueNotSupported"
    assert errors == [
        ("spec.skipNodeOperations[2]", "FieldValueDuplicate"),
        ("spec.skipNodeOperations[0]", unsupported),
        ("spec.skipNodeOperations[2]", unsupported),
    ]


def test_a_release_without_declarations_reports_the_errors_of_the_kind() -> None:
    found = FieldErrors([fieldpath.invalid(ROOT.child("spec"), "x", "stays")])
    kind = BY_RELEASE[V1_36]["ResourceClaim"]
    assert declarative.combined(kind, found, claim(REPORT, REPORT), None) is found
