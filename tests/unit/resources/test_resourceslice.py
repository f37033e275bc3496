from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apimachinery.releases import SUPPORTED, V1_36, V1_37, Release
from apiserver.codecs.objects import canonical
from tests.unit.resources import samples
from tests.unit.resources.samples import BY_RELEASE, SLICE, created, decoded, served, updated, with_device, with_spec

KIND = samples.KINDS["ResourceSlice"]
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def test_a_valid_slice_passes_and_keeps_upstreams_order_of_members() -> None:
    obj, errors = created(KIND, SLICE)
    assert errors == []
    assert served(KIND, obj) == (
        '{"metadata":{"name":"n1-gpu"},"spec":{"driver":"gpu.example.com",'
        '"pool":{"name":"n1","generation":1,"resourceSliceCount":1},"nodeName":"n1",'
        '"devices":[{"name":"gpu-0","attributes":{"model":{"string":"x"}},"capacity":{"memory":{"value":"80Gi"}}}]}}'
    )


def test_the_zero_object_is_the_bookmark_of_upstream() -> None:
    zero = {"metadata": {}, "spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}}
    assert canonical.zero(KIND.shape) == zero


@pytest.mark.parametrize("sent", [{"metadata": {"name": "a"}}, {"metadata": {"name": "a"}, "spec": {}}])
def test_an_empty_spec_is_refused_in_the_words_and_order_of_a_real_server(sent: dict[str, Any]) -> None:
    assert created(KIND, sent)[1] == [
        "spec.driver: Required value",
        "spec.pool.name: Required value",
        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
        f"spec: Required value: {SELECTION}",
    ]


def test_two_node_selections_are_named() -> None:
    sent = with_spec(SLICE, allNodes=True)
    text = f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {SELECTION}, but multiple fields are set'
    assert created(KIND, sent)[1] == [text]


def test_an_empty_node_name_is_wrong_and_selects_nothing() -> None:
    assert created(KIND, with_spec(SLICE, nodeName=""))[1] == [
        'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
        f"spec: Required value: {SELECTION}",
    ]


def test_an_upper_case_driver_is_accepted_with_a_warning() -> None:
    obj, errors = created(KIND, with_spec(SLICE, driver="GPU.example.com"))
    assert errors == []
    expected = 'spec.driver: driver names should be lowercase; "GPU.example.com" contains uppercase characters'
    assert KIND.warnings(samples.context_of(KIND), obj, None) == [expected]
    assert KIND.warnings(samples.context_of(KIND), obj, obj) == [expected]
    assert KIND.warnings(samples.context_of(KIND), created(KIND, SLICE)[0], None) == []


def test_a_driver_whose_lower_case_is_ascii_is_accepted_with_a_warning() -> None:
    obj, errors = created(KIND, with_spec(SLICE, driver="\u0130.example.com"))
    assert errors == []
    assert len(list(KIND.warnings(samples.context_of(KIND), obj, None))) == 1


def test_a_bad_driver_shows_the_name_as_it_was_sent() -> None:
    assert created(KIND, with_spec(SLICE, driver="GPU_1"))[1] == [f'spec.driver: Invalid value: "GPU_1": {SUBDOMAIN}']


def test_device_without_a_name_fails_the_format_and_not_the_requirement() -> None:
    errors = created(KIND, with_device(name=None))[1]
    assert len(errors) == 1
    assert errors[0].startswith('spec.devices[0].name: Invalid value: "": a lowercase RFC 1123 label must consist of')


def test_an_update_refuses_what_is_immutable() -> None:
    pool = {"name": "q", "generation": 0, "resourceSliceCount": 1}
    _, errors = updated(KIND, with_spec(SLICE, driver="other.io", pool=pool, nodeName="n2"), SLICE)
    assert errors == [
        'spec.pool.name: Invalid value: "q": field is immutable',
        'spec.driver: Invalid value: "other.io": field is immutable',
        'spec.nodeName: Invalid value: "n2": field is immutable',
    ]


def test_removal_of_the_node_name_is_a_change() -> None:
    _, errors = updated(KIND, with_spec(SLICE, nodeName=None, allNodes=True), SLICE)
    assert errors == ["spec.nodeName: Invalid value: null: field is immutable"]


def test_taints_get_the_time_of_the_request_and_keep_their_own() -> None:
    taints = [{"key": "a", "effect": "None"}, {"key": "b", "effect": "None", "timeAdded": "2020-01-01T02:00:00+02:00"}]
    obj, errors = created(KIND, with_device(taints=taints))
    assert errors == []
    assert [t["timeAdded"] for t in obj["spec"]["devices"][0]["taints"]] == [samples.NOW, "2020-01-01T00:00:00Z"]


def test_unchanged_taints_are_not_judged_again_but_changed_ones_are() -> None:
    bad = {"key": "x", "effect": "Drain", "timeAdded": samples.NOW}
    old = with_device(taints=[bad])
    assert updated(KIND, with_device(taints=[bad]), old)[1] == []
    text = 'Unsupported value: "Drain": supported values: "NoExecute", "NoSchedule", "None"'
    assert updated(KIND, with_device(taints=[bad, {**bad, "key": "y"}]), old)[1] == [
        f"spec.devices[0].taints[0].effect: {text}",
        f"spec.devices[0].taints[1].effect: {text}",
    ]
    assert updated(KIND, with_device(name="other", taints=[bad]), old)[1] == [
        f"spec.devices[0].taints[0].effect: {text}"
    ]


def test_too_many_taints_are_counted_and_not_looked_at() -> None:
    errors = created(KIND, with_device(taints=[{"key": "!"}] * 17))[1]
    assert errors == ["spec.devices[0].taints: Too many: 17: must have at most 16 items"]


def test_list_attributes_are_dropped_unless_the_stored_slice_uses_them() -> None:
    lists = with_device(attributes={"links": {"ints": [1, 2]}})
    assert created(KIND, lists)[1] == [
        'spec.devices[0].attributes[links]: Invalid value: "": exactly one value must be specified'
    ]
    new, errors = updated(KIND, lists, lists)
    assert errors == []
    assert new["spec"]["devices"][0]["attributes"] == {"links": {"ints": [1, 2]}}


def test_list_attributes_in_use_are_validated() -> None:
    stored = with_device(attributes={"links": {"ints": [1]}})
    attributes = {
        "a": {"ints": []},
        "b": {"int": 1, "bools": [True]},
        "c": {"strings": ["ok", "x" * 65]},
        "d": {"versions": ["1.x"]},
    }
    at = "spec.devices[0].attributes"
    shown = '{"IntValue":1,"BoolValue":null,"StringValue":null,"VersionValue":null,"IntValues":null,'
    shown += '"BoolValues":[true],"StringValues":null,"VersionValues":null}'
    assert updated(KIND, with_device(attributes=attributes), stored)[1] == [
        f"{at}[a].ints: Invalid value: []: must not be empty if specified",
        f"{at}[b]: Invalid value: {shown}: exactly one value must be specified",
        f"{at}[c].strings[1]: Too long: may not be more than 64 bytes",
        f'{at}[d].versions[0]: Invalid value: "1.x": must be a string compatible with semver.org spec 2.0.0',
    ]


def test_values_of_list_attributes_are_counted_one_by_one() -> None:
    stored = with_device(attributes={"links": {"ints": [1]}})
    full = {"a": {"ints": list(range(40))}, **{f"b{i}": {"int": i} for i in range(8)}}
    assert updated(KIND, with_device(attributes=full), stored)[1] == []
    over = {**full, "c": {"bools": []}}
    assert updated(KIND, with_device(attributes=over), stored)[1] == [
        "spec.devices[0]: Invalid value: 49: the total number of attribute values must not exceed 48",
        "spec.devices[0].attributes[c].bools: Invalid value: []: must not be empty if specified",
    ]


def test_attributes_and_capacities_are_counted_together() -> None:
    attributes = {f"a{i}": {"int": i} for i in range(32)}
    assert created(KIND, with_device(attributes=attributes, capacity=None))[1] == []
    assert created(KIND, with_device(attributes=attributes))[1] == [
        "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32"
    ]


def test_node_allocatable_mappings_are_dropped_unless_in_use() -> None:
    sent = with_device(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "memory"}})
    kind = BY_RELEASE[V1_36]["ResourceSlice"]
    assert "nodeAllocatableResourceMappings" not in created(kind, sent, V1_36)[0]["spec"]["devices"][0]
    new, errors = updated(kind, sent, sent, V1_36)
    assert errors == []
    mapping = {"capacityKey": "memory", "allocationMultiplier": "1"}
    assert new["spec"]["devices"][0]["nodeAllocatableResourceMappings"] == {"cpu": mapping}


@pytest.mark.parametrize(
    ("name", "mapping", "expected"),
    [
        (
            "vendor.example/x",
            {},
            '[vendor.example/x]: Invalid value: "vendor.example/x": must be a node allocatable resource name',
        ),
        ("cpu", {"allocationMultiplier": "0"}, '[cpu].allocationMultiplier: Invalid value: "0": must be positive'),
        ("cpu", {"capacityKey": "cores"}, '[cpu].capacityKey: Not found: "cores"'),
        ("cpu", {"capacityKey": ""}, '[cpu].capacityKey: Invalid value: "": capacityKey must not be an empty string'),
    ],
)
def test_node_allocatable_mappings_in_use_are_validated(name: str, mapping: dict[str, Any], expected: str) -> None:
    stored = with_device(nodeAllocatableResourceMappings={"cpu": {}})
    sent = with_device(nodeAllocatableResourceMappings={name: mapping})
    errors = updated(BY_RELEASE[V1_36]["ResourceSlice"], sent, stored, V1_36)[1]
    assert errors == [f"spec.devices[0].nodeAllocatableResourceMappings{expected}"]


NODE_RESOURCES = "spec.devices[0].nodeAllocatableResources"


@pytest.mark.parametrize(
    ("name", "counted", "expected"),
    [
        ("cpu", {"mapping": {"deviceMultiplier": "8"}, "overhead": {"perPod": "0", "perContainer": "1"}}, []),
        ("hugepages-2Mi", {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}}, []),
        (
            "pods",
            {"overhead": {"perPod": "1"}},
            ['[pods]: Invalid value: "pods": must be a node allocatable resource name'],
        ),
        ("cpu", {}, ["[cpu]: Required value: at least one of mapping or overhead must be set"]),
        (
            "cpu",
            {"overhead": {}},
            ['[cpu].overhead: Invalid value: "": at least one of perPod or perContainer must be set'],
        ),
        ("cpu", {"overhead": {"perPod": "-1"}}, ['[cpu].overhead.perPod: Invalid value: "-1": must be non-negative']),
        (
            "cpu",
            {"mapping": {"capacityKey": "cores"}},
            [
                '[cpu].mapping.capacityKey: Not found: "cores"',
                "[cpu].mapping.capacityMultiplier: Required value: capacityMultiplier is required when capacityKey is set",
            ],
        ),
        (
            "cpu",
            {"mapping": {"capacityKey": "memory", "capacityMultiplier": "0", "deviceMultiplier": "1"}},
            [
                '[cpu].mapping.capacityMultiplier: Invalid value: "0": must be positive',
                (
                    '[cpu].mapping: Invalid value: "{capacityKey, deviceMultiplier}": '
                    "must specify exactly one of: `capacityKey`, `deviceMultiplier`"
                ),
            ],
        ),
        (
            "cpu",
            {"mapping": {"capacityMultiplier": "1"}},
            [
                "[cpu].mapping.capacityKey: Required value: capacityKey is required when capacityMultiplier is set",
                '[cpu].mapping: Invalid value: "": must specify one of: `capacityKey`, `deviceMultiplier`',
            ],
        ),
    ],
)
def test_node_allocatable_resources_are_a_mapping_or_an_overhead(
    name: str, counted: dict[str, Any], expected: list[str]
) -> None:
    sent = with_device(nodeAllocatableResources={name: counted})
    errors = created(KIND, sent, DRANodeAllocatableResources=True)[1]
    assert sorted(errors) == sorted(f"{NODE_RESOURCES}{text}" for text in expected)


CONSUMING = {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["a", "b"], []),
        (["a", "a"], ['[1]: Duplicate value: "a"']),
        (["a", "b", "c"], [": Too many: 3: must have at most 2 items"]),
        (["x" * 64], [f'[0]: Invalid value: "{"x" * 64}": must be no more than 63 bytes']),
    ],
)
def test_devices_name_at_most_two_groups_once_each(groups: list[str], expected: list[str]) -> None:
    sent = with_device(consumesCounters=[{**CONSUMING["consumesCounters"][0], "compatibilityGroups": groups}])
    errors = created(KIND, sent, DRADeviceCompatibilityGroups=True)[1]
    assert errors == [f"spec.devices[0].consumesCounters[0].compatibilityGroups{text}" for text in expected]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (["*"], []),
        (["NodePrepareResources", "NodeUnprepareResources"], []),
        (
            ["NodePrepareResources"],
            [
                (
                    ': Invalid value: ["NodePrepareResources"]: NodePrepareResources cannot be skipped unless '
                    "NodeUnprepareResources is also skipped"
                )
            ],
        ),
        (
            ["x", "*", "*"],
            [
                '[0]: Unsupported value: "x": supported values: "*", "NodePrepareResources", "NodeUnprepareResources"',
                '[2]: Duplicate value: "*"',
            ],
        ),
    ],
)
def test_a_node_that_prepares_devices_also_cleans_them_up(operations: list[str], expected: list[str]) -> None:
    errors = created(KIND, with_spec(SLICE, skipNodeOperations=operations), DRAOptionalNodeOperations=True)[1]
    assert sorted(errors) == sorted(f"spec.skipNodeOperations{text}" for text in expected)


TYPED = {"DRAPartitionableDevicesType": True, "DRAResourcePoolStatus": True}
MISSING = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"


@pytest.mark.parametrize(
    ("name", "members", "expected"),
    [
        ("gpu.example.com/model", CONSUMING, []),
        (
            "gpu.example.com/model",
            {},
            [
                (
                    '.partitionTypeAttribute: Invalid value: "gpu.example.com/model": may only be set on a slice which declares devices '
                    "that consume counters"
                )
            ],
        ),
        ("a.example/model", CONSUMING, [f".devices[0].attributes[a.example/model]: Required value: {MISSING}"]),
        (
            "/",
            CONSUMING,
            [f'.partitionTypeAttribute: Invalid value: "": {part} must not be empty' for part in ("prefix", "name")],
        ),
        ("x" * 64 + "/y", CONSUMING, [".partitionTypeAttribute: Too long: may not be more than 63 bytes"]),
        (
            "model",
            CONSUMING,
            [
                (
                    '.partitionTypeAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by '
                    "a slash"
                )
            ],
        ),
    ],
)
def test_devices_that_consume_counters_have_the_attribute_of_their_partition_type(
    name: str, members: dict[str, Any], expected: list[str]
) -> None:
    sent = with_device(**members)
    sent["spec"]["partitionTypeAttribute"] = name
    errors = created(KIND, sent, **TYPED)[1]
    assert errors == [f"spec{text}" for text in expected]


def test_a_partition_type_cannot_be_changed_while_the_feature_is_off() -> None:
    stored = with_device(**CONSUMING)
    stored["spec"]["partitionTypeAttribute"] = "gpu.example.com/model"
    sent = with_device(attributes={"model": {"string": "x"}, "other": {"string": "x"}}, **CONSUMING)
    sent["spec"]["partitionTypeAttribute"] = "gpu.example.com/other"
    assert updated(KIND, stored, stored)[1] == []
    assert updated(KIND, sent, stored)[1] == ["spec.partitionTypeAttribute: Forbidden"]


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
def test_slices_can_be_selected_by_their_pool_from_1_37_on(release: Release) -> None:
    assert ("spec.pool.name" in BY_RELEASE[release]["ResourceSlice"].selectable) is (release >= V1_37)


def policy(
    limits: dict[str, Any],
    release: Release = V1_36,
    /,
    *,
    value: str = "100",
    shared: bool = True,
    **switched: bool,
) -> list[str]:
    capacity = {"m": {"value": value, "requestPolicy": limits}}
    sent = with_device(allowMultipleAllocations=shared, capacity=capacity)
    errors = created(BY_RELEASE[release]["ResourceSlice"], sent, release, **switched)[1]
    return [e.removeprefix("spec.devices[0].capacity[m].requestPolicy") for e in errors]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"default": "1000"}, []),
        ({"default": "5", "validRange": {"min": "5", "step": "5"}}, []),
        (
            {"default": "5", "validValues": ["5"], "validRange": {"min": "5"}},
            [
                ': Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
            ],
        ),
        ({"validRange": {"min": "5"}}, [".default: Required value: required when validRange is defined"]),
        ({"default": "5", "validRange": {}}, [".validRange.min: Required value: required when validRange is defined"]),
        (
            {"default": "3", "validRange": {"min": "5", "max": "200"}},
            [
                '.validRange.min: Invalid value: "3": default is less than min: 5',
                '.validRange.max: Invalid value: "200": max is larger than capacity value: 100',
            ],
        ),
        (
            {"default": "7", "validRange": {"min": "6", "max": "4"}},
            [
                '.validRange.max: Invalid value: "6": min is larger than max: 4',
                '.validRange.max: Invalid value: "7": default is more than max: 4',
            ],
        ),
        (
            {"default": "5", "validRange": {"min": "5", "step": "0"}},
            ['.validRange.step: Invalid value: "0": must be greater than zero'],
        ),
        (
            {"default": "6", "validRange": {"min": "5", "max": "14", "step": "5"}},
            [
                '.validRange.step: Invalid value: "6": value is not a multiple of a given step (5) from (5)',
                '.validRange.step: Invalid value: "14": value is not a multiple of a given step (5) from (5)',
            ],
        ),
        (
            {"default": "2", "validValues": ["2", "4", "3"]},
            ['.validValues[2]: Invalid value: "3": values must be sorted in ascending order'],
        ),
        (
            {"default": "2", "validValues": [str(i) for i in range(1, 12)]},
            [
                ".validValues: Too many: 11: must have at most 10 items",
                '.validValues: Invalid value: "2": default value is not valid according to the requestPolicy',
            ],
        ),
    ],
)
def test_a_request_policy_is_judged_against_the_capacity(limits: dict[str, Any], expected: list[str]) -> None:
    assert policy(limits) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (
            {"default": "2", "validRange": {"min": "1", "step": 10**30}},
            [
                f'.validRange.step: Invalid value: "1": one step {10**30 + 1} is larger than capacity value: 100',
                '.validRange.step: Invalid value: "2": value is not a multiple of a given step (1) from (1)',
            ],
        ),
        ({"default": "1000E", "validRange": {"min": "1"}}, []),
        (
            {"default": "99", "validRange": {"min": "99e0", "step": "1.5"}},
            ['.validRange.step: Invalid value: "1500m": one step 100500e-3 is larger than capacity value: 100'],
        ),
    ],
)
def test_an_amount_is_judged_as_it_was_sent(limits: dict[str, Any], expected: list[str]) -> None:
    """The canonical text is another amount beyond E, and may be another notation."""
    assert policy(limits) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (
            {"default": "4", "validRange": {"min": "5"}},
            ['.validRange.default: Invalid value: "4": default is less than min: 5'],
        ),
        (
            {"default": "7", "validRange": {"min": "6", "max": "4"}},
            [
                '.validRange.max: Invalid value: "6": min is larger than max: 4',
                '.validRange.default: Invalid value: "7": default is more than max: 4',
            ],
        ),
        (
            {"default": "5", "validRange": {"min": "-5", "step": "5"}},
            ['.validRange.min: Invalid value: "-5": must be greater than or equal to 0'],
        ),
    ],
)
def test_a_range_is_judged_as_kubernetes_1_37_does(limits: dict[str, Any], expected: list[str]) -> None:
    assert policy(limits, V1_37) == expected


def test_amounts_are_apart_by_what_fits_into_64_bits() -> None:
    limits = {"default": "9E", "validRange": {"min": "-9E", "max": "9E", "step": "1E"}}
    wrong = '.validRange.step: Invalid value: "9E": value is not a multiple of a given step (1E) from (-9E)'
    assert policy(limits, value="9E") == [wrong, wrong]


@pytest.mark.parametrize(("low", "step", "first"), [("1", "1e5000", "100e4998"), ("1e5000", "1", "100e4998")])
def test_amounts_of_thousands_of_digits_are_judged_too(low: str, step: str, first: str) -> None:
    errors = policy({"default": "1", "validRange": {"min": low, "step": step}})
    assert f": one step {first} is larger than capacity value: 100" in errors[-1]


def test_an_exclusive_device_has_no_request_policy() -> None:
    assert policy({"default": "1"}, shared=False) == [": Forbidden: allowMultipleAllocations must be true"]


def test_devices_select_nodes_only_where_the_slice_says_so() -> None:
    text = (
        "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` "
        "is set to true in the ResourceSlice spec"
    )
    assert created(KIND, with_device(allNodes=True))[1] == [f"spec.devices[0]: Invalid value: null: {text}"]


def test_a_slice_has_fewer_devices_when_one_of_them_has_extras() -> None:
    devices: list[dict[str, Any]] = [{"name": f"d{i}"} for i in range(65)]
    assert created(KIND, with_spec(SLICE, devices=devices))[1] == []
    devices[3] = {"name": "d3", "taints": [{"key": "a", "effect": "None"}]}
    text = "spec.devices: Too many: 65: must have at most 64 items"
    assert created(KIND, with_spec(SLICE, devices=devices))[1] == [text]
    full = with_spec(SLICE, devices=[{"name": "!"}] * 129)
    assert created(KIND, full)[1] == ["spec.devices: Too many: 129: must have at most 128 items"]


def test_devices_and_counters_exclude_each_other_even_when_empty() -> None:
    text = 'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'
    assert created(KIND, with_spec(SLICE, devices=[], sharedCounters=[]))[1] == [text]


def test_columns_show_node_driver_and_pool() -> None:
    obj = decoded(KIND, SLICE)
    obj["metadata"]["creationTimestamp"] = "2026-06-01T11:59:00Z"
    now = 1780315200.0
    assert [c.name for c in KIND.columns] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert [c.cell(obj, now) for c in KIND.columns] == ["n1-gpu", "n1", "gpu.example.com", "n1", "60s"]
    del obj["spec"]["nodeName"]
    assert KIND.columns[1].cell(obj, now) == ""


def test_the_hooks_change_nothing_in_the_stored_object() -> None:
    stored = decoded(KIND, with_device(attributes={"a": {"ints": [1]}}))
    before = copy.deepcopy(stored)
    new = decoded(KIND, SLICE)
    KIND.prepare(samples.context_of(KIND), new, stored)
    list(KIND.validate(samples.context_of(KIND), new, stored))
    assert stored == before


def test_errors_come_in_the_order_in_which_upstream_checks() -> None:
    """Not in that of the members: what spans several stands between them, and pools count before they are numbered."""
    device = {
        "name": "gpu.0",
        "attributes": {"B": {}, "a-": {"version": "x", "int": 1}},
        "nodeName": "",
        "bindingConditions": ["up", "up"],
        "consumesCounters": [{}],
        "taints": [{"key": "a", "effect": "Drain"}],
    }
    sent = with_spec(
        SLICE,
        pool={"name": "", "generation": -1, "resourceSliceCount": 0},
        perDeviceNodeSelection=True,
        allNodes=False,
        sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}] * 2,
        devices=[device, device],
    )
    _, errors = updated(KIND, sent, SLICE)
    places = [error.split(": ")[0].removeprefix("spec.") for error in errors]
    of_a_device = ["name", "attributes[B]", "attributes", "attributes[a-].version", "attributes[a-]"]
    of_a_device += ["taints[0].effect", "consumesCounters[0].counterSet", "consumesCounters[0].counters", "nodeName"]
    of_a_device += ["", "bindingConditions[1]", "bindingFailureConditions"]
    assert places == [
        *("pool.name", "pool.resourceSliceCount", "pool.generation", "pool.name", "allNodes"),
        *("spec", "spec"),
        *(f"devices[{i}].{place}".rstrip(".") for i in range(2) for place in of_a_device),
        *("devices[1]", "sharedCounters[1]"),
    ]


def test_a_slice_with_extras_may_have_fewer_devices_however_many_it_has() -> None:
    devices: list[dict[str, object]] = [{"name": f"gpu-{i}"} for i in range(129)]
    assert created(KIND, with_spec(SLICE, devices=devices))[1] == [
        "spec.devices: Too many: 129: must have at most 128 items"
    ]
    devices[5] = {"name": "BAD", "taints": [{"key": "a", "effect": "None"}]}
    for count in (65, 129):
        errors = created(KIND, with_spec(SLICE, devices=devices[:count]))[1]
        assert errors == [f"spec.devices: Too many: {count}: must have at most 64 items"]


def test_a_node_selector_with_several_terms_is_shown_as_go_has_it() -> None:
    wanted = {"key": "a", "operator": "Exists"}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}, {}]}
    terms = '[{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null},'
    terms += '{"MatchExpressions":null,"MatchFields":null}]'
    assert created(KIND, with_spec(SLICE, nodeName=None, nodeSelector=selector))[1] == [
        f"spec.nodeSelector.nodeSelectorTerms: Invalid value: {terms}: must have exactly one node selector term"
    ]


def test_a_repeated_condition_is_found_in_a_list_that_is_too_long() -> None:
    errors = created(KIND, with_device(bindingConditions=["a"] * 5, bindingFailureConditions=["b"]))[1]
    at = "spec.devices[0].bindingConditions"
    assert errors == [
        f"{at}: Too many: 5: must have at most 4 items",
        *(f'{at}[{i}]: Duplicate value: "a"' for i in range(1, 5)),
    ]


NO_MILLI = "value cannot be represented as a milli value"
BEYOND = "must not be larger than 9223372036854775807"
NEGATIVE = "must be greater than or equal to 0"


@pytest.mark.parametrize(
    ("limits", "whole", "fractional"),
    [
        (
            {"default": "5", "validRange": {"min": "6"}},
            ['.validRange.default: Invalid value: "5": default is less than min: 6'],
            ['.validRange.default: Invalid value: "5": default is less than min: 6'],
        ),
        (
            {"default": "7", "validRange": {"min": "5", "max": "6"}},
            ['.validRange.default: Invalid value: "7": default is more than max: 6'],
            ['.validRange.default: Invalid value: "7": default is more than max: 6'],
        ),
        ({"default": "1500m", "validRange": {"min": "1", "step": "500m"}}, [], []),
        (
            {"default": "1", "validRange": {"min": "1", "step": "0"}},
            ['.validRange.step: Invalid value: "0": must be greater than zero'],
            ['.validRange.step: Invalid value: "0": must be greater than zero'],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "300m", "max": "2"}},
            [],
            ['.validRange.step: Invalid value: "2": value is not a multiple of a given step (300m) from (1)'],
        ),
        (
            {"default": "1.1", "validRange": {"min": "1", "step": "1"}},
            [],
            ['.validRange.step: Invalid value: "1100m": value is not a multiple of a given step (1) from (1)'],
        ),
        (
            {"default": "1", "validRange": {"min": "1n", "step": "1n"}},
            [],
            [f'.validRange.min: Invalid value: "1n": {NO_MILLI}', f'.validRange.step: Invalid value: "1n": {NO_MILLI}'],
        ),
        (
            {"default": "10E", "validRange": {"min": "1", "step": "1"}},
            [f'.validRange.default: Invalid value: "10E": {BEYOND}'],
            [f'.validRange.default: Invalid value: "10E": {BEYOND}'],
        ),
        (
            {"default": "-1", "validRange": {"min": "-2", "step": "1"}},
            [
                f'.validRange.default: Invalid value: "-1": {NEGATIVE}',
                f'.validRange.min: Invalid value: "-2": {NEGATIVE}',
            ],
            [
                f'.validRange.default: Invalid value: "-1": {NEGATIVE}',
                f'.validRange.min: Invalid value: "-2": {NEGATIVE}',
            ],
        ),
        (
            {"default": "1.5", "validValues": ["1.5", "1500m", "1.6"]},
            ['.validValues[1]: Duplicate value: "2"', '.validValues[2]: Duplicate value: "2"'],
            [],
        ),
        (
            {"default": "1.5", "validValues": ["1.5", "1.5"]},
            ['.validValues[1]: Duplicate value: "2"'],
            ['.validValues[1]: Duplicate value: "1.5"'],
        ),
    ],
)
def test_amounts_of_a_policy_are_compared_in_thousandths_with_the_feature(
    limits: dict[str, Any], whole: list[str], fractional: list[str]
) -> None:
    """As kube-apiserver 1.37.2 with DRAFractionalCapacityRange off and on."""
    assert policy(limits, V1_37) == whole
    assert policy(limits, V1_37, DRAFractionalCapacityRange=True) == fractional


@pytest.mark.parametrize(("release", "refused"), [(V1_36, True), (V1_37, False)], ids=str)
def test_capacities_that_are_stored_are_checked_again_until_1_37(release: Release, refused: bool) -> None:
    kind = BY_RELEASE[release]["ResourceSlice"]
    stored = with_device(capacity={"not valid": {"value": "1"}})
    sent = with_device(capacity={"not valid": {"value": "1"}}, attributes={"other": {"string": "y"}})
    assert bool(updated(kind, sent, stored, release)[1]) is refused
