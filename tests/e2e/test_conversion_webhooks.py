"""Definitions whose objects a webhook converts, here and in kube-apiserver."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.controlplane import plane
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection, Stream
from tests.e2e.controlplane.plane import until
from tests.e2e.lamps import APPLY, DEFINITIONS, JSON_PATCH, MERGE, NAMESPACE, V1, V2, Server, here
from tests.fixtures.conversion_hook import Answer, Convert, Hook, Object, Refusal, answered, converted
from tests.fixtures.definitions import write
from tests.fixtures.lamps import GROUP, convert, definition, lamp
from tests.fixtures.server import DevServer, dev_server

SERVICES = "/api/v1/namespaces/default/services"
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
POLICY = "admissionregistration.k8s.io/v1"
SUBJECT = f"conversion webhook for {GROUP}/v1, Kind=Lamp"


# ------------------------------------------------------------------------------------------------------------------ bad answers


def saying(**changes: Any) -> Answer:
    return lambda review, convert: (
        answered(review, converted(review, convert)["response"]["convertedObjects"])
        | {"response": converted(review, convert)["response"] | changes}
    )


def changed(change: Callable[[Any], Any]) -> Answer:
    """Each converted object is replaced by what `change` makes of it."""

    def answer(review: Object, convert: Convert) -> Object:
        made = converted(review, convert)
        made["response"]["convertedObjects"] = list(map(change, made["response"]["convertedObjects"]))
        return made

    return answer


def setting(*path: str, to: Any) -> Answer:
    def change(obj: Object) -> Object:
        here = obj
        for name in path[:-1]:
            here = here.setdefault(name, {})
        here[path[-1]] = to
        return obj

    return changed(change)


def without(name: str) -> Answer:
    return changed(lambda obj: {key: x for key, x in obj.items() if key != name})


def refusing(code: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(review: Object, convert: Convert) -> Object:
        raise Refusal(code, body, **headers)

    return answer


def raw(body: bytes) -> Answer:
    return lambda review, convert: body


def reviewed(**members: Any) -> Answer:
    return lambda review, convert: converted(review, convert) | members


def twice(review: Object, convert: Convert) -> Object:
    made = converted(review, convert)
    made["response"]["convertedObjects"] *= 2
    return made


STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": "no",
    "reason": "BadRequest",
    "code": 400,
}
NO_WAY = saying(result={"status": "Failure", "message": "no way"})
BAD: dict[str, Answer] = {
    "another uid": saying(uid="other"),
    "no uid": saying(uid=""),
    "a failure": NO_WAY,
    "a failure without a message": saying(result={"status": "Failure"}),
    "no result": saying(result=None),
    "no objects": saying(convertedObjects=[]),
    "null for objects": saying(convertedObjects=None),
    "too many objects": twice,
    "no response": lambda review, convert: {"apiVersion": review["apiVersion"], "kind": review["kind"]},
    "another version": reviewed(apiVersion="apiextensions.k8s.io/v1beta1"),
    "another kind": reviewed(kind="Foo"),
    "another group": reviewed(apiVersion="foo/v1"),
    "no kind": lambda review, convert: {"response": converted(review, convert)["response"]},
    "a status": lambda review, convert: STATUS,
    "a definition": lambda review, convert: definition({}),
    "a response of a wrong type": reviewed(response={"uid": 5}),
    "objects of a wrong type": saying(convertedObjects={}),
    "a result of a wrong type": saying(result="Success"),
    "no JSON": raw(b"hello"),
    "broken JSON": raw(b"{hello"),
    "nothing": raw(b""),
    "an array": raw(b"[]"),
    "500": refusing(500, b"broken"),
    "404": refusing(404, b"nope"),
    "400 with a status": refusing(400, json.dumps(STATUS).encode()),
    "503": refusing(503, b"busy"),
    "a redirect": refusing(302, b"", Location="https://127.0.0.1:1/x"),
    "an object of another group": setting("apiVersion", to="other.group/v2"),
    "an object without apiVersion": without("apiVersion"),
    "an object of another kind": setting("kind", to="Lump"),
    "another name": setting("metadata", "name", to="renamed"),
    "a name of a wrong type": setting("metadata", "name", to=5),
    "another namespace": setting("metadata", "namespace", to="other"),
    "another uid of the object": setting("metadata", "uid", to="other"),
    "no metadata": without("metadata"),
    "metadata of a wrong type": setting("metadata", to="x"),
    "an invalid label": setting("metadata", "labels", to={"a b": "c"}),
    "two invalid labels": setting("metadata", "labels", to={"a b": "b c"}),
    "a label of a wrong type": setting("metadata", "labels", to={"a": 5}),
    "labels of a wrong type": setting("metadata", "labels", to=["a"]),
    "an invalid annotation": setting("metadata", "annotations", to={"a b": "c"}),
    "a null annotation": setting("metadata", "annotations", to={"a": None}),
    "null for an object": changed(lambda obj: None),
    "a text for an object": changed(lambda obj: "x"),
    "a number for an object": changed(lambda obj: 5),
    "an array for an object": changed(lambda obj: [1]),
    "an empty object": changed(lambda obj: {}),
    "an invalid embedded resource": setting(
        "spec", "owner", to={"apiVersion": "v1", "kind": "X", "metadata": {"name": 5}}
    ),
}
STRANGE: dict[str, Answer] = {
    "another generation": setting("metadata", "generation", to=99),
    "new labels": setting("metadata", "labels", to={"a": "b"}),
    "null for labels": setting("metadata", "labels", to=None),
    "an unknown member": setting("spec", "zzz", to=99),
    "null for a member": setting("spec", "lumen", to=None),
    "a member of a wrong type": setting("spec", "lumen", to="text"),
    "a member less": without("spec"),
}
"""Answers that are accepted."""


# ---------------------------------------------------------------------------------------------------- the same play on two servers

Step = tuple[str, int, Any]


def played(server: Server) -> Iterator[Step]:
    """Yield each step with its answer."""
    ask = server.shown
    yield "create v1", *ask("POST", V1, lamp("v1", watt=7))
    yield "get", *ask("GET", f"{V2}/one")
    yield "list", *ask("GET", V2)
    yield "create v2", *ask("POST", V2, lamp("v2", "two", lumen=55, onlyv2="x", mode="dim"))
    yield "what is stored", *ask("GET", f"{V1}/two")
    yield "defaults of the version", *ask("POST", V2, lamp("v2", "three"))
    yield "page", *ask("GET", f"{V2}?limit=2", headers=PARTIAL)[:1], None
    for selector in ("spec.mode=dim", "spec.lumen=70", "spec.watt=7", "spec.lumen!=70", "metadata.name=two"):
        yield selector, *ask("GET", f"{V2}?fieldSelector={selector.replace('=', '%3D')}")
    yield "collection by field", *ask("DELETE", f"{V2}?fieldSelector=spec.lumen%3D770")
    for headers in (TABLE, PARTIAL, {"Accept": "application/yaml;as=Table;g=meta.k8s.io;v=v1"}):
        if "yaml" not in headers["Accept"]:
            yield "another form", *ask("GET", f"{V2}/one", headers=headers)
    yield "status", *ask("GET", f"{V2}/one/status")
    yield "scale", *ask("GET", f"{V2}/one/scale")
    yield "no object", *ask("GET", f"{V2}/nope")
    yield "merge", *ask("PATCH", f"{V2}/one?fieldManager=m", {"spec": {"lumen": 200}}, MERGE)
    yield (
        "JSON patch",
        *ask("PATCH", f"{V2}/one?fieldManager=m", [{"op": "replace", "path": "/spec/lumen", "value": 210}], JSON_PATCH),
    )
    yield "lossy", *ask("PATCH", f"{V2}/one?fieldManager=m", {"spec": {"lumen": 215}}, MERGE)
    yield "dry run", *ask("PATCH", f"{V2}/one?dryRun=All&fieldManager=m", {"spec": {"lumen": 300}}, MERGE)
    yield "dry create", *ask("POST", f"{V2}?dryRun=All", lamp("v2", "dry", lumen=30))
    found = server.ask("GET", f"{V2}/one").json
    yield "put", *ask("PUT", f"{V2}/one", found | {"spec": {"lumen": 300}})
    yield "stale put", *ask("PUT", f"{V2}/one", found | {"spec": {"lumen": 310}})
    yield "apply v2", *ask("PATCH", f"{V2}/one?fieldManager=app&force=true", lamp("v2", lumen=400), APPLY)
    yield "conflict", *ask("PATCH", f"{V1}/one?fieldManager=app1", lamp("v1", watt=41), APPLY)
    yield "apply v1", *ask("PATCH", f"{V1}/one?fieldManager=app1&force=true", lamp("v1", watt=41), APPLY)
    yield (
        "apply of what v1 lacks",
        *ask("PATCH", f"{V2}/one?fieldManager=app&force=true", lamp("v2", onlyv2="u"), APPLY),
    )
    yield "applied anew", *ask("PATCH", f"{V2}/new?fieldManager=app", lamp("v2", "new", lumen=50), APPLY)
    found = server.ask("GET", f"{V2}/one").json
    yield "put status", *ask("PUT", f"{V2}/one/status", found | {"status": {"n": 3}})
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    yield "finalizer", *ask("PATCH", f"{V2}/two?fieldManager=m", held, MERGE)
    yield "marked", *ask("DELETE", f"{V2}/two")
    yield "released", *ask("PATCH", f"{V2}/two?fieldManager=m", {"metadata": {"finalizers": None}}, MERGE)
    yield "delete", *ask("DELETE", f"{V2}/new")
    for number, (label, answer) in enumerate((BAD | STRANGE).items()):
        # A changed object is asked for anew.
        server.ask("PATCH", f"{V1}/one", {"metadata": {"annotations": {"n": str(number)}}}, **MERGE)
        server.hook.answer = answer
        yield f"{label}: get", *ask("GET", f"{V2}/one")
        yield f"{label}: create", *ask("POST", V2, lamp("v2", "bad", lumen=50))
        server.hook.answer = converted
        server.ask("DELETE", f"{V1}/bad")


def test_kube_apiserver_answers_the_same(tmp_path: pathlib.Path, our_own: None) -> None:
    with plane.ControlPlane(tmp_path / "plane") as cluster, Hook(tmp_path, convert) as hook, cluster.connect() as admin:
        there = Server(cluster.admin, admin, hook)
        assert admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        reply = admin.ask("POST", DEFINITIONS, definition(hook.conversion()))
        assert reply.status == 201, reply.text
        for path in (V1, V2):
            until(lambda path=path: admin.ask("GET", path).status == 200, "the definition is served")  # type: ignore[misc]
        release = admin.ask("GET", "/version").json
        expected = list(played(there))
        admin.ask("DELETE", f"{DEFINITIONS}/lamps.{GROUP}")
        version = f"--emulated-version={release['major']}.{release['minor']}"
        with here(tmp_path / "dev", hook, version) as (server, _):
            steps = zip(expected, played(server), strict=True)
            assert [(here, there) for there, here in steps if here != there] == []


def test_webhook_is_called_as_a_service_of_the_cluster(tmp_path: pathlib.Path, our_own: None) -> None:
    with Hook(tmp_path, convert, hosts=("lamps.default.svc",)) as hook:
        service = {"namespace": "default", "name": "lamps", "path": "/convert", "port": hook.port}
        made = definition(hook.conversion(url=None, service=service))
        file = write(tmp_path / "lamps.yaml", made)
        with (
            Bed(tmp_path / "bed", serve_flags=[f"--crds={file}"]) as bed,
            bed.connect() as admin,
            Connection(bed.straight(bed.admin)) as straight,
        ):
            for path, obj in (
                ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
                (
                    SERVICES,
                    {"metadata": {"name": "lamps"}, "spec": {"type": "ExternalName", "externalName": "localhost"}},
                ),
                (DEFINITIONS, made),
            ):
                reply = admin.ask("POST", path, obj)
                assert reply.status == 201, reply.text
            there, here = (Server(bed.admin, user, hook) for user in (admin, straight))
            for path in (V1, V2):
                until(lambda path=path: there.ask("GET", path).status == 200, "the definition is served")  # type: ignore[misc]
            for server in (there, here):
                assert server.ask("POST", V2, lamp("v2", lumen=70)).json["spec"] == {"lumen": 70}
                assert server.ask("GET", f"{V1}/one").json["spec"] == {"watt": 7}
                assert server.hook.requests[-1][0] == "/convert?timeout=30s"
                assert server.hook.requests[-1][1]["Host"] == f"lamps.default.svc:{hook.port}"


# -------------------------------------------------------------------------------------------------------------------- what is ours


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    with Hook(tmp_path_factory.mktemp("hook"), convert) as made:
        yield made


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, hook: Hook) -> Iterator[tuple[Server, DevServer]]:
    with here(tmp_path_factory.mktemp("converted"), hook) as made:
        yield made


@pytest.fixture
def server(started: tuple[Server, DevServer]) -> Iterator[Server]:
    """Without lamps, and with a webhook that works and has seen nothing."""
    found, _ = started
    found.hook.answer = converted
    found.ask("DELETE", V1)
    found.hook.seen.clear()
    yield found
    found.hook.answer = converted


def asked(hook: Hook) -> list[tuple[str, int]]:
    """The version and the number of objects of each review so far."""
    return [
        (review["request"]["desiredAPIVersion"].rpartition("/")[2], len(review["request"]["objects"]))
        for review in hook.seen
    ]


def test_webhook_sees_what_kube_apiserver_sends(server: Server) -> None:
    created = server.ask("POST", V2, lamp("v2", lumen=70)).json
    path, headers = server.hook.requests[-1]
    to_v1, to_v2 = server.hook.seen
    assert (path, headers["User-Agent"]) == ("/convert?timeout=30s", "kube-apiserver-admission")
    assert {name: to_v1[name] for name in ("apiVersion", "kind", "response")} == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
    }
    metadata = {name: x for name, x in created["metadata"].items() if name != "resourceVersion"}
    sent = {"apiVersion": f"{GROUP}/v2", "kind": "Lamp", "metadata": metadata, "spec": {"lumen": 70}}
    assert to_v1["request"]["objects"] == [sent]
    assert to_v2["request"]["objects"] == [sent | {"apiVersion": f"{GROUP}/v1", "spec": {"watt": 7}}]


def test_converted_objects_are_cached(server: Server) -> None:
    server.ask("POST", V1, lamp("v1", watt=7))
    for _ in range(3):
        assert server.ask("GET", f"{V2}/one").json["spec"] == {"lumen": 70}
        assert [x["spec"] for x in server.ask("GET", V2).json["items"]] == [{"lumen": 70}]
    assert asked(server.hook) == [("v2", 1)]
    server.ask("PATCH", f"{V1}/one", {"spec": {"watt": 8}}, **MERGE)
    assert server.ask("GET", f"{V2}/one").json["spec"] == {"lumen": 80}
    assert asked(server.hook) == [("v2", 1), ("v2", 1)]


def test_list_sends_many_objects_in_one_review(server: Server) -> None:
    for number in range(70):
        server.ask("POST", V1, lamp("v1", f"lamp-{number:02}", watt=number))
    items = server.ask("GET", V2).json["items"]
    assert [x["spec"]["lumen"] for x in items] == [10 * number for number in range(70)]
    assert asked(server.hook) == [("v2", 64), ("v2", 6)]


def test_webhook_that_takes_one_object_at_a_time_serves_lists(server: Server) -> None:
    def first(review: Object, convert: Convert) -> Object:
        request = review["request"]
        return answered(review, [convert(copy.deepcopy(request["objects"][0]), request["desiredAPIVersion"])])

    server.hook.answer = first
    for name in ("one", "two", "three"):
        server.ask("POST", V1, lamp("v1", name, watt=7))
    assert [x["spec"] for x in server.ask("GET", V2).json["items"]] == [{"lumen": 70}] * 3
    assert asked(server.hook) == [("v2", 3), ("v2", 1), ("v2", 1), ("v2", 1)]


def test_list_reports_the_object_that_cannot_be_converted(server: Server) -> None:
    def picky(review: Object, convert: Convert) -> Object:
        if any(obj["metadata"]["name"] == "two" for obj in review["request"]["objects"]):
            return answered(review, [], result={"status": "Failure", "message": "two is broken"})
        return converted(review, convert)

    server.hook.answer = picky
    for name in ("one", "two"):
        server.ask("POST", V1, lamp("v1", name, watt=7))
    reply = server.ask("GET", V2)
    assert (reply.status, reply.json["reason"]) == (500, "StorageReadError")
    assert reply.json["message"].endswith(f"{SUBJECT} failed: two is broken")
    assert server.ask("GET", f"{V2}/one").status == 200


def test_stored_version_is_served_without_the_webhook(server: Server) -> None:
    server.hook.answer = NO_WAY
    assert server.ask("POST", V1, lamp("v1", watt=1)).status == 201
    assert server.ask("PATCH", f"{V1}/one", {"spec": {"watt": 2}}, **MERGE).json["spec"] == {"watt": 2}
    assert server.ask("PATCH", f"{V1}/one?fieldManager=me", lamp("v1", watt=2), **APPLY).status == 200
    assert server.ask("DELETE", f"{V1}/one").status == 200
    assert server.hook.seen == []


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", f"{V2}/one", None, {}),
        ("GET", f"{V2}/one/status", None, {}),
        ("GET", f"{V2}/one/scale", None, {}),
        ("GET", V2, None, {}),
        ("GET", f"/apis/{GROUP}/v2/lamps", None, {}),
        ("GET", f"{V2}?watch=1", None, {}),
        ("POST", V2, lamp("v2", "two"), {}),
        ("PUT", f"{V2}/one", lamp("v2"), {}),
        ("PATCH", f"{V2}/one", {"spec": {}}, MERGE),
        ("PATCH", f"{V2}/one?fieldManager=me", lamp("v2"), APPLY),
        ("PATCH", f"{V2}/two?fieldManager=me", lamp("v2", "two"), APPLY),
        ("PATCH", f"{V2}/one/scale", {"spec": {"replicas": 1}}, MERGE),
        ("DELETE", f"{V2}/one", None, {}),
        ("DELETE", V2, None, {}),
    ],
)
def test_request_that_needs_a_failing_webhook_gets_500(
    server: Server, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    before = server.ask("POST", V1, lamp("v1", watt=7)).json
    server.hook.answer = NO_WAY
    reply = server.ask(method, path, body, **headers)
    assert (reply.status, reply.json["kind"]) == (500, "Status")
    assert "Kind=Lamp failed: no way" in reply.json["message"]
    assert server.ask("GET", f"{V1}/one").json == before
    assert server.ask("GET", f"{V1}/two").status == 404


def test_watchers_share_the_call_for_each_change(server: Server) -> None:
    begin = server.ask("GET", V2).json["metadata"]["resourceVersion"]
    path = f"{V2}?watch=1&resourceVersion={begin}"
    with contextlib.ExitStack() as opened:
        streams = [opened.enter_context(Stream(server.user, path)) for _ in range(5)]
        tables = opened.enter_context(_stream(server, path, TABLE))
        dim = opened.enter_context(Stream(server.user, f"{path}&fieldSelector=spec.lumen%3D70"))
        server.ask("POST", V1, lamp("v1", watt=7))
        server.ask("PATCH", f"{V1}/one", {"spec": {"watt": 8}}, **MERGE)
        server.ask("DELETE", f"{V1}/one")
        for stream in streams:
            assert [_told(stream) for _ in range(3)] == [("ADDED", 70), ("MODIFIED", 80), ("DELETED", 80)]
        assert [_told(dim) for _ in range(2)] == [("ADDED", 70), ("DELETED", 70)]
        rows = [json.loads(tables.readline())["object"]["rows"][0]["cells"] for _ in range(3)]
        assert rows == [["one", 70], ["one", 80], ["one", 80]]
    assert len(server.hook.seen) == 3


def test_watch_begins_with_converted_objects(server: Server) -> None:
    server.ask("POST", V1, lamp("v1", watt=7))
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with Stream(server.user, f"{V2}?watch=1&{initial}") as stream:
        assert _told(stream) == ("ADDED", 70)
        assert stream.next()["type"] == "BOOKMARK"


def test_watch_ends_cleanly_when_a_change_cannot_be_converted(server: Server) -> None:
    begin = server.ask("GET", V2).json["metadata"]["resourceVersion"]
    with Stream(server.user, f"{V2}?watch=1&resourceVersion={begin}") as stream:
        server.hook.answer = NO_WAY
        server.ask("POST", V1, lamp("v1", watt=7))
        assert stream.rest() == []


def test_requests_for_one_object_share_a_call(server: Server) -> None:
    server.ask("POST", V1, lamp("v1", watt=7))
    waiting, left = threading.Barrier(2), threading.Event()

    def slow(review: Object, convert: Convert) -> Object:
        waiting.wait(60)
        assert left.wait(60)
        return converted(review, convert)

    server.hook.answer = slow
    found: list[Any] = []

    def ask(path: str) -> None:
        user = Connection(server.kubeconfig)
        found.append(user.ask("GET", path).status)
        user.close()

    threads = [threading.Thread(target=ask, args=(path,)) for path in (f"{V2}/one", V2, f"{V2}/one/scale")]
    threads[0].start()
    waiting.wait(60)
    for thread in threads[1:]:
        thread.start()
    left.set()
    for thread in threads:
        thread.join(60)
    assert (found, len(server.hook.seen)) == ([200, 200, 200], 1)


def test_metrics_count_calls_by_outcome(server: Server, started: tuple[Server, DevServer]) -> None:
    def value(line: str) -> float:
        text = server.ask("GET", "/metrics").text
        return float(next((x.rpartition(" ")[2] for x in text.splitlines() if x.startswith(line)), "0"))

    crd = "apiserver_crd_conversion_webhook_duration_seconds_count"
    good = f'{crd}{{crd_name="lamps.{GROUP}",from_version="v1",succeeded="true",to_version="v2"}}'
    failed = "apiserver_conversion_webhook_request_total"
    bad = f'{failed}{{failure_type="conversion_webhook_malformed_response_failure",result="failure"}}'
    before = value(good), value(bad)
    server.ask("POST", V1, lamp("v1", watt=7))
    server.ask("GET", f"{V2}/one")
    server.hook.answer = NO_WAY
    server.ask("PATCH", f"{V1}/one", {"spec": {"watt": 8}}, **MERGE)
    server.ask("GET", f"{V2}/one")
    assert (value(good), value(bad)) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {"url": "https://127.0.0.1:1/convert"},
            'Post "https://127.0.0.1:1/convert?timeout=30s": dial tcp 127.0.0.1:1: connect: connection refused',
        ),
        ({"caBundle": None}, "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
    ],
    ids=["refused", "unknown authority"],
)
def test_changed_webhook_is_called_and_failures_are_reported(
    tmp_path: pathlib.Path, config: dict[str, Any], why: str
) -> None:
    with Hook(tmp_path, convert) as hook, here(tmp_path / "dev", hook) as (server, _):
        server.ask("POST", V1, lamp("v1", watt=7))
        assert server.ask("GET", f"{V2}/one").status == 200
        write(tmp_path / "dev" / "lamps.yaml", definition(hook.conversion(**config)))
        until(lambda: server.ask("GET", f"{V2}/one").status == 500, "the definition is changed")
        assert server.ask("GET", f"{V2}/one").json["message"].endswith(why)


def policy(*operations: str) -> list[Object]:
    """A policy that is written for v2, and refuses bright lamps."""
    rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "operations": list(operations), "resources": ["lamps"]}
    bright = {
        "expression": "object.spec.lumen < 100",
        "messageExpression": "'too bright: ' + string(object.spec.lumen)",
    }
    return [
        {
            "apiVersion": POLICY,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "lamps"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [bright]},
        },
        {
            "apiVersion": POLICY,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "lamps"},
            "spec": {"policyName": "lamps", "validationActions": ["Deny"]},
        },
    ]


def dimming(review: Object, convert: Convert) -> Object:
    """Convert lamps, and give each lamp of an admission review, which must be of v2, 20 lumens."""
    if review["kind"] == "ConversionReview":
        return converted(review, convert)
    shown = review["request"]["object"]
    assert shown["apiVersion"] == f"{GROUP}/v2", shown
    patch = json.dumps([{"op": "replace", "path": "/spec/lumen", "value": 20}])
    response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
    response["patch"] = base64.b64encode(patch.encode()).decode()
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def test_policy_for_another_version_judges_the_converted_object(tmp_path: pathlib.Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    write(rules / "policy.yaml", *policy("CREATE"))
    with Hook(tmp_path, convert) as hook, here(tmp_path / "dev", hook, f"--admission={rules}") as (server, _):
        reply = server.ask("POST", V1, lamp("v1", watt=20))
        assert (reply.status, "too bright: 200" in reply.json["message"]) == (422, True), reply.text
        assert server.ask("POST", V1, lamp("v1", watt=2)).status == 201
        hook.answer = NO_WAY
        reply = server.ask("POST", V1, lamp("v1", "two", watt=2))
        assert (reply.status, reply.json["message"]) == (500, f"Internal error occurred: {SUBJECT} failed: no way")
        assert server.ask("GET", f"{V1}/two").status == 404


def test_webhook_for_another_version_changes_the_converted_object(tmp_path: pathlib.Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    with Hook(tmp_path, convert) as hook:
        rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["lamps"]}
        webhook = {
            "name": "dim.example.com",
            "rules": [rule],
            "clientConfig": hook.conversion()["webhook"]["clientConfig"],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        kind = {"apiVersion": POLICY, "kind": "MutatingWebhookConfiguration", "metadata": {"name": "dim"}}
        write(rules / "webhook.yaml", kind | {"webhooks": [webhook]})
        hook.answer = dimming
        with here(tmp_path / "dev", hook, f"--admission={rules}") as (server, _):
            assert server.ask("POST", V1, lamp("v1", watt=20)).json["spec"] == {"watt": 2}
            assert server.ask("POST", V2, lamp("v2", "two", lumen=90)).json["spec"] == {"lumen": 20}


def test_review_has_the_first_known_version(tmp_path: pathlib.Path) -> None:
    with Hook(tmp_path, convert) as hook:
        (tmp_path / "dev").mkdir()
        file = write(tmp_path / "dev" / "lamps.yaml", definition(hook.conversion("v2", "v1beta1", "v1")))
        with dev_server(tmp_path / "dev", f"--crds={file}") as dev, Connection(dev.kubeconfig) as user:
            user.ask("POST", V1, lamp("v1", watt=7))
            assert user.ask("GET", f"{V2}/one").json["spec"] == {"lumen": 70}
            assert hook.seen[-1]["apiVersion"] == "apiextensions.k8s.io/v1beta1"


def _told(stream: Any) -> tuple[str, int]:
    event = stream.next()
    return event["type"], event["object"]["spec"]["lumen"]


@contextlib.contextmanager
def _stream(server: Server, path: str, headers: dict[str, str]) -> Iterator[Any]:
    with contextlib.closing(server.user.connect()) as connection:
        connection.request("GET", path, headers={**server.user.headers, **headers})
        yield connection.getresponse()
