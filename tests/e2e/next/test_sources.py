"""Where differences come from: what kube-apiserver says of itself, the cases of the table, and reports of pytest."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.e2e.next import cases, probes, promises
from tests.e2e.next.differences import Difference
from tests.e2e.next.probes import Said
from tests.fixtures.server import Reply
from tests.promises.resource_table import Case, Expected

HELP = """
      --feature-gates mapStringBool     Options are:
                kube:DRAExtendedResource=true|false (BETA - default=true)
                ShardedListAndWatch=true|false (ALPHA - default=false)
      --etcd-servers strings   List of etcd servers
  -h, --help   help
"""


def test_gates_have_a_stage_and_a_default() -> None:
    assert probes.gates(HELP) == {"DRAExtendedResource": "BETA, on", "ShardedListAndWatch": "ALPHA, off"}


def test_a_part_that_was_removed_added_or_changed_is_a_difference() -> None:
    before: Said = {
        "feature gates": {"A": "ALPHA, off", "B": "BETA, on", "C": "BETA, on"},
        "discovery": {"/version": {"minor": "1"}},
    }
    after: Said = {
        "feature gates": {"A": "BETA, on", "C": "BETA, on", "D": "ALPHA, off"},
        "discovery": {"/version": {"minor": "2"}},
    }
    assert list(probes.differences(before, after)) == [
        Difference("feature gates", "A", ["ALPHA, off → BETA, on"]),
        Difference("feature gates", "B", ["removed: BETA, on"]),
        Difference("feature gates", "D", ["new: ALPHA, off"]),
        Difference("discovery", "/version", ["! minor: 1 → 2"]),
    ]


def case(*errors: Expected, warnings: tuple[str, ...] = (), then: tuple[dict[str, Any], ...] = ()) -> Case:
    return Case(
        name="a", kind="DeviceClass", operation="create", object={}, old=None, errors=errors, then=then, warnings=warnings,
        gates={},
    )  # fmt: skip


def reply(status: int, body: Any, *warnings: str) -> Reply:
    headers = http.client.HTTPMessage()
    for text in warnings:
        headers["Warning"] = f'299 - "{text}"'
    return Reply(status, headers, json.dumps(body).encode())


WANTED = Expected(field="spec.a", reason="FieldValueRequired", detail="must be set")


def refusal(*causes: tuple[str, str, str]) -> Reply:
    told = [{"field": field, "reason": reason, "message": message} for field, reason, message in causes]
    return reply(422, {"message": "is invalid", "details": {"causes": told}})


def test_case_that_holds_is_no_difference() -> None:
    told = ("spec.a", "FieldValueRequired", "Required value: must be set")
    assert cases.differing(refusal(told, told), case(WANTED)) == []
    assert cases.differing(reply(201, {"spec": {"n": 1}}), case(then=({"path": "/spec/n", "equals": 1},))) == []


def test_other_text_is_a_missing_and_a_new_error() -> None:
    assert cases.differing(refusal(("spec.a", "FieldValueRequired", "Required value")), case(WANTED)) == [
        "- spec.a: FieldValueRequired …must be set",
        "+ spec.a: FieldValueRequired Required value",
    ]


def test_write_that_succeeds_misses_every_error() -> None:
    assert cases.differing(reply(201, {}), case(WANTED)) == ["- spec.a: FieldValueRequired …must be set"]


def test_refusal_without_causes_shows_its_message() -> None:
    assert cases.differing(reply(403, {"message": "no"}), case()) == ["! 403 no"]


def test_warnings_and_members_of_the_answer_are_compared() -> None:
    wanted = case(
        warnings=("deprecated",),
        then=(
            {"path": "/spec/n", "equals": 1},
            {"path": "/spec/absent", "absent": True},
            {"path": "/spec/present", "present": True},
        ),
    )
    assert cases.differing(reply(201, {"spec": {"n": 2, "absent": 3}}, "something else"), wanted) == [
        "- warning …deprecated",
        '+ warning 299 - "something else"',
        "! /spec/n: 1 → 2",
        "+ /spec/absent: 3",
        "- /spec/present is missing",
    ]


REPORT = """<testsuites><testsuite>
<testcase classname="tests.promises.api.test_watches" name="test_a[upstream]"/>
<testcase classname="tests.promises.api.test_watches" name="test_b[upstream]"><skipped/></testcase>
<testcase classname="tests.promises.api.test_watches" name="test_c[upstream]">
<failure message="assert 1 == 2&#10;&#10; more">x</failure></testcase>
<testcase classname="tests.promises.admission.test_quota" name="test_d[upstream]"><error message="failed on setup">x</error></testcase>
</testsuite></testsuites>"""


def test_failed_promises_and_broken_ones_are_differences() -> None:
    assert list(promises.read(REPORT)) == [
        Difference("watch", "api/test_watches.py::test_c[upstream]", ["assert 1 == 2", " more"]),
        Difference("admission", "admission/test_quota.py::test_d[upstream]", ["failed on setup"]),
    ]
