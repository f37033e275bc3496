"""SubjectAccessReview: the question, the answer, and how long it holds."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
import pytest_asyncio

from apiserver import metrics
from apiserver.apimachinery.request import ANONYMOUS, Decision, RequestInfo, User
from apiserver.apimachinery.selectors import Given
from apiserver.cluster import access, answers, pace
from apiserver.cluster.access import Access, spec
from apiserver.cluster.client import Client, ClusterError
from tests.unit.cluster.plane import Clock, Plane, Reply, answer, reset, status

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
JANE = User("jane", "u-1", ("dev", "system:authenticated"), {"b.example/K": ("2", "1"), "a": ()})
LIST = RequestInfo(
    path="/apis/g.example/v1/namespaces/ns/things",
    verb="list",
    method="GET",
    is_resource=True,
    prefix="apis",
    group="g.example",
    version="v1",
    namespace="ns",
    resource="things",
    parts=("things",),
)
FULL = dataclasses.replace(LIST, verb="patch", method="PATCH", name="n", subresource="status")
METRICS = RequestInfo(path="/metrics", verb="get", method="GET")


def altered(info: RequestInfo, **changed: Any) -> RequestInfo:
    return dataclasses.replace(info, **changed)


def review(**found: Any) -> Reply:
    return answer({"kind": "SubjectAccessReview", "metadata": {"managedFields": []}, "spec": {}, "status": found}, 201)


YES, NO = review(allowed=True, reason="RBAC: allowed by …"), review(allowed=False)


@pytest_asyncio.fixture
async def access_(client: Client, clock: Clock) -> Access:
    return Access(client, clock=clock)


# ---------------------------------------------------------------------------------------------------------------- the question


def test_every_attribute_of_a_resource_request_is_asked_about() -> None:
    assert spec(JANE, FULL) == {
        "user": "jane",
        "uid": "u-1",
        "groups": ("dev", "system:authenticated"),
        "extra": {"b.example/K": ("2", "1"), "a": ()},
        "resourceAttributes": {
            "namespace": "ns", "verb": "patch", "group": "g.example", "version": "v1", "resource": "things", "subresource": "status",
            "name": "n",
        },
    }  # fmt: skip


def test_empty_attributes_are_left_out() -> None:
    info = dataclasses.replace(LIST, namespace="", group="")
    assert spec(User("x"), info) == {
        "user": "x",
        "resourceAttributes": {"verb": "list", "version": "v1", "resource": "things"},
    }


def test_other_paths_are_asked_about_by_path_and_method() -> None:
    assert spec(User("x"), METRICS) == {"user": "x", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", None),
        ("spec.nodeName=n1", [("spec.nodeName", "In", ["n1"])]),
        ("spec.nodeName==n1", [("spec.nodeName", "In", ["n1"])]),
        ("spec.nodeName=", [("spec.nodeName", "In", [""])]),
        ("spec.driver!=d,spec.nodeName=n1", [("spec.driver", "NotIn", ["d"]), ("spec.nodeName", "In", ["n1"])]),
        (r"a=x\,y", [("a", "In", ["x,y"])]),
        ("nonsense", None),
        ("a=b,nonsense", None),
    ],
)
def test_field_selectors_become_requirements(text: str, requirements: list[tuple[str, str, list[str]]] | None) -> None:
    found = spec(JANE, dataclasses.replace(LIST, selectors=Given(field_text=text)))["resourceAttributes"]
    expected = requirements and {"requirements": [{"key": k, "operator": o, "values": v} for k, o, v in requirements]}
    assert found.get("fieldSelector") == expected


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("a=b", [("a", "In", ("b",))]),
        ("a==b", [("a", "In", ("b",))]),
        ("a!=b", [("a", "NotIn", ("b",))]),
        ("a in (c,b)", [("a", "In", ("b", "c"))]),
        ("a notin (b)", [("a", "NotIn", ("b",))]),
        ("a=", [("a", "In", ("",))]),
        ("a", [("a", "Exists", None)]),
        ("!a", [("a", "DoesNotExist", None)]),
        ("a>1", None),
        ("a<1", None),
        ("b,a>1,!c", [("b", "Exists", None), ("c", "DoesNotExist", None)]),
        ("a=(", None),
        ("b,a=(", None),
    ],
)
def test_label_selectors_become_requirements(
    text: str, requirements: list[tuple[str, str, tuple[str, ...] | None]] | None
) -> None:
    found = spec(JANE, dataclasses.replace(LIST, selectors=Given(text)))["resourceAttributes"]
    expected = requirements and {
        "requirements": [
            {"key": k, "operator": o} | ({"values": v} if v is not None else {}) for k, o, v in requirements
        ]
    }
    assert found.get("labelSelector") == expected


async def test_the_review_is_sent_as_one(plane: Plane, access_: Access) -> None:
    plane.on(PATH, YES)
    await access_.authorize(JANE, dataclasses.replace(LIST, selectors=Given("c", "a=b")))
    (seen,) = plane.seen
    assert (seen.method, seen.query) == ("POST", {"timeout": "10s"})
    assert seen.body == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "jane",
            "uid": "u-1",
            "groups": ["dev", "system:authenticated"],
            "extra": {"b.example/K": ["2", "1"], "a": []},
            "resourceAttributes": {
                "namespace": "ns",
                "verb": "list",
                "group": "g.example",
                "version": "v1",
                "resource": "things",
                "fieldSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
                "labelSelector": {"requirements": [{"key": "c", "operator": "Exists"}]},
            },
        },
    }


# ---------------------------------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize(
    ("reply", "decision"),
    [
        (review(allowed=True, reason="r"), Decision(allowed=True, reason="r")),
        (review(allowed=False, reason="r"), Decision(allowed=False, reason="r")),
        (review(allowed=False, denied=True, reason="r"), Decision(allowed=False, denied=True, reason="r")),
        (review(evaluationError="ignored"), Decision(allowed=False)),
        (review(allowed=True, evaluationError="ignored"), Decision(allowed=True)),
        (review(), Decision(allowed=False)),
        (answer({"kind": "SubjectAccessReview"}, 201), Decision(allowed=False)),
    ],
)
async def test_the_status_is_the_decision(plane: Plane, access_: Access, reply: Reply, decision: Decision) -> None:
    plane.on(PATH, reply)
    assert await access_.authorize(JANE, LIST) == decision
    assert await access_.authorize(JANE, LIST) == decision


async def test_allowed_and_denied_at_once_is_an_error_every_time(plane: Plane, access_: Access) -> None:
    plane.on(PATH, review(allowed=True, denied=True))
    for _ in range(2):
        with pytest.raises(
            ClusterError, match=r"^webhook subject access review returned both allow and deny response$"
        ):
            await access_.authorize(JANE, LIST)


@pytest.mark.parametrize(
    "failure",
    [
        status(403, "subjectaccessreviews.authorization.k8s.io is forbidden"), status(503, "away"), status(500, "oh"), reset,
        answer(b"?"), answer({"status": {"allowed": "yes"}}), answer({"status": 1}), answer({}, 302, Location="/"),
    ],
)  # fmt: skip
async def test_missing_answer_permits_nothing_and_is_not_cached(plane: Plane, access_: Access, failure: Reply) -> None:
    plane.on(PATH, failure)
    for _ in range(2):
        with pytest.raises(ClusterError):
            await access_.authorize(JANE, LIST)
    plane.on(PATH, YES)
    assert (await access_.authorize(JANE, LIST)).allowed


async def test_error_contains_the_servers_message(plane: Plane, access_: Access) -> None:
    plane.on(PATH, status(403, 'subjectaccessreviews.authorization.k8s.io is forbidden: User "sluice" cannot create'))
    with pytest.raises(ClusterError, match=r'^subjectaccessreviews.authorization.k8s.io is forbidden: User "sluice"'):
        await access_.authorize(JANE, LIST)


async def test_a_passing_failure_is_tried_again(plane: Plane, access_: Access, clock: Clock) -> None:
    plane.on(PATH, status(429, "busy", Retry_After="1"), status(504, "late"), reset, status(500, "oh"), YES)
    assert (await access_.authorize(JANE, LIST)).allowed
    assert clock.slept == [1, 0.75, 1.125, 1.6875]


# ---------------------------------------------------------------------------------------------------------------- the memory


async def test_yes_and_no_are_remembered_each_for_its_time(plane: Plane, client: Client, clock: Clock) -> None:
    made = Access(client, allow_seconds=20, deny_seconds=5, clock=clock)
    for reply, seconds in ((YES, 20), (NO, 5), (review(denied=True), 5)):
        plane.on(PATH, reply)
        asked = len(plane.seen)
        clock.now += 100
        await made.authorize(JANE, LIST)
        clock.now += seconds - 0.001
        await made.authorize(JANE, LIST)
        assert len(plane.seen) == asked + 1
        clock.now += 0.001
        await made.authorize(JANE, LIST)
        assert len(plane.seen) == asked + 2


async def test_both_times_are_ten_seconds_unless_said_otherwise(plane: Plane, access_: Access, clock: Clock) -> None:
    for reply in (YES, NO):
        plane.on(PATH, reply)
        clock.now += 100
        asked = len(plane.seen)
        await access_.authorize(JANE, LIST)
        clock.now += 9.9
        await access_.authorize(JANE, LIST)
        assert len(plane.seen) == asked + 1
        clock.now += 0.1
        await access_.authorize(JANE, LIST)
        assert len(plane.seen) == asked + 2


async def test_with_no_time_every_request_asks(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(PATH, YES)
    made = Access(client, allow_seconds=0, deny_seconds=0, clock=clock)
    for _ in range(3):
        await made.authorize(JANE, LIST)
    assert len(plane.seen) == 3


OTHER_USERS: list[dict[str, Any]] = [
    {"name": "john"}, {"uid": "u-2"}, {"groups": ("dev",)}, {"groups": ("system:authenticated", "dev")}, {"groups": ()},
    {"extra": {}}, {"extra": {"b.example/K": ("2", "1")}}, {"extra": {"b.example/K": ("1", "2"), "a": ()}},
    {"extra": {"b.example/K": ("2,1",), "a": ()}},
]  # fmt: skip
USERS = [JANE, *(dataclasses.replace(JANE, **changed) for changed in OTHER_USERS)]
INFOS = [
    LIST,
    altered(LIST, verb="watch"),
    altered(LIST, group="h.example"),
    altered(LIST, version="v2"),
    altered(LIST, namespace="ns2"),
    altered(LIST, namespace=""),
    altered(LIST, resource="others"),
    altered(LIST, subresource="status"),
    altered(LIST, name="n"),
    altered(LIST, selectors=Given(field_text="a=b")),
    altered(LIST, selectors=Given("a=b")),
    altered(LIST, selectors=Given("a=b", "a=c")),
]
PATHS = [METRICS, dataclasses.replace(METRICS, path="/metrics/slis"), dataclasses.replace(METRICS, verb="post")]


async def test_each_difference_is_another_question(plane: Plane, access_: Access) -> None:
    plane.on(PATH, YES)
    questions = [(user, LIST) for user in USERS] + [(JANE, info) for info in (*INFOS[1:], *PATHS)]
    for _ in range(2):
        for user, info in questions:
            await access_.authorize(user, info)
    specs = [str(seen.body["spec"]) for seen in plane.seen]
    assert len(specs) == len(set(specs)) == len(questions)


async def test_members_missing_from_the_review_make_no_other_question(plane: Plane, access_: Access) -> None:
    plane.on(PATH, YES)
    for changed in (
        {},
        {"method": "HEAD"},
        {"path": "/apis/g.example/v1/namespaces/ns/things/"},
        {"parts": ("things", "", "x")},
    ):
        await access_.authorize(JANE, altered(LIST, **changed))
    extra = dict(reversed(list(JANE.extra.items())))
    await access_.authorize(dataclasses.replace(JANE, extra=extra), LIST)
    assert len(plane.seen) == 1


async def test_simultaneous_equal_requests_share_one_review(plane: Plane, access_: Access) -> None:
    plane.on(PATH, YES)
    decisions = await asyncio.gather(*(access_.authorize(JANE, LIST) for _ in range(30)))
    assert all(decision.allowed for decision in decisions)
    assert len(plane.seen) == 1


@pytest.mark.parametrize("part", ["namespace", "verb", "group", "version", "resource", "subresource", "name", "path"])
async def test_very_long_attributes_are_not_remembered(plane: Plane, access_: Access, part: str) -> None:
    plane.on(PATH, YES)
    base = METRICS if part == "path" else LIST
    others = access._size(altered(base, **{part: ""}))
    for length, asked in ((9_999 - others, 1), (10_000 - others, 3)):
        # Counted as UTF-8, which is twice as long here.
        info = altered(base, **{part: "ü" * (length // 2) + "x" * (length % 2)})
        await access_.authorize(JANE, info)
        await access_.authorize(JANE, info)
        assert len(plane.seen) == asked


@pytest.mark.parametrize("part", ["field_text", "label_text"])
async def test_very_long_selectors_are_not_remembered_either(plane: Plane, access_: Access, part: str) -> None:
    plane.on(PATH, YES)
    info = altered(LIST, selectors=Given(**{part: ",".join(f"a{n}=b" for n in range(2000))}))
    await access_.authorize(JANE, info)
    await access_.authorize(JANE, info)
    assert len(plane.seen) == 2
    asked = plane.seen[0].body["spec"]["resourceAttributes"]
    assert not asked.keys() & {"fieldSelector", "labelSelector"}  # the broader question


async def test_the_memory_is_bounded(
    client: Client, plane: Plane, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert access.REMEMBERED == 8192
    monkeypatch.setattr(access, "REMEMBERED", 3)
    plane.on(PATH, YES)
    made = Access(client, clock=clock)
    for number in range(10):
        await made.authorize(JANE, dataclasses.replace(LIST, name=str(number)))
    assert len(made._answers) == 3


async def test_every_attempt_is_counted_under_upstreams_names(plane: Plane, access_: Access) -> None:
    codes = ("201", "500", "<error>")
    before = [metrics.DELEGATED_AUTHZ_REQUESTS.labels(code).value for code in codes]
    timed = [metrics.DELEGATED_AUTHZ_SECONDS.labels(code).count for code in codes]
    plane.on(PATH, status(500, "oh"), reset, YES)
    for _ in range(3):
        await access_.authorize(JANE, LIST)
    assert [metrics.DELEGATED_AUTHZ_REQUESTS.labels(code).value for code in codes] == [n + 1 for n in before]
    assert [metrics.DELEGATED_AUTHZ_SECONDS.labels(code).count for code in codes] == [n + 1 for n in timed]


async def test_flood_of_one_users_questions_fails_no_others(plane: Plane, access_: Access) -> None:
    plane.on(PATH, YES)
    held = [access_._throttle.enter("flood") for _ in range(pace.FLOW_WAITING + 500)]
    assert held[-1] is None
    for user, info in ((JANE, LIST), (ANONYMOUS, RequestInfo("/livez", "get", "GET"))):
        assert (await access_.authorize(user, info)).allowed
    assert not {JANE.name, access.PROBE_FLOW} & access_._throttle._last.keys()


async def test_cache_is_bounded_in_bytes(plane: Plane, access_: Access) -> None:
    plane.on(PATH, YES)
    groups = tuple(f"group-{n}" for n in range(60_000))
    for number in range(30):
        await access_.authorize(dataclasses.replace(JANE, name=f"u{number}", groups=groups), LIST)
    assert 0 < access_._answers._bytes <= answers.BYTES
    assert len(access_._answers) < 30
