from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apimachinery.fieldpath import ROOT, FieldError
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical
from apiserver.resources import DeviceSelectors
from apiserver.schema.context import Context
from apiserver.validation import report
from tests.unit.resources import samples
from tests.unit.resources.samples import CLAIM, RESULT, created, decoded, served, updated, with_spec

KIND = samples.KINDS["ResourceClaim"]
CONTEXT = samples.context_of(KIND)
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
ALLOCATED: dict[str, Any] = {"allocation": {"devices": {"results": [RESULT]}}}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u1"}
REPORT = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}


def with_status(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**copy.deepcopy(CLAIM), "metadata": {**CLAIM["metadata"], **metadata}, "status": copy.deepcopy(status)}


def written(status: dict[str, Any], stored: dict[str, Any], **metadata: Any) -> tuple[dict[str, Any], list[str]]:
    """The object after a write to the status subresource, and what is wrong with it."""
    new, old = decoded(KIND, with_status(status, **metadata)), decoded(KIND, with_status(stored, **metadata))
    sub = KIND.subresource("status")
    assert sub is not None
    before = copy.deepcopy(old)
    sub.prepare(CONTEXT, new, old)
    required = [e for e in sub.requires(CONTEXT, new, old) if isinstance(e, FieldError)]
    errors = [str(e) for e in [*required, *sub.validate(CONTEXT, new, old)]]
    assert old == before
    return new, errors


def devices(**members: Any) -> dict[str, Any]:
    return with_spec(CLAIM, devices={**CLAIM["spec"]["devices"], **members})


def requests(*items: dict[str, Any]) -> dict[str, Any]:
    return devices(requests=list(items))


def exactly(**members: Any) -> dict[str, Any]:
    return requests({"name": "main", "exactly": {"deviceClassName": "c", **members}})


def test_the_zero_object_is_the_bookmark_of_upstream() -> None:
    assert canonical.zero(KIND.shape) == {"metadata": {}, "spec": {"devices": {"requests": None}}, "status": {}}


def test_defaults_name_the_mode_and_one_device() -> None:
    obj, errors = created(KIND, CLAIM)
    assert errors == []
    assert served(KIND, obj) == (
        '{"metadata":{"name":"c","namespace":"team-a"},"spec":{"devices":{"requests":[{"name":"main","exactly":'
        '{"deviceClassName":"gpu.example.com","allocationMode":"ExactCount","count":1}}]}},"status":{}}'
    )


def test_a_count_of_zero_becomes_one_and_the_mode_all_has_none() -> None:
    obj, errors = created(KIND, exactly(count=0))
    assert errors == []
    assert obj["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    obj, errors = created(KIND, exactly(allocationMode="All"))
    assert errors == []
    assert "count" not in obj["spec"]["devices"]["requests"][0]["exactly"]


def test_a_request_without_anything_fails_in_the_words_of_a_real_server() -> None:
    label = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
        "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )
    assert created(KIND, requests({"name": "BAD"}))[1] == [
        f'spec.devices.requests[0].name: Invalid value: "BAD": {label}',
        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
    ]


def test_duplicates_come_after_the_items() -> None:
    one = {"name": "r", "exactly": {"deviceClassName": "c", "count": -1}}
    two = {"name": "r", "exactly": {"deviceClassName": "c"}}
    assert created(KIND, requests(one, two))[1] == [
        "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        'spec.devices.requests[1]: Duplicate value: "r"',
    ]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            {"allocationMode": "Some"},
            'allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"',
        ),
        (
            {"tolerations": [{"operator": "Like"}]},
            'tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists"',
        ),
        ({"deviceClassName": ""}, "deviceClassName: Required value"),
        ({"selectors": [{}]}, "selectors[0].cel: Required value"),
    ],
)
def test_demands_of_a_request_are_checked(members: dict[str, Any], expected: str) -> None:
    assert created(KIND, exactly(**members))[1] == [f"spec.devices.requests[0].exactly.{expected}"]
    sub = {"name": "s", "deviceClassName": "c", **members}
    assert created(KIND, requests({"name": "main", "firstAvailable": [sub]}))[1] == [
        f"spec.devices.requests[0].firstAvailable[0].{expected}"
    ]


def test_references_must_name_requests_of_the_claim() -> None:
    request = {"name": "main", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}
    good = {"requests": ["main", "main/a"], "matchAttribute": "x.io/y"}
    bad = {"requests": ["main/b", "a", "main/a/x", "main"], "matchAttribute": "x.io/y"}
    errors = created(KIND, devices(requests=[request], constraints=[good, bad]))[1]
    assert errors == [
        f'spec.devices.constraints[1].requests[0]: Invalid value: "main/b": {NOT_A_REQUEST}',
        f'spec.devices.constraints[1].requests[1]: Invalid value: "a": {NOT_A_REQUEST}',
        f'spec.devices.constraints[1].requests[2]: Invalid value: "main/a/x": {NOT_A_REQUEST}',
    ]


def test_a_list_over_its_limit_is_not_looked_into() -> None:
    constraints = [{"requests": ["nope"]}] * 33
    configs = [{"requests": ["nope"]}] * 33
    assert created(KIND, devices(constraints=constraints, config=configs))[1] == [
        "spec.devices.constraints: Too many: 33: must have at most 32 items",
        "spec.devices.config: Too many: 33: must have at most 32 items",
    ]
    references = [{"requests": ["nope"] * 33, "matchAttribute": "x.io/y"}]
    text = "spec.devices.constraints[0].requests: Too many: 33: must have at most 32 items"
    assert created(KIND, devices(constraints=references))[1] == [text]


def test_an_update_may_not_change_the_spec_and_shows_it_as_go_does() -> None:
    assert updated(KIND, CLAIM, CLAIM)[1] == []
    assert updated(KIND, {**CLAIM, "spec": {}}, CLAIM)[1] == [
        'spec: Invalid value: {"Devices":{"Requests":null,"Constraints":null,"Config":null}}: field is immutable'
    ]
    shown = (
        '{"Devices":{"Requests":[{"Name":"main","Exactly":{"DeviceClassName":"c","Selectors":[{"CEL":{"Expression":"true"}}],'
        '"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,"Tolerations":null,"Capacity":null,"DerivedAttributes":null},'
        '"FirstAvailable":null}],"Constraints":null,"Config":[{"Requests":null,"Opaque":null}]}}'
    )
    sent = exactly(selectors=[{"cel": {"expression": "true"}}])
    sent["spec"]["devices"]["config"] = [{}]
    assert updated(KIND, sent, CLAIM)[1] == [f"spec: Invalid value: {shown}: field is immutable"]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ('{"b": 1.50, "a": [1e3, -0, 1e-7]}', '{"b":1.50,"a":[1e3,-0,1e-7]}'),
        ('{"a":1,"a":123456789012345678901}', '{"a":1,"a":123456789012345678901}'),
        (r'{"<":"\u00e9<&>"}', r'{"\u003c":"\u00e9\u003c\u0026\u003e"}'),
        ("[]", "[]"),
    ],
)
def test_raw_json_is_shown_as_it_was_sent_without_blanks(sent: str, shown: str) -> None:
    opaque = {"driver": "gpu.example.com", "parameters": rawjson.of(sent.encode())}
    [error] = updated(KIND, devices(config=[{"opaque": opaque}]), CLAIM)[1]
    assert f'"Opaque":{{"Driver":"gpu.example.com","Parameters":{shown}}}}}' in error


def test_another_spelling_of_a_quantity_is_no_change() -> None:
    one, two = (exactly(capacity={"requests": {"memory": amount}}) for amount in ("1Gi", "1024Mi"))
    assert updated(KIND, two, one)[1] == []


def test_an_allocation_can_be_set_and_unset_but_not_changed() -> None:
    assert written(ALLOCATED, {})[1] == []
    assert written({}, ALLOCATED)[1] == []
    other = {"allocation": {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}}
    errors = written(other, ALLOCATED)[1]
    assert len(errors) == 1
    assert errors[0].startswith('status.allocation: Invalid value: {"Devices":{"Results":[{"Request":"main","Driver":')
    assert errors[0].endswith(": field is immutable")


def test_a_stored_allocation_is_not_judged_again() -> None:
    odd = {"allocation": {"devices": {"results": [{**RESULT, "pool": "UPPER", "request": "gone"}]}}}
    assert written(odd, odd)[1] == []
    assert len(written(odd, {})[1]) == 2


def test_new_results_are_judged_against_the_claim() -> None:
    results = [{**RESULT, "request": "x", "driver": "", "device": ""}]
    config = [{"source": "FromMoon", "requests": ["x", "x"], "opaque": {"driver": "d", "parameters": {}}}]
    errors = written({"allocation": {"devices": {"results": results, "config": config}}}, {})[1]
    assert [e.split(": ")[0] for e in errors] == [
        "status.allocation.devices.results[0].driver",
        "status.allocation.devices.results[0].device",
        "status.allocation.devices.config[0].source",
        "status.allocation.devices.config[0].requests[1]",
        "status.allocation.devices.results[0].request",
        "status.allocation.devices.config[0].requests[0]",
        "status.allocation.devices.config[0].requests[1]",
    ]
    assert 'Unsupported value: "FromMoon": supported values: "FromClaim", "FromClass"' in errors[2]


def test_the_spec_is_not_judged_by_a_status_write() -> None:
    new, old = decoded(KIND, requests({"name": "BAD"})), decoded(KIND, requests({"name": "BAD"}))
    sub = KIND.subresource("status")
    assert sub is not None
    assert list(sub.validate(CONTEXT, new, old)) == []


def test_reports_of_devices_that_are_deallocated_go() -> None:
    reported = {**ALLOCATED, "devices": [REPORT]}
    new, errors = written({"devices": [REPORT]}, reported)
    assert errors == []
    assert "devices" not in new["status"]


def test_reports_of_other_devices_stay_and_are_refused() -> None:
    new, errors = written({"devices": [REPORT, {**REPORT, "device": "gpu-7"}]}, ALLOCATED)
    assert [d["device"] for d in new["status"]["devices"]] == ["gpu-7"]
    assert len(errors) == 1
    assert errors[0].endswith("must be an allocated device in the claim")


def test_reports_are_distinguished_by_their_share() -> None:
    share = "3f0f7b0e-6d0c-4f53-9a3e-1f6f0c1d2a02"
    shared = {"allocation": {"devices": {"results": [{**RESULT, "shareID": share}]}}}
    assert written({**shared, "devices": [{**REPORT, "shareID": share}]}, shared)[1] == []
    assert len(written({**shared, "devices": [REPORT]}, shared)[1]) == 1


def test_conditions_over_the_limit_are_looked_at_all_the_same() -> None:
    condition = {"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": samples.NOW}
    conditions = [{**condition, "type": f"C{i}"} for i in range(8)] + [{**condition, "status": "Maybe"}]
    errors = written({**ALLOCATED, "devices": [{**REPORT, "conditions": conditions}]}, ALLOCATED)[1]
    assert errors == [
        "status.devices[0].conditions: Too many: 9: must have at most 8 items",
        'status.devices[0].conditions[8].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
    ]


def test_reservations_need_an_allocation_and_none_come_while_deleting() -> None:
    assert written({"reservedFor": [CONSUMER]}, {})[1] == [
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    ]
    reserved = {**ALLOCATED, "reservedFor": [CONSUMER]}
    assert written(reserved, ALLOCATED)[1] == []
    assert written(reserved, reserved, deletionTimestamp=samples.NOW)[1] == []
    assert written(reserved, ALLOCATED, deletionTimestamp=samples.NOW)[1] == [
        "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    ]


def test_a_consumer_is_complete_and_listed_once() -> None:
    errors = written({**ALLOCATED, "reservedFor": [{}, {"resource": "pods", "name": "q", "uid": ""}]}, ALLOCATED)[1]
    assert errors == [
        "status.reservedFor[0].resource: Required value",
        "status.reservedFor[0].name: Required value",
        "status.reservedFor[0].uid: Required value",
        "status.reservedFor[1].uid: Required value",
        'status.reservedFor[1]: Duplicate value: ""',
    ]


@pytest.mark.parametrize(
    ("status", "metadata", "state"),
    [
        ({}, {}, "pending"),
        (ALLOCATED, {}, "allocated"),
        ({**ALLOCATED, "reservedFor": [CONSUMER]}, {}, "allocated,reserved"),
        ({}, {"deletionTimestamp": samples.NOW}, "deleted"),
        ({**ALLOCATED, "reservedFor": [CONSUMER]}, {"deletionTimestamp": samples.NOW}, "deleted,allocated,reserved"),
    ],
)
def test_the_state_column_sums_up(status: dict[str, Any], metadata: dict[str, Any], state: str) -> None:
    obj = decoded(KIND, with_status(status, **metadata))
    assert [c.name for c in KIND.columns] == ["Name", "State", "Age"]
    assert KIND.columns[1].cell(obj, 0.0) == state


def test_administrative_access_needs_the_label_of_the_namespace() -> None:
    admin = {"name": "main", "exactly": {"deviceClassName": "c", "adminAccess": True}}
    claim = decoded(KIND, requests(admin))
    at = "spec.devices.requests[0].adminAccess"

    def errors(labels: dict[str, str] | None) -> list[str]:
        context = Context(gates=CONTEXT.gates, namespace_labels=lambda: labels)
        return [str(e) for e in KIND.validate(context, claim, None)]

    assert errors({"resource.kubernetes.io/admin-access": "true"}) == []
    needed = (
        "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label "
        "on the containing namespace"
    )
    assert errors({}) == errors({"resource.kubernetes.io/admin-access": "True"}) == [f"{at}: {needed}"]
    unknown = 'could not retrieve namespace to verify admin access: namespaces "team-a" not found'
    assert errors(None) == [f"{at}: Internal error: {unknown}"]


def test_a_namespace_that_cannot_be_read_is_the_servers_error() -> None:
    def labels() -> None:
        raise LookupError("connection refused")

    claim = decoded(KIND, exactly(adminAccess=True))
    [error] = KIND.validate(Context(gates=CONTEXT.gates, namespace_labels=labels), claim, None)
    assert (error.field, error.reason) == ("spec.devices.requests[0].adminAccess", "InternalError")
    assert error.body == "Internal error: could not retrieve namespace to verify admin access: connection refused"


def test_namespace_labels_are_looked_up_only_for_admin_access() -> None:
    def asked() -> None:
        raise AssertionError("nobody needs to know")

    context = Context(gates=CONTEXT.gates, namespace_labels=asked)
    assert list(KIND.validate(context, decoded(KIND, CLAIM), None)) == []


def test_administrative_access_that_was_given_is_not_judged_again() -> None:
    given = {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}
    assert written(given, given)[1] == []
    [error] = written(given, {})[1]
    assert error.startswith("status.allocation.devices.results[0].adminAccess: Internal error: ")


def test_request_with_both_alternatives_is_checked_in_neither() -> None:
    both = {"name": "a", "exactly": {}, "firstAvailable": [{"name": "!"}]}
    errors = created(KIND, with_spec(CLAIM, devices={"requests": [both]}))[1]
    text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
    assert errors == [f"spec.devices.requests[0]: Invalid value: null: {text}"]


def test_forbidden_members_are_reported_before_invalid_ones() -> None:
    requests = [{"name": "!", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}]
    errors = created(KIND, with_spec(CLAIM, devices={"requests": requests}))[1]
    assert [error.split(": ")[0] for error in errors] == [
        "spec.devices.requests[0].adminAccess",
        "spec.devices.requests[0].name",
    ]


UNUSED = "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"
DERIVED = {"name": "a.example/numa", "expression": "1"}
PATH = "spec.devices.requests[0].exactly.derivedAttributes"


def derived(*attributes: dict[str, Any], **constraint: Any) -> list[str]:
    wish = {"deviceClassName": "c", "derivedAttributes": list(attributes)}
    requests = [{"name": "main", "exactly": wish}, {"name": "other", "exactly": {"deviceClassName": "c"}}]
    sent = devices(requests=requests, constraints=[{"matchAttribute": "a.example/numa", **constraint}])
    return checked(sent)


def checked(sent: dict[str, Any]) -> list[str]:
    gates = samples.context_of(KIND, DRADerivedAttributes=True).gates
    context = Context(gates=gates, cel=DeviceSelectors(gates))
    return [str(error) for error in report.validate(context, KIND.shape, decoded(KIND, sent), None)]


@pytest.mark.parametrize("constraint", [{}, {"requests": ["main"]}, {"requests": ["other", "main"]}])
def test_a_derived_attribute_that_a_constraint_of_its_request_compares_is_accepted(constraint: dict[str, Any]) -> None:
    assert derived(DERIVED, **constraint) == []


def test_a_derived_attribute_is_compared_by_a_constraint_of_its_request() -> None:
    assert derived(DERIVED, requests=["other"]) == [f'{PATH}[0].name: Invalid value: "a.example/numa": {UNUSED}']
    alternatives = [{"name": name, "deviceClassName": "c", "derivedAttributes": [DERIVED]} for name in ("x", "y")]
    sent = requests({"name": "main", "firstAvailable": alternatives})
    sent["spec"]["devices"]["constraints"] = [{"requests": ["main/x"], "distinctAttribute": "a.example/numa"}]
    unused = "spec.devices.requests[0].firstAvailable[1].derivedAttributes[0].name: Invalid value: "
    assert checked(sent) == [f'{unused}"a.example/numa": {UNUSED}']
    sent["spec"]["devices"]["constraints"][0]["requests"] = ["main"]
    assert checked(sent) == []


def test_derived_attributes_are_named_once_and_have_an_expression_that_compiles() -> None:
    assert derived({}) == [f"{PATH}[0].name: Required value", f"{PATH}[0].expression: Required value"]
    assert derived(DERIVED, DERIVED) == [f'{PATH}[1]: Duplicate value: "a.example/numa"']
    [error] = derived({**DERIVED, "expression": "device.pool"})
    assert error.startswith(f'{PATH}[0].expression: Invalid value: "device.pool": compilation failed: ')
    assert derived({**DERIVED, "expression": " " * 10_241}) == [
        f"{PATH}[0].expression: Too long: may not be more than 10240 bytes"
    ]
    assert derived(*[{**DERIVED, "name": f"a.example/n{i}"} for i in range(33)]) == [
        f"{PATH}: Too many: 33: must have at most 32 items"
    ]


def test_all_derived_attributes_of_a_claim_have_one_budget() -> None:
    costly = 'device.attributes.all(a, device.attributes["x"].all(b, device.attributes["y"].all(c, a != b)))'
    gates = samples.context_of(KIND, DRADerivedAttributes=True).gates
    found, cost = DeviceSelectors(gates).value_problems(costly, ROOT)
    assert found == []
    many = 1_000_000 // cost
    assert many < 32
    names = [f"a.example/n{i}" for i in range(many + 1)]
    exceeded = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"
    for number, expected in ((many, []), (many + 1, [f"spec.devices: Forbidden: {exceeded}"])):
        attributes = [{"name": name, "expression": costly} for name in names[:number]]
        sent = exactly(derivedAttributes=attributes)
        sent["spec"]["devices"]["constraints"] = [{"matchAttribute": name} for name in names[:number]]
        assert checked(sent) == expected


@pytest.mark.parametrize(("release", "refused"), [(V1_36, False), (V1_37, True)], ids=str)
def test_tolerations_of_an_allocation_are_checked_from_1_37_on(release: Release, refused: bool) -> None:
    kind = samples.BY_RELEASE[release]["ResourceClaim"]
    sub = kind.subresource("status")
    assert sub is not None
    status = {"allocation": {"devices": {"results": [{**RESULT, "tolerations": [{"operator": "x"}]}]}}}
    new, old = decoded(kind, with_status(status)), decoded(kind, with_status({}))
    errors = [str(error) for error in sub.validate(samples.context_of(kind, release), new, old)]
    path = "status.allocation.devices.results[0].tolerations[0].operator"
    assert errors == ([f'{path}: Unsupported value: "x": supported values: "Equal", "Exists"'] if refused else [])
