"""Go's zero time in a field that is a pointer: JSON shows null, and a write that repeats the zero time changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.promises.api.client import ALLOCATED, RESERVED, Client, Object, claim, resource_slice, version

ZERO = "0001-01-01T00:00:00Z"
TAINT = {"key": "k", "effect": "NoSchedule", "timeAdded": ZERO}


def tainted(name: str, taint: Object, **metadata: Any) -> Object:
    found = resource_slice(name, **metadata)
    found["spec"]["devices"][0]["taints"] = [taint]
    return found


def shown(obj: Object) -> Any:
    return obj["spec"]["devices"][0]["taints"][0]["timeAdded"]


def test_update_that_repeats_a_zero_time_changes_nothing(api: Client, mine: str) -> None:
    path = f"{api.slices}/{mine}"
    created = api.create(api.slices, tainted(mine, TAINT))
    assert shown(created) is None
    assert api.put(path, tainted(mine, TAINT)) == created
    patched = api.patch(path, {"spec": {"devices": [{"name": "gpu-0", "taints": [TAINT]}]}})
    assert patched == created


def test_update_without_the_time_sets_it_anew(api: Client, mine: str) -> None:
    path = f"{api.slices}/{mine}"
    created = api.create(api.slices, tainted(mine, TAINT))
    written = api.put(path, tainted(mine, {**TAINT, "timeAdded": None}))
    assert shown(written) > "2026"
    assert written["metadata"]["generation"] == created["metadata"]["generation"] + 1


@pytest.mark.parametrize("between", [{"labels": {"a": "b"}}, {"finalizers": ["example.com/f"]}])
def test_zero_time_stays_when_metadata_is_updated(api: Client, mine: str, between: Object) -> None:
    path = f"{api.slices}/{mine}"
    api.create(api.slices, tainted(mine, TAINT))
    written = api.put(path, tainted(mine, TAINT, **between))
    assert shown(written) is None
    assert written["metadata"]["generation"] == 1
    assert shown(api.get(path)) is None
    api.put(path, tainted(mine, TAINT, finalizers=[]))


def test_allocation_with_a_zero_time_may_be_sent_again(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one/status"
    stored = api.create(api.claims(mine), claim("one"))
    allocation = {**ALLOCATED["allocation"], "allocationTimestamp": ZERO}
    first = api.put(path, {**stored, "status": {"allocation": allocation, "reservedFor": RESERVED}})
    sent = {**first, "status": {"allocation": allocation, "reservedFor": RESERVED}}
    again = api.put(path, sent)
    assert version(again) == version(first)
    more = [*RESERVED, {"resource": "pods", "name": "q", "uid": "u-2"}]
    reserved = api.put(path, {**first, "status": {"allocation": allocation, "reservedFor": more}})
    assert reserved["status"]["reservedFor"] == more
