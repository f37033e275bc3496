"""Questions before a claim's status is written, and the refusals. The authorizer and the namespaces are the test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from apiserver.verbs import entitlements
from tests.fixtures.composed import JANE, MERGE_PATCH, Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server

JSON_PATCH = "application/json-patch+json"
RESULT = {"request": "main", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [RESULT]}}
REPORT = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
CLAIM = {
    "metadata": {"name": "c"},
    "spec": {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "c"}}]}},
}
BINDING = 'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{}" permission: '
DRIVER = 'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:{}]" permission: '


class Rights:
    """Allows everything but what is `denied`, by subresource; remembers what it was asked beyond the request itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.denied: set[str] = set()
        self.reason = ""
        self.fails = ""
        self.at_once = self.most_at_once = 0

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        if info.subresource in ("", "status"):
            return Decision(allowed=True)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.asked.append(
            (user.name, info.verb, info.group, info.version, info.resource, info.subresource, info.namespace, info.name)
        )
        if self.fails:
            raise ClusterError(self.fails)
        return Decision(allowed=info.subresource not in self.denied, reason=self.reason)


class Namespaces:
    """One namespace: `copied` is what is remembered of its labels, `stored` what they are."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.ready.set()
        self.copied: Mapping[str, str] = {}
        self.stored: Mapping[str, str] | None = {}
        self.fails = ""

    def lookup(self, name: str) -> Any:
        return {"metadata": {"name": name, "labels": self.copied}}

    def labels(self, name: str) -> Mapping[str, str] | None:
        return self.copied

    async def newest_labels(self, name: str) -> Mapping[str, str] | None:
        if self.fails:
            raise ClusterError(self.fails)
        return self.stored


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest_asyncio.fixture
async def namespaces() -> Namespaces:
    return Namespaces()


@pytest_asyncio.fixture
async def server(shared_server: Server, rights: Rights, namespaces: Namespaces) -> AsyncIterator[Composed]:
    async with composed(shared_server, authorizer=rights, namespaces=namespaces) as made:
        assert (await made.ask("POST", made.claims, CLAIM)).status == 201
        yield made


async def put(server: Composed, status: Mapping[str, Any], *, query: str = "") -> Answer:
    return await server.ask("PUT", f"{server.claims}/c/status{query}", {**CLAIM, "status": status}, peer=JANE.peer)


async def patch(server: Composed, status: Any) -> Answer:
    return await server.ask("PATCH", f"{server.claims}/c/status", {"status": status}, peer=JANE.peer, kind=MERGE_PATCH)


def causes(answer: Answer) -> list[tuple[str, str, str]]:
    assert answer.status == 422, answer.json
    return [(c["reason"], c["field"], c["message"]) for c in answer.json["details"]["causes"]]


def group_of(server: Composed) -> str:
    return server.v1.split("/")[2]


async def test_the_questions_have_the_attributes_of_upstreams(server: Composed, rights: Rights) -> None:
    group = group_of(server)
    assert (await put(server, {"allocation": ALLOCATION, "devices": [REPORT]})).status == 200
    assert rights.asked == [
        ("jane", "update", group, "v1", "resourceclaims", "binding", "", ""),
        ("jane", "arbitrary-node:update", group, "v1", "resourceclaims", "driver", "ns", "gpu.example.com"),
    ]
    rights.asked.clear()
    operations = [{"op": "add", "path": "/status/devices/0/data", "value": {"a": 1}}]
    path = f"{server.claims}/c/status"
    assert (await server.ask("PATCH", path, operations, peer=JANE.peer, kind=JSON_PATCH)).status == 200
    assert [asked[1:2] + asked[5:] for asked in rights.asked] == [
        ("arbitrary-node:patch", "driver", "ns", "gpu.example.com")
    ]
    rights.asked.clear()
    assert (await patch(server, None)).status == 200
    assert [asked[1:2] + asked[5:] for asked in rights.asked] == [("patch", "binding", "", "")]


async def test_write_that_changes_none_of_these_asks_nothing(server: Composed, rights: Rights) -> None:
    rights.denied = {"binding", "driver"}
    assert (await put(server, {})).status == 200
    assert (await patch(server, {})).status == 200
    assert rights.asked == []


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_both_refusals_stand_before_what_is_wrong_with_the_object(
    server: Composed, rights: Rights, query: str
) -> None:
    group = group_of(server)
    rights.denied, rights.reason = {"binding", "driver"}, "not on a Sunday"
    bad = {"driver": "gpu.example.com", "pool": "n1", "device": "other"}

    refused = await put(server, {"allocation": ALLOCATION, "devices": [bad]}, query=query)

    binding = (
        f"{BINDING.format('update')}resourceclaims.{group} is forbidden: "
        f'User "jane" cannot update resource "resourceclaims/binding" in API group "{group}" at the cluster scope: not on a Sunday'
    )
    driver = (
        f'{DRIVER.format("update")}resourceclaims.{group} "gpu.example.com" is forbidden: '
        f'User "jane" cannot arbitrary-node:update resource "resourceclaims/driver" in API group "{group}" '
        'in the namespace "ns": not on a Sunday'
    )
    shown = '{"Driver":"gpu.example.com","Pool":"n1","Device":"other","ShareID":""}'
    wrong = f"Invalid value: {shown}: must be an allocated device in the claim"
    assert causes(refused) == [
        ("FieldValueForbidden", "status.allocation", f"Forbidden: {binding}"),
        ("FieldValueForbidden", "status.devices", f"Forbidden: {driver}"),
        ("FieldValueInvalid", "status.devices[0]", wrong),
    ]
    assert refused.json["message"] == (
        f'ResourceClaim.{group} "c" is invalid: [status.allocation: Forbidden: {binding}, '
        f"status.devices: Forbidden: {driver}, status.devices[0]: {wrong}]"
    )


async def test_binding_right_permits_no_reports_and_the_reverse(server: Composed, rights: Rights) -> None:
    rights.denied = {"driver"}
    assert (await put(server, {"allocation": ALLOCATION})).status == 200
    assert [field for _, field, _ in causes(await patch(server, {"devices": [REPORT]}))] == ["status.devices"]
    rights.denied = {"binding"}
    assert (await patch(server, {"devices": [REPORT]})).status == 200
    assert [field for _, field, _ in causes(await patch(server, {"allocation": None}))] == ["status.allocation"]


async def test_an_authorizer_that_fails_has_refused(server: Composed, rights: Rights) -> None:
    rights.fails = "nobody there"
    [(_, field, message)] = causes(await put(server, {"allocation": ALLOCATION}))
    assert field == "status.allocation"
    assert message.endswith(" at the cluster scope: nobody there")


async def test_every_driver_of_a_write_is_asked_about_in_order_and_few_at_once(
    server: Composed, rights: Rights
) -> None:
    drivers = [f"d{number:02}.example.com" for number in range(32)]
    results = [{**RESULT, "driver": driver} for driver in drivers]
    devices = [{**REPORT, "driver": driver} for driver in reversed(drivers)]
    rights.denied = {"driver"}

    refused = await put(server, {"allocation": {"devices": {"results": results}}, "devices": devices})

    assert [message.split('"')[5] for _, _, message in causes(refused)] == drivers
    assert [asked[-1] for asked in rights.asked] == ["", *drivers]
    assert rights.most_at_once == entitlements.AT_ONCE


async def test_refused_write_asks_a_bounded_number_of_questions(server: Composed, rights: Rights) -> None:
    devices = [{**REPORT, "driver": f"d{number}.example.com"} for number in range(5000)]
    devices.append({**REPORT, "driver": "x" * 100_000})

    refused = await put(server, {"allocation": ALLOCATION, "devices": devices})

    assert refused.status == 422
    assert len(rights.asked) == entitlements.IN_VAIN
    assert max(len(asked[-1]) for asked in rights.asked) <= entitlements.LONGEST


ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}
NEEDED = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
GIVEN = {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}


def administrators(name: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "c", "adminAccess": True}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "main", "exactly": exactly}]}}}


async def everywhere(server: Composed, name: str) -> list[Answer]:
    """A claim, a template and an allocation with administrative access."""
    claim = administrators(name)
    template = {"metadata": {"name": name}, "spec": {"spec": claim["spec"]}}
    templates = server.claims.replace("resourceclaims", "resourceclaimtemplates")
    dry = "?dryRun=All"
    return [
        await server.ask("POST", server.claims + dry, claim),
        await server.ask("POST", templates + dry, template),
        await put(server, GIVEN, query=dry),
    ]


PLACES = [
    "spec.devices.requests[0].adminAccess",
    "spec.devices.requests[0].adminAccess",
    "status.allocation.devices.results[0].adminAccess",
]


async def test_administrative_access_is_for_namespaces_with_the_label(server: Composed, namespaces: Namespaces) -> None:
    refused = await everywhere(server, "a")
    assert [causes(answer) for answer in refused] == [[("FieldValueForbidden", place, NEEDED)] for place in PLACES]
    namespaces.copied = namespaces.stored = ADMIN_ACCESS
    assert [answer.status for answer in await everywhere(server, "a")] == [201, 201, 200]


async def test_current_label_counts_however_late_the_namespace_copy_is(
    server: Composed, namespaces: Namespaces
) -> None:
    namespaces.stored = ADMIN_ACCESS
    assert [answer.status for answer in await everywhere(server, "a")] == [201, 201, 200]
    namespaces.copied, namespaces.stored = ADMIN_ACCESS, {}
    refused = await everywhere(server, "b")
    assert [causes(answer) for answer in refused] == [[("FieldValueForbidden", place, NEEDED)] for place in PLACES]


async def test_unreadable_namespace_is_an_internal_error_among_the_causes(
    server: Composed, namespaces: Namespaces
) -> None:
    namespaces.copied = ADMIN_ACCESS
    namespaces.fails = "nobody there"
    text = "Internal error: could not retrieve namespace to verify admin access: "
    refused = await everywhere(server, "a")
    assert [causes(answer) for answer in refused] == [
        [("InternalError", place, f"{text}nobody there")] for place in PLACES
    ]
    namespaces.fails, namespaces.stored = "", None
    [(reason, _, message)] = causes((await everywhere(server, "a"))[0])
    assert (reason, message) == ("InternalError", f'{text}namespaces "ns" not found')


async def test_admin_access_is_checked_first_and_stored_access_not_again(
    server: Composed, rights: Rights, namespaces: Namespaces
) -> None:
    rights.denied = {"binding"}
    refused = causes(await put(server, {**GIVEN, "reservedFor": [{"resource": "pods", "name": "p"}]}))
    assert [field for _, field, _ in refused] == [PLACES[2], "status.allocation", "status.reservedFor[0].uid"]
    rights.denied = set()
    namespaces.copied = namespaces.stored = ADMIN_ACCESS
    assert (await put(server, GIVEN)).status == 200
    namespaces.copied = namespaces.stored = {}
    assert (await patch(server, {"devices": [REPORT]})).status == 200


async def test_standalone_masters_may_everything_and_namespaces_have_no_labels(shared_server: Server) -> None:
    async with composed(shared_server) as alone:
        assert (await alone.ask("POST", alone.claims, CLAIM)).status == 201
        path = f"{alone.claims}/c/status"
        status = {"status": {"allocation": ALLOCATION, "devices": [REPORT]}}
        assert (await alone.ask("PATCH", path, status, kind=MERGE_PATCH)).status == 200
        refused = await alone.ask("POST", alone.claims, json.loads(json.dumps(administrators("a"))))
        assert causes(refused) == [("FieldValueForbidden", PLACES[0], NEEDED)]
