from __future__ import annotations

from typing import Any

import pytest

from apiserver.codecs.objects import canonical
from kubetext import names
from tests.unit.resources import samples
from tests.unit.resources.samples import created, updated

KIND = samples.KINDS["DeviceClass"]
CLASS: dict[str, Any] = {"metadata": {"name": "gpu.example.com"}, "spec": {}}


def configured(parameters: Any, **metadata: Any) -> dict[str, Any]:
    opaque = {"driver": "gpu.example.com", "parameters": parameters}
    return {"metadata": {**CLASS["metadata"], **metadata}, "spec": {"config": [{"opaque": opaque}]}}


def test_the_zero_object_is_the_bookmark_of_upstream() -> None:
    assert canonical.zero(KIND.shape) == {"metadata": {}, "spec": {}}


def test_a_class_without_a_spec_is_valid() -> None:
    obj, errors = created(KIND, {"metadata": {"name": "a"}})
    assert errors == []
    assert samples.served(KIND, obj) == '{"metadata":{"name":"a"},"spec":{}}'


def test_a_selector_and_a_configuration_must_have_their_one_member() -> None:
    spec: dict[str, Any] = {"selectors": [{}], "config": [{}]}
    assert created(KIND, {**CLASS, "spec": spec})[1] == [
        "spec.selectors[0].cel: Required value",
        "spec.config[0].opaque: Required value",
    ]


def test_an_expression_has_a_limited_length() -> None:
    spec = {"selectors": [{"cel": {"expression": "x" * 10241}}]}
    text = "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"
    assert created(KIND, {**CLASS, "spec": spec})[1] == [text]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (None, ["Required value"]),
        ([1], ['Invalid value: "<value omitted>": must be a valid JSON object']),
        ("text", ['Invalid value: "<value omitted>": must be a valid JSON object']),
        ({}, []),
        ({"k": "v" * 10232}, []),
        ({"k": "v" * 10233}, ["Too long: may not be more than 10240 bytes"]),
        ({"k": "ü" * 5117}, ["Too long: may not be more than 10240 bytes"]),
        ({"huge": 10**30}, []),
    ],
)
def test_parameters_are_a_json_object_of_limited_length(parameters: Any, expected: list[str]) -> None:
    errors = created(KIND, configured(parameters))[1]
    assert errors == [f"spec.config[0].opaque.parameters: {text}" for text in expected]


def test_long_stored_parameters_may_stay_while_the_list_is_unchanged() -> None:
    long = {"k": "v" * 11000}
    assert updated(KIND, configured(long, labels={"a": "b"}), configured(long))[1] == []
    changed = configured(long)
    changed["spec"]["config"].append(configured({})["spec"]["config"][0])
    text = "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"
    assert updated(KIND, changed, configured(long))[1] == [text]


def test_a_configuration_stands_inline_in_json() -> None:
    obj, _ = created(KIND, configured({"b": 1, "a": 1e3}))
    assert '"config":[{"opaque":{"driver":"gpu.example.com","parameters":{"a":1000,"b":1}}}]' in samples.served(
        KIND, obj
    )


@pytest.mark.parametrize(
    "name", ["accel", "kubernetes.io/x", "a.kubernetes.io/x", "requests.a/x", "a/b/c", "A.b/c", "", "a/"]
)
def test_a_name_that_is_no_extended_resource_is_refused(name: str) -> None:
    errors = created(KIND, {**CLASS, "spec": {"extendedResourceName": name}})[1]
    assert errors == [f'spec.extendedResourceName: Invalid value: "{name}": must be a valid extended resource name']


def test_generated_names_are_judged_and_their_prefixes_are_not() -> None:
    assert KIND.name_check is not None
    assert KIND.name_check("accel.", True) == []
    assert KIND.name_check("a" * 254, False) == ["must be no more than 253 bytes"]
    assert KIND.name_check("A", False) == [names.NOT_SUBDOMAIN]


def test_columns() -> None:
    assert [c.name for c in KIND.columns] == ["Name", "Age"]
    assert [c.cell({"metadata": {"name": "a"}}, 0.0) for c in KIND.columns] == ["a", "<unknown>"]
