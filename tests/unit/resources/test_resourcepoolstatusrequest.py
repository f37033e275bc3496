"""ResourcePoolStatusRequest: what it accepts in which release, and its table. Texts were read from kube-apiserver 1.37.2."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.schema.resource import Object
from apiserver.verbs import lifecycle
from tests.unit.resources.samples import BY_RELEASE, context_of, decoded

KIND = "ResourcePoolStatusRequest"
RELEASES = pytest.mark.parametrize("release", [V1_36, V1_37], ids=str)
SUBDOMAIN = (
    "subdomain must consist of {} characters, '-' or '.', and must start and end with an alphanumeric character (e.g. '{}', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LOWER = "a lowercase RFC 1123 " + SUBDOMAIN.format("lower case alphanumeric", "example.com")
ANY_CASE = "an RFC 1123 " + SUBDOMAIN.format("alphanumeric", "Example.com")
IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
QUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"
TYPE_ON = {"DRAPartitionableDevices": True, "DRAResourcePoolStatus": True, "DRAPartitionableDevicesType": True}
CONDITION = {"type": "A", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
POOL = {"driver": "a", "poolName": "b", "generation": 1}


def request(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "spec": {"driver": "gpu.example.com", **spec}}


def stored(release: Release, sent: dict[str, Any]) -> Object:
    system = {"uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return decoded(BY_RELEASE[release][KIND], {**sent, "metadata": sent["metadata"] | system})


def errors_of_create(sent: dict[str, Any], release: Release = V1_37, /, **gates: bool) -> list[str]:
    resource = BY_RELEASE[release][KIND]
    context, new = context_of(resource, release, **gates), decoded(resource, sent)
    if lifecycle.prepare_and_judge(context, resource, new, None, sub=None).acceptable:
        return []
    return [str(error) for error in lifecycle.creation_errors(context, resource, new)]


def errors_of_update(
    old: dict[str, Any], new: dict[str, Any], release: Release = V1_37, *, status: bool = True
) -> list[str]:
    resource = BY_RELEASE[release][KIND]
    sub = resource.subresource("status") if status else None
    context, before, after = context_of(resource, release), stored(release, old), stored(release, new)
    if lifecycle.prepare_and_judge(context, resource, after, before, sub=sub).acceptable:
        return []
    return [str(error) for error in lifecycle.update_errors(context, resource, after, before, sub=sub)]


def errors_of_status(status: dict[str, Any], release: Release = V1_37) -> list[str]:
    return errors_of_update(request(), request() | {"status": status}, release)


@RELEASES
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"driver": ""}, ["spec.driver: Required value"]),
        ({"driver": "Gpu.Example.COM", "poolName": "a/b.c/d", "limit": 1000}, []),
        ({"driver": "a_"}, [f'spec.driver: Invalid value: "a_": {ANY_CASE}']),
        ({"driver": "ſ"}, [f'spec.driver: Invalid value: "ſ": {ANY_CASE}']),
        ({"driver": "A" * 254}, [f'spec.driver: Invalid value: "{"A" * 254}": must be no more than 253 bytes']),
        ({"poolName": ""}, ['spec.poolName: Invalid value: "": segment 0: must not be empty']),
        (
            {"poolName": "a/_/"},
            [
                f'spec.poolName: Invalid value: "_": segment 1: {LOWER}',
                'spec.poolName: Invalid value: "a/_/": segment 2: must not be empty',
            ],
        ),
        (
            {"poolName": "y" * 254},
            [
                "spec.poolName: Too long: may not be more than 253 bytes",
                f'spec.poolName: Invalid value: "{"y" * 254}": segment 0: must be no more than 253 bytes',
            ],
        ),
        ({"limit": 0}, ["spec.limit: Invalid value: 0: must be greater than or equal to 1"]),
        ({"limit": 1001}, ["spec.limit: Invalid value: 1001: must be less than or equal to 1000"]),
    ],
)
def test_a_spec_is_checked(release: Release, spec: dict[str, Any], expected: list[str]) -> None:
    assert errors_of_create(request(**spec), release) == expected


PATH = "spec.defaultPartitionTypeAttribute"


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("gpu.example.com/profile", []),
        ("a/b/c", []),
        ("abc", [f'{PATH}: Invalid value: "abc": {QUALIFIED}']),
        ("", [f'{PATH}: Invalid value: "": {IDENTIFIER}', f'{PATH}: Invalid value: "": {QUALIFIED}']),
        (
            "/",
            [
                f'{PATH}: Invalid value: "": prefix must not be empty',
                f'{PATH}: Invalid value: "": name must not be empty',
            ],
        ),
        (
            "_a/1b",
            [f'{PATH}: Invalid value: "_a": prefix: {LOWER}', f'{PATH}: Invalid value: "1b": {IDENTIFIER}'],
        ),
        (
            f"{'a' * 70}/{'b' * 40}",
            [f"{PATH}: Too long: may not be more than {limit} bytes" for limit in (63, 32)],
        ),
    ],
)
def test_a_default_attribute_is_checked_with_its_gate_on(attribute: str, expected: list[str]) -> None:
    assert errors_of_create(request(defaultPartitionTypeAttribute=attribute), V1_37, **TYPE_ON) == expected


def test_a_default_attribute_is_dropped_with_its_gate_off() -> None:
    resource = BY_RELEASE[V1_37][KIND]
    new = decoded(resource, request(defaultPartitionTypeAttribute="a/b"))
    resource.prepare(context_of(resource), new, None)
    assert new["spec"] == {"driver": "gpu.example.com", "limit": 100}
    kept = decoded(resource, request(defaultPartitionTypeAttribute="a/b"))
    resource.prepare(context_of(resource), kept, copy.deepcopy(kept))
    assert kept["spec"]["defaultPartitionTypeAttribute"] == "a/b"


@RELEASES
def test_a_spec_cannot_be_changed(release: Release) -> None:
    found = errors_of_update(request(), request(driver="_"), release, status=False)
    assert found == ["spec: Invalid value: null: field is immutable"]


def test_a_status_is_checked_handwritten_rules_first() -> None:
    bad = CONDITION | {"type": "", "status": "x", "reason": "", "lastTransitionTime": None}
    pool = {**dict.fromkeys(("totalDevices", "allocatedDevices"), -1), "resourceSliceCount": 0, "driver": "_"}
    pool |= {
        "nodeName": "",
        "validationError": "x" * 257,
        "shareableSummary": {"capacity": [{"name": "c", "total": "1"}]},
    }
    negative = "Invalid value: -1: must be greater than or equal to 0"
    assert errors_of_status({"poolCount": -1, "pools": [pool], "conditions": [bad, CONDITION, CONDITION]}) == [
        "status.conditions[0].type: Required value: is required",
        'status.conditions[0].status: Unsupported value: "x": supported values: "False", "True", "Unknown"',
        "status.conditions[0].lastTransitionTime: Required value",
        "status.conditions[0].reason: Required value",
        'status.conditions[2]: Duplicate value: "A"',
        f"status.poolCount: {negative}",
        f'status.pools[0].driver: Invalid value: "_": {ANY_CASE}',
        "status.pools[0].poolName: Required value",
        "status.pools[0].generation: Required value",
        "status.pools[0].resourceSliceCount: Invalid value: 0: must be greater than or equal to 1",
        f"status.pools[0].totalDevices: {negative}",
        f"status.pools[0].allocatedDevices: {negative}",
        f'status.pools[0].nodeName: Invalid value: "": {LOWER}',
        "status.pools[0].validationError: Too long: may not be more than 256 bytes",
        "status.pools[0].shareableSummary.fullyAvailableDevices: Required value",
        "status.pools[0].shareableSummary.partiallyAvailableDevices: Required value",
        "status.pools[0].shareableSummary.capacity[0].consumed: Required value",
        "status.pools[0].shareableSummary.capacity[0].available: Required value",
    ]


def test_repeated_partition_types_are_reported_before_their_elements() -> None:
    one = {"attribute": "a", "type": "t", "total": -1, "allocatable": 1}
    assert errors_of_status({"poolCount": 1, "pools": [POOL | {"partitionSummary": [{**one, "total": 1}, one]}]}) == [
        'status.pools[0].partitionSummary[1]: Duplicate value: {"attribute":"a","type":"t","total":-1,"allocatable":1}',
        "status.pools[0].partitionSummary[1].total: Invalid value: -1: must be greater than or equal to 0",
    ]


def test_lists_that_are_too_long_are_one_error() -> None:
    amount = {"name": "c", **dict.fromkeys(("total", "consumed", "available"), "1")}
    shared = {"fullyAvailableDevices": 1, "partiallyAvailableDevices": 0, "capacity": [amount] * 33}
    pool = POOL | {"partitionSummary": [{}] * 33, "shareableSummary": shared}
    conditions = [CONDITION | {"type": f"A{i}"} for i in range(11)]
    assert errors_of_status({"poolCount": 1, "pools": [pool], "conditions": conditions}) == [
        "status.pools[0].partitionSummary: Too many: 33: must have at most 32 items",
        "status.pools[0].shareableSummary.capacity: Too many: 33: must have at most 32 items",
        "status.conditions: Too many: 11: must have at most 10 items",
    ]
    assert errors_of_status({"poolCount": 1, "pools": [{}] * 1001}) == [
        "status.pools: Too many: 1001: must have at most 1000 items"
    ]


def test_a_repeated_condition_is_reported_twice_in_1_36() -> None:
    shown = '{"type":"A","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":"m"}'
    assert errors_of_status({"poolCount": 1, "conditions": [CONDITION, CONDITION]}, V1_36) == [
        'status.conditions[1].type: Duplicate value: "A"',
        f"status.conditions[1]: Duplicate value: {shown}",
    ]


def test_a_status_cannot_be_changed_once_it_is_there() -> None:
    old = request() | {"status": {"poolCount": 2}}
    assert errors_of_update(old, request() | {"status": {"poolCount": -2}}) == [
        'status: Invalid value: {"PoolCount":-2,"Pools":null,"Conditions":null}: field is immutable',
        "status.poolCount: Invalid value: -2: must be greater than or equal to 0",
    ]
    assert errors_of_update(old, request()) == ["status: Invalid value: null: field is immutable"]
    assert errors_of_update(old, old) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, ["-", "-", "-", "-", "-", 0, "Pending", "<none>"]),
        ({"poolCount": 2}, ["0", "0", "0", "0", "0", 2, "Pending", "<none>"]),
        (
            {"poolCount": 0, "conditions": [CONDITION | {"type": "Failed"}]},
            ["-", "-", "-", "-", "-", 0, "Failed", "<none>"],
        ),
        (
            {
                "poolCount": 3,
                "conditions": [CONDITION | {"type": "Complete"}],
                "pools": [
                    POOL | {"totalDevices": 5, "availableDevices": 3, "allocatedDevices": 1, "unavailableDevices": 1},
                    POOL | {"totalDevices": 2**31 - 1, "validationError": ""},
                ],
            },
            ["-2147483644", "3", "1", "1", "1", 3, "Complete (2/3 pools)", "60s"],
        ),
    ],
)
def test_a_table_sums_up_the_pools(status: dict[str, Any] | None, expected: list[object]) -> None:
    resource = BY_RELEASE[V1_37][KIND]
    obj = decoded(resource, request() | ({} if status is None else {"status": status}))
    then = 1767225660.0  # a minute after the condition
    assert [column.cell(obj, then) for column in resource.columns[2:]] == expected
    assert (resource.columns[-1].since(obj) is None) == (expected[-1] == resource.columns[-1].ageless)  # type: ignore[misc]
