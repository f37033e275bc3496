"""Stored values that are no objects: listed around, told as corrupt, deletable. They are put into the store behind the server's back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence

import pytest

from apiserver.apimachinery.releases import SUPPORTED, V1_36, Release
from apiserver.storage.store import Write, open_stores
from apiserver.watchcache.entry import IndexFunc, Key, Revision
from tests.fixtures.server import DevServer, dev_server
from tests.fixtures.valkey import patient

GROUP = "resource.sluice.dev"
CLASSES = f"/apis/{GROUP}/v1/deviceclasses"
JSON = {"Content-Type": "application/json"}

VALUES = {
    "nothing": b"",
    "no JSON": b"{not json",
    "no text": b'{"metadata":{"name":"x","uid":"u"},"spec":{"a":"\xff"}}',
    "a list": b"[]",
    "a number": b"1",
    "no metadata": b'{"spec":{}}',
    "metadata of another shape": b'{"metadata":{"name":"x","uid":"u","labels":5},"spec":{}}',
    "labels that are no text": b'{"metadata":{"name":"x","uid":"u","labels":{"a":1}},"spec":{}}',
    "too deep": b'{"metadata":{"name":"x","uid":"u"},"spec":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "cut off": b'{"metadata":{"name":"x","uid":"u"},"spec":{"config":[{',
}

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LISTED = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    TABLE,
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("unreadable"), f"--feature-gates={GATE}=false") as found:
        yield found


GATE = "AllowUnsafeMalformedObjectDeletion"
OPTION = "ignoreStoreReadErrorWithClusterBreakingPotential"


@pytest.fixture(scope="module", params=SUPPORTED, ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Iterator[DevServer]:
    """One where deleting what cannot be read has to be asked for."""
    flags = f"--feature-gates={GATE}=true", f"--emulated-version={release}"
    with dev_server(tmp_path_factory.mktemp("guarded"), *flags) as found:
        yield found


def put(server: DevServer, name: str, value: bytes, *, expected: int = 0) -> None:
    """Through the library's own function, as a server with a bug would."""
    puts(server, [name], value, expected=expected)


def puts(
    server: DevServer, names: Sequence[str], value: bytes = b"[", *, expected: int = 0, kind: str = "deviceclasses"
) -> None:
    async def write() -> None:
        folder = server.data / "store"
        text = "".join(file.read_text() for file in folder.glob("*.conf"))
        found = re.search(r'^requirepass "?([^"\s]+)"?$', text, re.MULTILINE)
        assert found
        url = f"unix://{folder / 'valkey.sock'}?password={found.group(1)}"
        resource = f"{GROUP}/{kind}"
        stores = await open_stores(patient(url), {resource: IndexFunc(lambda _: ({}, ()))})
        try:
            await stores.ready()
            for name in names:
                await stores[resource].commit(Write(Key(name), value, Revision(expected), ""), dry_run=False)
        finally:
            await stores.close()

    asyncio.run(write())


def create(server: DevServer, name: str) -> int:
    """Its version."""
    made = server.request("POST", CLASSES, json.dumps({"metadata": {"name": name}, "spec": {}}), headers=JSON)
    assert made.status == 201
    return int(made.json["metadata"]["resourceVersion"])


def named(server: DevServer) -> list[str]:
    return [item["metadata"]["name"] for item in server.request("GET", CLASSES).json["items"]]


@pytest.mark.parametrize("case", sorted(VALUES))
def test_a_value_that_is_no_object_hides_nothing_and_can_be_deleted(server: DevServer, case: str) -> None:
    name = f"bad-{case.replace(' ', '-').lower()}"
    path = f"{CLASSES}/{name}"
    create(server, f"good-{name}")
    version = create(server, name)
    put(server, name, VALUES[case], expected=version)

    found = server.request("GET", path)
    assert (found.status, found.json["reason"]) == (500, "InternalError")
    assert found.json["message"].startswith(
        f"Internal error occurred: StorageError: corrupt object, Code: 7, Key: /{GROUP}/deviceclasses/{name}, "
    )
    assert named(server) == [f"good-{name}"]
    for form in LISTED:
        for query in ("", "?limit=1", "?labelSelector=!a", f"?fieldSelector=metadata.name={name}"):
            listed = server.request("GET", CLASSES + query, headers={"Accept": form})
            assert listed.status == 200
    patched = server.request(
        "PATCH", path, '{"metadata":{"labels":{"a":"b"}}}', headers={"Content-Type": "application/merge-patch+json"}
    )
    assert (patched.status, patched.json["reason"]) == (500, "InternalError")
    assert (
        server.request("POST", CLASSES, json.dumps({"metadata": {"name": name}, "spec": {}}), headers=JSON).status
        == 409
    )
    stale = {"preconditions": {"resourceVersion": str(version)}}
    assert server.request("DELETE", path, json.dumps(stale), headers=JSON).status == 409
    assert server.request("DELETE", f"{path}?propagationPolicy=Foreground").status == 200
    assert server.request("GET", path).status == 404
    assert server.request("DELETE", f"{CLASSES}/good-{name}").status == 200
    assert f'"{name}"' in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def test_a_collection_is_deleted_with_what_cannot_be_read(server: DevServer) -> None:
    create(server, "good")
    put(server, "bad", b"{", expected=0)

    assert named(server) == ["good"]
    assert server.request("DELETE", CLASSES).status == 200
    assert server.request("GET", f"{CLASSES}/bad").status == 404
    assert named(server) == []


def corrupt(name: str) -> str:
    return (
        f"StorageError: corrupt object, Code: 7, Key: /{GROUP}/deviceclasses/{name}, ResourceVersion: 0, "
        "AdditionalErrorMsg: object not decodable"
    )


@pytest.mark.parametrize("case", sorted(VALUES))
def test_behind_the_gate_it_goes_only_when_that_is_asked_for(guarded: DevServer, release: Release, case: str) -> None:
    name = f"bad-{case.replace(' ', '-').lower()}"
    path = f"{CLASSES}/{name}"
    put(guarded, name, VALUES[case], expected=create(guarded, name))

    for refused in (
        guarded.request("GET", path),
        guarded.request("DELETE", path),
        guarded.request("DELETE", f"{path}?dryRun=All"),
        guarded.request("DELETE", path, {"preconditions": {"resourceVersion": "1"}}),
        guarded.request("DELETE", f"{path}?{OPTION}=false"),
    ):
        said = f"Internal error occurred: {corrupt(name)}"
        assert (refused.status, refused.json["reason"], refused.json["message"]) == (500, "InternalError", said)
    tried = guarded.request("DELETE", path, {OPTION: True, "dryRun": ["All"]})
    assert tried.status == (422 if release is V1_36 else 200)
    removed = guarded.request("DELETE", path, {OPTION: True}, headers={"Accept": TABLE})
    assert (removed.status, removed.json) == (
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": name, "kind": "DeviceClass"},
            "code": 200,
        },
    )
    assert guarded.request("GET", path).status == 404
    again = guarded.request("DELETE", f"{path}?{OPTION}=true")
    if release is V1_36:
        assert again.json["message"] == (
            f'deviceclasses.{GROUP} "{name}" is invalid: {OPTION}: Invalid value: true: '
            "is exclusively used to delete corrupt object(s), try again by removing this option"
        )
    else:
        assert (again.status, again.json["message"]) == (404, f'deviceclasses.{GROUP} "{name}" not found')


def test_unsafe_deletion_of_a_readable_object_is_refused(guarded: DevServer, release: Release) -> None:
    """NOT_UNREADABLE, NOT_BESIDE_IGNORING"""
    create(guarded, "readable")
    for options in ({OPTION: True}, {OPTION: True, "dryRun": ["All"]}):
        refused = guarded.request("DELETE", f"{CLASSES}/readable", options)
        if release is V1_36:
            assert refused.status == 422
        else:
            assert (refused.status, refused.json["reason"]) == (409, "Conflict")
            assert refused.json["message"] == (
                f'Operation cannot be fulfilled on deviceclasses.{GROUP} "readable": StorageError: invalid object, '
                f"Code: 4, Key: /{GROUP}/deviceclasses/readable, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion "
                "is not allowed because the object is decodable from storage"
            )
    assert guarded.request("DELETE", f"{CLASSES}/readable").status == 200


def test_list_with_the_gate_reports_unreadable_objects(guarded: DevServer, release: Release) -> None:
    """REPORT"""
    first = "" if release is V1_36 else f": {corrupt('b')}"
    create(guarded, "a")
    put(guarded, "b", b"[", expected=create(guarded, "b"))
    create(guarded, "c")
    refusal = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"failed to read one or more deviceclasses.{GROUP} from the storage{first}",
        "reason": "StorageReadError",
        "details": {
            "name": "list",
            "group": GROUP,
            "kind": "deviceclasses",
            "causes": [
                {"reason": "UnexpectedServerResponse", "message": corrupt("b"), "field": f"/{GROUP}/deviceclasses/b"}
            ],
        },
        "code": 500,
    }

    queries = ("", "?limit=2", "?labelSelector=none", "?fieldSelector=metadata.name=b")
    for reply in (*(guarded.request("GET", CLASSES + query) for query in queries), guarded.request("DELETE", CLASSES)):
        assert (reply.status, reply.json) == (500, refusal)
    for query in ("?resourceVersion=0", "?limit=1", "?fieldSelector=metadata.name=c"):
        assert guarded.request("GET", CLASSES + query).status == 200
    events = guarded.request("GET", f"{CLASSES}?watch=true&timeoutSeconds=1").text
    assert [json.loads(line)["object"]["metadata"]["name"] for line in events.splitlines()] == ["a", "c"]
    assert guarded.request("DELETE", f"{CLASSES}/b?{OPTION}=true").status == 200
    assert guarded.request("DELETE", CLASSES).status == 200
    assert named(guarded) == []


def test_list_with_the_gate_reports_a_hundred_errors_at_most(guarded: DevServer, release: Release) -> None:
    puts(guarded, [f"bad{number:03}" for number in range(100)], kind="resourceslices")
    slices = f"/apis/{GROUP}/v1/resourceslices"
    some = guarded.request("GET", slices).json
    assert len(some["details"]["causes"]) == (100 if release is V1_36 else 101)
    assert some["message"].endswith("from the storage" if release is V1_36 else " (and 99 more)")
    puts(guarded, ["bad100"], kind="resourceslices")
    causes = guarded.request("GET", slices).json["details"]["causes"]

    assert [cause.get("field", "")[-6:] for cause in causes] == [*(f"bad{number:03}" for number in range(100)), ""]
    assert causes[-1] == {"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"}


def test_without_the_gate_the_option_says_nothing(server: DevServer) -> None:
    create(server, "plain")
    asked = {OPTION: True, "dryRun": ["All"]}
    assert server.request("DELETE", f"{CLASSES}/plain", asked).status == 200
    assert server.request("DELETE", CLASSES, {OPTION: True}).status == 200


def test_a_watch_goes_on_and_shows_what_becomes_unreadable_as_deleted(server: DevServer) -> None:
    version = create(server, "turning")
    put(server, "turning", b"[", expected=version)
    create(server, "next")
    events = server.request("GET", f"{CLASSES}?watch=true&resourceVersion={version - 1}&timeoutSeconds=1").text

    seen = [json.loads(line) for line in events.splitlines()]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [
        ("ADDED", "turning"),
        ("DELETED", "turning"),
        ("ADDED", "next"),
    ]
    assert server.request("DELETE", CLASSES).status == 200
